"""The best node by scores that take long, with limits of the scores for all pods with the same demand.

A limit does not depend on the resources that a pod requests beside devices. So it is found once for each change of a node, not for each
kind of pod. A kind of pod takes the limits for scores, and finds the score of a node when its limit is the best.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from heapq import heappop, heappush, heapreplace
from typing import NamedTuple
from weakref import WeakValueDictionary

from dralloc.scheduler.contract import ClusterView
from dralloc.scheduler.decide.device_judge import DeviceJudge
from dralloc.scheduler.decide.fitting_nodes import HEAP_SLACK
from dralloc.scheduler.decide.node_masks import FitMask
from dralloc.scheduler.decide.node_scores import RawScores, normalized
from dralloc.scheduler.decide.placement_strategy import LimitedScorer, Scoring
from dralloc.scheduler.state.change_log import ChangeLog
from dralloc.scheduler.state.node_state import NodeState

# The negative limit or score, the rank, the name and the number of a node.
_Entry = tuple[int, int, str, int]


class RankedNode(NamedTuple):
    node: NodeState
    raw: RawScores
    score: int


class ScoredNodes:
    """The nodes that fit one kind of pod, with the best at hand: by their scores, or by their limits until these are the best."""

    def __init__(self, mask: FitMask, scorer: Callable[[NodeState], int]) -> None:
        self._mask = mask
        self._scorer = scorer
        self._read = -1
        self._basis: object = None
        # By number: the present entries. Others in the heaps are skipped when they surface.
        self._entries: dict[int, _Entry] = {}
        self._limited: set[int] = set()
        self._heaps: dict[RawScores, list[_Entry]] = {}

    def catch_up(self, limits: SharedLimits, changes: ChangeLog) -> None:
        fitting = self._mask.left()
        if self._basis is not limits.basis or not changes.is_known_since(self._read):
            self._entries, self._limited, self._heaps = {}, set(), {}
            for entry in limits.entries.values():
                if fitting >> entry[-1] & 1:
                    self._add(entry)
        else:
            numbers = self._mask.rooms.numbers
            for name in {*changes.changed.since(self._read), *changes.worsened.since(self._read)}:
                number = numbers[name]
                if fitting >> number & 1:
                    self._add(limits.entries[number])
                elif number in self._entries:
                    del self._entries[number]
        self._read, self._basis = changes.next, limits.basis

    def _add(self, limit: _Entry) -> None:
        number = limit[-1]
        self._limited.add(number)
        self._entries[number] = limit
        raw = self._mask.admitted.raw_of(number)
        heap = self._heaps.setdefault(raw, [])
        heappush(heap, limit)
        if len(heap) > HEAP_SLACK * (len(self._entries) + HEAP_SLACK):
            self._heaps[raw] = sorted([each for each in heap if self._entries.get(each[-1]) is each])

    def best(self, nodes: Mapping[str, NodeState], scale: int) -> RankedNode | None:
        found = {raw: entry for raw in self._heaps if (entry := self._top(raw, nodes)) is not None}
        if not found:
            return None
        values = normalized(found, scale)
        raw = max(found, key=lambda raw: (values[raw] - found[raw][0], -found[raw][1], found[raw][2]))
        negative, _, name, _ = found[raw]
        return RankedNode(nodes[name], raw, -negative)

    def _top(self, raw: RawScores, nodes: Mapping[str, NodeState]) -> _Entry | None:
        heap, entries, limited = self._heaps[raw], self._entries, self._limited
        while heap:
            entry = heap[0]
            _, rank, name, number = entry
            if entries.get(number) is not entry:
                heappop(heap)
            elif number in limited:
                limited.discard(number)
                entries[number] = rated = (-self._scorer(nodes[name]), rank, name, number)
                heapreplace(heap, rated)
            else:
                return entry
        return None


class SharedLimits:
    """The limits of the nodes whose devices serve the demand of the mask. `scorer` is that of any pod with the demand."""

    def __init__(self, scorer: LimitedScorer, scoring: Scoring, mask: FitMask, view: ClusterView) -> None:
        self._scorer = scorer
        self._scoring = scoring
        self._served = mask.served
        self._rooms = mask.rooms
        self._view = view
        self._restart()

    def _restart(self) -> None:
        self._read = self._view.changes.next
        self.basis = self._scoring.basis
        # By number.
        self.entries: dict[int, _Entry] = {}
        for name, node in self._view.nodes.items():
            self._update(self._rooms.numbers[name], node)

    def catch_up(self) -> None:
        """After the mask has caught up."""
        changes, read = self._view.changes, self._read
        if not changes.is_known_since(read) or self.basis is not self._scoring.basis:
            self._restart()
            return
        self._read = changes.next
        nodes = self._view.nodes
        for name in {*changes.changed.since(read), *changes.worsened.since(read)}:
            self._update(self._rooms.numbers[name], nodes.get(name))

    def _update(self, number: int, node: NodeState | None) -> None:
        if node is not None and (self._served is None or self._served.has(node, number)):
            limit = self._scorer.limit(node, self._view.snapshot)
            self.entries[number] = -limit, node.rank, node.name, number
        else:
            self.entries.pop(number, None)


class LimitIndex:
    """The limits of one view, shared by pods with the same demand and strategy."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view
        # These live as long as a table uses them.
        self._limits: WeakValueDictionary[tuple[DeviceJudge | None, str], SharedLimits] = WeakValueDictionary()

    def of(
        self, mask: FitMask | None, scorer: object, scoring: Scoring, devices: DeviceJudge | None
    ) -> SharedLimits | None:
        """None for pods that are not compared on all nodes, and for scores without limits."""
        if mask is None or not scoring.strategy.judges_all or not isinstance(scorer, LimitedScorer):
            return None
        key = devices, scoring.strategy.name
        known = self._limits.get(key)
        if known is None:
            mask.catch_up()
            known = self._limits[key] = SharedLimits(scorer, scoring, mask, self._view)
        return known
