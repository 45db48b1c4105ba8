"""The recent past: events in order of their revisions, bounded, cut off at the old end by compaction."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from operator import attrgetter

from dralloc.store.interface import HistoryLimits
from dralloc.store.records import StoreEvent

SLICE_MIN = 256
"""Events by which the limit is passed before compaction starts."""

revision_of: Callable[[StoreEvent], int] = attrgetter("revision")


def superseded_bytes(event: StoreEvent) -> int:
    """What the log alone keeps alive for an event, where the newest records are held anyway."""
    return len(event.previous.value) if event.previous else 0


def carried_bytes(event: StoreEvent) -> int:
    """What the log keeps alive for an event, where nothing else holds its records."""
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
        """The event of a revision that the log holds, where each revision has one event."""
        event = self._events[bisect_right(self._events, revision, key=revision_of) - 1]
        assert event.revision == revision, "the log holds the revision"
        return event

    def between(self, after: int, until: int) -> Sequence[StoreEvent]:
        """Events with a revision above `after` and at most `until`."""
        start = bisect_right(self._events, after, key=revision_of)
        return self._events[start : bisect_right(self._events, until, lo=start, key=revision_of)]

    def overdue(self, *, events_max: int) -> int:
        """The revision to compact to, at most so many events away, so that the limits hold; `compacted` while they do.

        The limits may be passed by a little, so that compaction comes in slices that are worth their cost.
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
        """The farthest revision on the way to another that leaves behind at most so many events."""
        if len(self._events) <= events_max:
            return revision
        return min(revision, self._events[events_max - 1].revision)

    def compact(self, revision: int) -> Sequence[StoreEvent]:
        """Forgets, and returns, the events up to a revision."""
        if revision <= self.compacted:
            return ()
        self.compacted = revision
        count = bisect_right(self._events, revision, key=revision_of)
        dropped = self._events[:count]
        del self._events[:count]
        self._bytes -= sum(map(self._weigh, dropped))
        return dropped
