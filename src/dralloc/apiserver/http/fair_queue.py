"""A fair queue: items of many flows, served so that each flow gets its share of the time, however many items it has.

A flow is a path of keys, such as (priority level, user, connection): levels share the time by weight, users of a level equally, and
connections of a user equally. Start-time fair queueing: each flow has a tag, its served time in the virtual time of its parent. A flow that
was idle starts at the current virtual time, so that an occasional request passes those of a flood.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Mapping
from heapq import heappop, heappush, heapreplace
from itertools import count
from typing import Final, Generic, TypeVar

T = TypeVar("T")
Path = tuple[Hashable, ...]

# Counted for an item when it is taken, before its cost is known.
_COST_MIN_S: Final = 0.0001
# Idle flows are forgotten when so many have been seen.
_FLOWS_KEPT: Final = 256


class FairQueue(Generic[T]):
    """`weights` are the shares of the first keys; 1 for keys that it does not list."""

    def __init__(self, weights: Mapping[Hashable, float] | None = None) -> None:
        self._weights = weights or {}
        self._root: _Flow[T] = _Flow(())
        self._numbers = count()
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def push(self, path: Path, item: T) -> None:
        self._length += 1
        parent = self._root
        for key in path:
            flow = parent.flows.get(key) or parent.add(key)
            if not flow.is_waiting:
                flow.is_waiting = True
                if flow.tag < parent.now:
                    flow.tag = parent.now
                heappush(parent.waiting, (flow.tag, next(self._numbers), flow))
            parent = flow
        parent.items.append(item)

    def pop(self) -> tuple[Path, T]:
        """The next item and its path; the queue is not empty."""
        self._length -= 1
        flow = self._root
        way: list[tuple[_Flow[T], _Flow[T]]] = []
        while not flow.items:
            parent, flow = flow, flow.next()
            way.append((parent, flow))
        item = flow.items.popleft()
        weight = self._weights.get(flow.path[0], 1.0) if way else 1.0
        for parent, below in reversed(way):
            below.tag += _COST_MIN_S / (weight if parent is self._root else 1.0)
            if below.items or below.waiting:
                heapreplace(parent.waiting, (below.tag, next(self._numbers), below))
            else:
                below.is_waiting = False
                heappop(parent.waiting)
        return flow.path, item

    def charge(self, path: Path, cost_s: float) -> None:
        """Count the time that an item of the flow took."""
        cost_s -= _COST_MIN_S
        if cost_s <= 0.0:
            return
        parent, weight = self._root, self._weights.get(path[0], 1.0)
        for key in path:
            flow = parent.flows.get(key) or parent.add(key)
            flow.tag = max(flow.tag, parent.now) + cost_s / weight
            parent, weight = flow, 1.0

    def forget(self) -> None:
        """Forget what was served: no flow owes another anything for time that no other wanted. The queue is empty."""
        assert not self._length
        self._root = _Flow(())


class _Flow(Generic[T]):
    """Flows below it, or items at the end of a path."""

    __slots__ = ("flows", "is_waiting", "items", "now", "path", "tag", "waiting")

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tag = 0.0
        self.is_waiting = False
        # Virtual time of the flows below.
        self.now = 0.0
        self.flows: dict[Hashable, _Flow[T]] = {}
        # A heap by tag, then by number.
        self.waiting: list[tuple[float, int, _Flow[T]]] = []
        self.items: deque[T] = deque()

    def next(self) -> _Flow[T]:
        """The flow below whose turn it is; it stays the first that waits."""
        while True:
            tag, number, flow = self.waiting[0]
            if flow.tag <= tag:
                if self.now < tag:
                    self.now = tag
                return flow
            # It was charged while it waited.
            heapreplace(self.waiting, (flow.tag, number, flow))

    def add(self, key: Hashable) -> _Flow[T]:
        if len(self.flows) >= _FLOWS_KEPT:
            self._forget_idle()
        flow = self.flows[key] = _Flow((*self.path, key))
        return flow

    def _forget_idle(self) -> None:
        """Forget flows that would start at the current time anyway, or all idle ones if too many have a debt."""
        kept = {key: flow for key, flow in self.flows.items() if flow.is_waiting or flow.tag > self.now}
        if len(kept) >= _FLOWS_KEPT:
            kept = {key: flow for key, flow in kept.items() if flow.is_waiting}
        self.flows = kept
