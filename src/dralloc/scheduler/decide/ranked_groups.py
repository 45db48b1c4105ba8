"""The best node by the scores of all nodes, with limits of the scores for all pods with the same demand.

A limit does not depend on the resources that a pod requests beside devices. So it is found once for each state of a node, not for each
kind of pod. A kind of pod takes the limits for scores, and finds the score of a group of nodes when its limit is the best.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from heapq import heappop, heappush, heapreplace
from typing import Final, NamedTuple
from weakref import WeakValueDictionary

from dralloc.scheduler.contract import ClusterView
from dralloc.scheduler.decide.device_judge import DeviceJudge
from dralloc.scheduler.decide.local_devices import DeviceUse, LocalDeviceIndex
from dralloc.scheduler.decide.node_groups import AlikeNodes, NodeGroups
from dralloc.scheduler.decide.node_masks import FitMask
from dralloc.scheduler.decide.node_scores import SCORE_MAX, RawScores, normalized
from dralloc.scheduler.decide.placement_strategy import LimitedScorer, NodeScorer, Scoring
from dralloc.scheduler.state.node_state import NodeState

# Entries of groups without nodes are dropped when there are this many times as many entries as groups.
HEAP_SLACK: Final = 2

# The negative limit or score of a group, the rank and the name of its first node, and its number.
_Entry = tuple[int, int, str, int]


class RankedNode(NamedTuple):
    node: NodeState
    raw: RawScores
    score: int


class _Ranking:
    """Groups with nodes of the same raw scores: by their scores, or by their limits until these are the best."""

    def __init__(self, limits: Iterable[_Entry], groups: NodeGroups) -> None:
        self._groups = groups
        # A sorted list is a heap. Entries in it that are not those of `entries` are skipped when they surface.
        self.heap = sorted(limits)
        # By the number of the group.
        self.entries = {entry[-1]: entry for entry in self.heap}
        self.limited = set(self.entries)

    def take(self, limit: _Entry) -> None:
        """Notes that the group has changed; the score of its nodes has not."""
        _, rank, name, number = limit
        known = self.entries.get(number)
        if known is None:
            self.limited.add(number)
            self._put(limit)
        elif (rank, name) < known[1:3]:
            self._put((known[0], rank, name, number))

    def _put(self, entry: _Entry) -> None:
        self.entries[entry[-1]] = entry
        heappush(self.heap, entry)
        if len(self.heap) > HEAP_SLACK * (len(self._groups) + HEAP_SLACK):
            self.entries = _without_empty(self.entries, self._groups)
            self.limited &= self.entries.keys()
            self.heap = sorted(self.entries.values())

    def replace_top(self, entry: _Entry) -> None:
        self.entries[entry[-1]] = entry
        heapreplace(self.heap, entry)

    def drop_top(self) -> None:
        entry = heappop(self.heap)
        if self.entries.get(entry[-1]) is entry:
            del self.entries[entry[-1]]


class RankedGroups:
    """The groups with a node that fits one kind of pod, with the best at hand."""

    def __init__(self, mask: FitMask, limits: SharedLimits, scorer: Callable[[NodeState], int]) -> None:
        self._mask = mask
        self._limits = limits
        self._groups = limits.groups
        self._scorer = scorer
        self._read = -1
        self._basis: object = None
        self._rankings: dict[RawScores, _Ranking] = {}

    def catch_up(self) -> None:
        """After the mask has."""
        self._limits.catch_up()
        groups, limits, by_raw = self._groups, self._limits.entries, self._mask.admitted.by_raw
        if self._basis is not self._limits.basis or self._read < groups.changed.first:
            self._rankings = {
                raw: _Ranking(
                    (limits[group.number] for group in groups if group.number in limits and group.mask & nodes), groups
                )
                for raw, nodes in by_raw.items()
            }
        else:
            for group in groups.changed.since(self._read):
                if (limit := limits.get(group.number)) is not None:
                    for raw, nodes in by_raw.items():
                        if group.mask & nodes:
                            self._ranking(raw).take(limit)
        self._read, self._basis = groups.next, self._limits.basis

    def _ranking(self, raw: RawScores) -> _Ranking:
        known = self._rankings.get(raw)
        return self._rankings.setdefault(raw, _Ranking((), self._groups)) if known is None else known

    def best(self, nodes: Mapping[str, NodeState], scale: int) -> RankedNode | None:
        tops = ((raw, self._top(raw, ranking, nodes)) for raw, ranking in self._rankings.items())
        found = {raw: entry for raw, entry in tops if entry is not None}
        if not found:
            return None
        values = normalized(found, scale)
        raw = max(found, key=lambda raw: (values[raw] - found[raw][0], -found[raw][1], found[raw][2]))
        negative, _, name, _ = found[raw]
        return RankedNode(nodes[name], raw, -negative)

    def _top(self, raw: RawScores, ranking: _Ranking, nodes: Mapping[str, NodeState]) -> _Entry | None:
        allowed = self._mask.admitted.by_raw.get(raw, 0)
        while ranking.heap:
            entry = ranking.heap[0]
            negative, rank, name, number = entry
            if ranking.entries.get(number) is not entry:
                ranking.drop_top()
                continue
            group = self._groups.get(number)
            first = self._mask.first_of(group, allowed) if group is not None else None
            if first is None:
                ranking.drop_top()
            elif first.name != name:
                ranking.replace_top((negative, first.rank, first.name, number))
            elif number in ranking.limited:
                ranking.limited.discard(number)
                ranking.replace_top((-self._scorer(nodes[name]), rank, name, number))
            else:
                return entry
        return None


class SharedLimits:
    """The limits of the groups with a node whose devices serve the demand of the mask."""

    def __init__(
        self, scorer: NodeScorer, scoring: Scoring, mask: FitMask, groups: NodeGroups, view: ClusterView
    ) -> None:
        self._limit = scorer.limit if isinstance(scorer, LimitedScorer) else None
        self._most = SCORE_MAX * scoring.strategy.scale
        self._scoring = scoring
        self._served = mask.served
        self.groups = groups
        self._view = view
        self._read = -1
        self.basis: object = None
        # By the number of the group.
        self.entries: dict[int, _Entry] = {}

    def catch_up(self) -> None:
        """After the mask has."""
        groups = self.groups
        groups.catch_up()
        if self._read < groups.changed.first or self.basis is not self._scoring.basis:
            self.entries = {}
            changed: Iterable[AlikeNodes] = iter(groups)
        else:
            changed = groups.changed.since(self._read)
        for group in changed:
            self._update(group)
        if len(self.entries) > HEAP_SLACK * (len(groups) + HEAP_SLACK):
            self.entries = _without_empty(self.entries, groups)
        self._read, self.basis = groups.next, self._scoring.basis

    def _update(self, group: AlikeNodes) -> None:
        first = self._served.first_of(group, group.mask) if self._served is not None else group.first_in(group.mask)
        if first is None:
            self.entries.pop(group.number, None)
            return
        known = self.entries.get(group.number)
        negative = known[0] if known is not None else -self._limit_on(self._view.nodes[first.name])
        self.entries[group.number] = negative, first.rank, first.name, group.number

    def _limit_on(self, node: NodeState) -> int:
        return self._limit(node, self._view.snapshot) if self._limit is not None else self._most


def _without_empty(entries: Mapping[int, _Entry], groups: NodeGroups) -> dict[int, _Entry]:
    """Without groups that have no nodes any more."""
    return {number: entry for number, entry in entries.items() if groups.get(number) is not None}


class LimitIndex:
    """The limits of one view, shared by pods with the same demand and strategy."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view
        # Nodes that are alike together, and each node for itself.
        self._groups: dict[bool, NodeGroups] = {}
        # These live as long as a table uses them.
        self._limits: WeakValueDictionary[tuple[DeviceJudge | None, str], SharedLimits] = WeakValueDictionary()

    def of(self, mask: FitMask, scorer: NodeScorer, scoring: Scoring, devices: DeviceJudge | None) -> SharedLimits:
        key = devices, scoring.strategy.name
        known = self._limits.get(key)
        if known is None:
            # Which devices a search finds may depend on more than what is left of them.
            is_alike = scoring.strategy.by_amounts and (devices is None or DeviceUse.of(devices).plain is not None)
            groups = self._groups_of(mask, scoring.context.local if is_alike else None)
            known = self._limits[key] = SharedLimits(scorer, scoring, mask, groups, self._view)
        return known

    def _groups_of(self, mask: FitMask, local: LocalDeviceIndex | None) -> NodeGroups:
        known = self._groups.get(local is not None)
        if known is None:
            known = self._groups[local is not None] = NodeGroups(self._view, mask.rooms, local)
        return known
