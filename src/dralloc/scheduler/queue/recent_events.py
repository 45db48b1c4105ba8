"""The cluster events since the oldest running attempt began, so that an event during an attempt is not lost."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from dralloc.scheduler.state.cluster_events import ClusterEvent


class RecentEvents:
    """Numbered events. An attempt remembers the number of the first event after its start."""

    def __init__(self) -> None:
        self._first = 0
        self._events: deque[ClusterEvent] = deque()

    @property
    def next(self) -> int:
        return self._first + len(self._events)

    def add(self, event: ClusterEvent) -> None:
        self._events.append(event)

    def since(self, number: int) -> Iterator[ClusterEvent]:
        return (self._events[index] for index in range(number - self._first, len(self._events)))

    def drop_before(self, number: int) -> None:
        while self._first < number and self._events:
            self._events.popleft()
            self._first += 1
        self._first = max(self._first, number)
