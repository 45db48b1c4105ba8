"""A fair queue: items of many flows, served so that each flow gets its share of the time, however many items it has.

A flow is a path of keys, such as (priority level, user, connection): levels share the time by weight, users of a level equally, and
connections of a user equally. Start-time fair queueing: each flow has a tag, its served time in the virtual time of its parent. A flow that
was idle starts at the current virtual time, so that an occasional request passes those of a flood.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Mapping
from heapq import heappop, heappush
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
        self._root: _Flow[T] = _Flow()
        self._numbers = count()
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def push(self, path: Path, item: T) -> None:
        self._length += 1
        self._root.push(path, item, self._numbers)

    def pop(self) -> tuple[Path, T]:
        """The next item and its path; the queue is not empty."""
        self._length -= 1
        path: list[Hashable] = []
        item = self._root.pop(path, self._weights, self._numbers)
        return tuple(path), item

    def charge(self, path: Path, cost_s: float) -> None:
        """Count the time that an item of the flow took."""
        cost_s = max(cost_s - _COST_MIN_S, 0.0)
        flow, weights = self._root, self._weights
        for key in path:
            flow = flow.charge(key, cost_s / weights.get(key, 1.0))
            weights = {}

    def forget(self) -> None:
        """Forget what was served: no flow owes another anything for time that no other wanted. The queue is empty."""
        assert not self._length
        self._root = _Flow()


class _Flow(Generic[T]):
    __slots__ = ("_flows", "_items", "_now", "_waiting", "is_waiting", "tag")

    def __init__(self) -> None:
        self.tag = 0.0
        self.is_waiting = False
        # Virtual time of the flows below.
        self._now = 0.0
        self._flows: dict[Hashable, _Flow[T]] = {}
        self._waiting: list[tuple[float, int, Hashable]] = []
        self._items: deque[T] = deque()

    @property
    def is_empty(self) -> bool:
        return not self._items and not self._waiting

    def push(self, path: Path, item: T, numbers: count[int]) -> None:
        if not path:
            self._items.append(item)
            return
        key = path[0]
        flow = self._below(key)
        flow.push(path[1:], item, numbers)
        if not flow.is_waiting:
            flow.is_waiting = True
            flow.tag = max(flow.tag, self._now)
            heappush(self._waiting, (flow.tag, next(numbers), key))

    def pop(self, path: list[Hashable], weights: Mapping[Hashable, float], numbers: count[int]) -> T:
        if self._items:
            return self._items.popleft()
        while True:
            tag, _, key = heappop(self._waiting)
            flow = self._flows[key]
            if flow.tag <= tag:
                break
            # It was charged while it waited.
            heappush(self._waiting, (flow.tag, next(numbers), key))
        self._now = max(self._now, tag)
        path.append(key)
        item = flow.pop(path, {}, numbers)
        flow.tag += _COST_MIN_S / weights.get(key, 1.0)
        flow.is_waiting = not flow.is_empty
        if flow.is_waiting:
            heappush(self._waiting, (flow.tag, next(numbers), key))
        return item

    def charge(self, key: Hashable, cost_s: float) -> _Flow[T]:
        flow = self._below(key)
        flow.tag = max(flow.tag, self._now) + cost_s
        return flow

    def _below(self, key: Hashable) -> _Flow[T]:
        flow = self._flows.get(key)
        if flow is None:
            if len(self._flows) >= _FLOWS_KEPT:
                self._forget_idle()
            flow = self._flows[key] = _Flow()
        return flow

    def _forget_idle(self) -> None:
        """Forget flows that would start at the current time anyway, or all idle ones if too many have a debt."""
        kept = {key: flow for key, flow in self._flows.items() if flow.is_waiting or flow.tag > self._now}
        if len(kept) >= _FLOWS_KEPT:
            kept = {key: flow for key, flow in kept.items() if flow.is_waiting}
        self._flows = kept
