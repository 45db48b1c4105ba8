"""The bounded history: events ordered by revision, truncated at the old end by compaction."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from operator import attrgetter

from dralloc.server.store.interface import HistoryLimits
from dralloc.server.store.records import StoreEvent

SLICE_MIN = 256
"""Events beyond the limit before compaction starts."""

revision_of: Callable[[StoreEvent], int] = attrgetter("revision")


def superseded_bytes(event: StoreEvent) -> int:
    """Returns the bytes that only the log keeps alive for an event, if the newest records are held elsewhere."""
    return len(event.previous.value) if event.previous else 0


def carried_bytes(event: StoreEvent) -> int:
    """Returns the bytes that the log keeps alive for an event, if nothing else holds its records."""
    return superseded_bytes(event) + (len(event.record.value) if event.record else 0)


class EventLog:
    """Every event after revision `compacted`."""

    def __init__(
        self, *, compacted: int, limits: HistoryLimits, weigh: Callable[[StoreEvent], int] = superseded_bytes
    ) -> None:
        self.compacted = compacted
        self._limits = limits
        self._weigh = weigh
        self._events: list[StoreEvent] = []
        self._bytes = 0

    def append(self, event: StoreEvent) -> None:
        self._events.append(event)
        self._bytes += self._weigh(event)

    def at(self, revision: int) -> StoreEvent:
        """Returns the event of a revision in the log, if each revision has one event."""
        event = self._events[bisect_right(self._events, revision, key=revision_of) - 1]
        assert event.revision == revision, "the log holds the revision"
        return event

    def between(self, after: int, until: int) -> Sequence[StoreEvent]:
        """Returns events with a revision above `after` and at most `until`."""
        start = bisect_right(self._events, after, key=revision_of)
        return self._events[start : bisect_right(self._events, until, lo=start, key=revision_of)]

    def overdue(self, *, events_max: int) -> int:
        """Returns the revision to compact to, at most this many events away, to satisfy the limits; `compacted` if they
        hold.

        The limits may be exceeded by a little, so that compaction runs in slices that are worth their cost.
        """
        over = len(self._events) - self._limits.events_max
        excess = self._bytes - self._limits.bytes_max
        if over < SLICE_MIN and excess <= self._limits.bytes_max // 16:
            return self.compacted
        target = self.compacted
        for position, event in enumerate(self._events[:events_max]):
            if position >= over and excess <= 0:
                break
            target, excess = event.revision, excess - self._weigh(event)
        return target

    def step_towards(self, revision: int, *, events_max: int) -> int:
        """Returns the farthest revision towards the target that drops at most this many events."""
        if len(self._events) <= events_max:
            return revision
        return min(revision, self._events[events_max - 1].revision)

    def compact(self, revision: int) -> Sequence[StoreEvent]:
        """Drops and returns the events up to a revision."""
        if revision <= self.compacted:
            return ()
        self.compacted = revision
        count = bisect_right(self._events, revision, key=revision_of)
        dropped = self._events[:count]
        del self._events[:count]
        self._bytes -= sum(map(self._weigh, dropped))
        return dropped
