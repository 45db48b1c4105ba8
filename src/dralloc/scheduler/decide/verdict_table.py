"""For one shape of pod: what every node says, kept up to date by what changes, and the best of them at hand.

A pod of a known shape costs what has changed since the last one, not a search on every node. Three things keep it so:

- Only nodes that changed are judged again. A pool that few nodes see counts as a change of these nodes. Where many see it,
  a verdict is checked when it is about to be used: giving out devices makes no verdict better, so an old one is a bound.
  Giving them back does: nodes that could do better are looked at again, the emptiest first.
- A new shape is not put to all nodes of a large cluster at once. As in Kubernetes, a number of nodes that fit is enough;
  the others are looked at little by little, by the pods that follow.
- Nodes that fit wait in heaps, one for each combination of the scores that mean something only beside the other nodes'.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from msgspec import Struct

from dralloc.allocator.allocate import score_max
from dralloc.devices.identity import PoolId
from dralloc.scheduler.decide.node_scores import Raw, compared
from dralloc.scheduler.decide.node_verdicts import Faulty, Fits, Judge, Lacking, Verdict
from dralloc.scheduler.decide.pod_requirements import Ask
from dralloc.scheduler.reasons import Reasons, plugins
from dralloc.scheduler.state.change_log import EverythingChanged, NodeChanged, PoolFreed, PoolTaken
from dralloc.scheduler.state.cluster_state import ClusterState
from dralloc.scheduler.state.node_state import NodeState


def enough_nodes(nodes: int) -> int:
    """How many nodes that fit a pod is compared on, as in Kubernetes."""
    if nodes < 100:
        return nodes
    percentage = max(50 - nodes // 125, 5)
    return max(nodes * percentage // 100, 100)


@dataclass(frozen=True, slots=True)
class Diligence:
    """How much is looked at beyond what is needed.

    When a pool changes that at most `few` nodes see, all of them are judged again at once. `enough` of all nodes must fit;
    `extra` more are looked at by each pod, so that in the end all are known.
    """

    few: int = 64
    enough: Callable[[int], int] = enough_nodes
    extra: int = 2


DEFAULT_DILIGENCE: Final = Diligence()


class Choice(Struct, frozen=True, gc=False):
    node: NodeState
    fits: Fits


class Table:
    """`start` is where in the list of nodes to begin, so that different shapes do not all crowd the first ones."""

    _summary: tuple[str, frozenset[str]] | None

    def __init__(
        self, ask: Ask, cluster: ClusterState, *, start: int = 0, diligence: Diligence = DEFAULT_DILIGENCE
    ) -> None:
        self.ask = ask
        self._diligence = diligence
        self.judge = Judge(ask)
        self._reasons = Reasons(ask)
        self._cluster = cluster
        self._only = ask.only_nodes()
        self._devices_max = score_max(ask.demand) if ask.demand is not None else 0
        self._start = start
        self._restart()

    def __len__(self) -> int:
        return len(self._verdicts) + len(self._unseen)

    @property
    def verdicts(self) -> Mapping[str, Verdict]:
        """What the nodes looked at so far say. Where no node was chosen, these are all nodes that can be meant."""
        return self._verdicts

    @property
    def fault(self) -> Faulty | None:
        """What is wrong with the ask. One node that says so is enough: Kubernetes ends an attempt that meets it."""
        return next(iter(self._faulty.values()), None)

    def why_not(self) -> tuple[str, frozenset[str]]:
        """Why no node was chosen, and the plugins that said no."""
        if self._summary is None or not self._reasons.are_complete(self._verdicts):
            message = self._reasons.summary(self._verdicts, self._cluster.nodes, self._cluster.snapshot)
            self._summary = message, plugins(self._verdicts.values())
        return self._summary

    def best(self) -> Choice | None:
        """The best node for a pod of this shape, if one fits."""
        self._catch_up()
        self._look_further()
        while not self._faulty and (name := self._best_name()) is not None:
            node, verdict = self._cluster.nodes[name], self._verdicts[name]
            assert isinstance(verdict, Fits), "only nodes that fit are in the heaps"
            if self.judge.is_current(verdict, node, self._cluster.snapshot):
                return Choice(node, verdict)
            self._judge(name)
            self._look_further()
        return None

    # --- Keeping up -------------------------------------------------------------------------------------------------

    def _restart(self) -> None:
        names = list(self._cluster.nodes) if self._only is None else sorted(self._only & self._cluster.nodes.keys())
        start = self._start % len(names) if names else 0
        self._unseen = deque((*names[start:], *names[:start]))
        self._read = self._cluster.changes.next
        self._verdicts: dict[str, Verdict] = {}
        # Nodes that fit and may do better by now, among the unseen.
        self._outdated: set[str] = set()
        self._faulty: dict[str, Faulty] = {}
        self._summary = None
        self._numbers: Counter[str] = Counter()
        self._seen_by: dict[PoolId, set[str]] = {}
        self._heaps: dict[Raw, list[tuple[int, int, str, int]]] = {}
        self._fitting: Counter[Raw] = Counter()

    def _catch_up(self) -> None:
        changes = self._cluster.changes.since(self._read)
        if changes is None:
            self._restart()
            return
        self._read = self._cluster.changes.next
        stale: dict[str, None] = {}
        freed: dict[PoolId, None] = {}
        for change in changes:
            match change:
                case NodeChanged(name):
                    stale[name] = None
                case PoolTaken(pool_id) | PoolFreed(pool_id):
                    concerned = self._seen_by.get(pool_id, set())
                    if len(concerned) <= self._diligence.few:
                        stale.update(dict.fromkeys(concerned))
                    elif isinstance(change, PoolFreed):
                        freed[pool_id] = None
                case EverythingChanged():
                    self._restart()
                    return
        for name in stale:
            self._judge(name)
        for pool_id in freed:
            self._look_again(self._seen_by[pool_id])

    def _look_again(self, names: Iterable[str]) -> None:
        """Nodes whose devices did not do may do now, and those that do may serve an earlier alternative."""
        lacking: list[str] = []
        improvable: list[tuple[int, int, str, Raw]] = []
        for name in names:
            match self._verdicts.get(name):
                case Lacking():
                    lacking.append(name)
                case Fits(raw, emptiness) if raw.devices < self._devices_max:
                    improvable.append((-emptiness, self._cluster.nodes[name].rank, name, raw))
        for name in lacking:
            self._remove(name)
            self._unseen.append(name)
        self._improve(improvable)

    def _improve(self, heap: list[tuple[int, int, str, Raw]]) -> None:
        """Judge nodes that fit once more, the emptiest first, and the others by and by.

        One that has come to do as well as can be is as good as any that differ from it in their devices alone.
        """
        heapq.heapify(heap)
        everywhere = len(self._cluster.nodes)
        left = everywhere if self._diligence.enough(everywhere) == everywhere else self._diligence.few
        settled: set[Raw] = set()
        later: list[str] = []
        while heap and left:
            *_, name, raw = heapq.heappop(heap)
            best = raw._replace(devices=self._devices_max)
            if best in settled:
                later.append(name)
                continue
            left -= 1
            self._judge(name)
            verdict = self._verdicts.get(name)
            if isinstance(verdict, Fits) and verdict.raw == best:
                settled.add(best)
        later += [name for *_, name, _ in heap]
        new = [name for name in later if name not in self._outdated]
        self._outdated.update(new)
        self._unseen.extendleft(reversed(new))

    def _look_further(self) -> None:
        """Judge nodes that were not looked at until enough fit, and a few more."""
        wanted = self._diligence.enough(len(self._cluster.nodes))
        extra = self._diligence.extra
        while self._unseen and (extra > 0 or self._fitting.total() < wanted):
            if self._fitting.total() >= wanted:
                extra -= 1
            name = self._unseen.popleft()
            if name not in self._verdicts or name in self._outdated:
                self._judge(name)

    def _judge(self, name: str) -> None:
        self._remove(name)
        node = self._cluster.nodes.get(name)
        if node is None or (self._only is not None and name not in self._only):
            return
        verdict = self._verdicts[name] = self.judge.verdict(node, self._cluster.snapshot)
        for pool_id in self.judge.pools(node, self._cluster.snapshot):
            self._seen_by.setdefault(pool_id, set()).add(name)
        if isinstance(verdict, Faulty):
            self._faulty[name] = verdict
        elif isinstance(verdict, Fits):
            self._fitting[verdict.raw] += 1
            entry = (-verdict.emptiness, node.rank, name, self._numbers[name])
            heapq.heappush(self._heaps.setdefault(verdict.raw, []), entry)

    def _remove(self, name: str) -> None:
        """Drop the verdict; its entry in a heap is passed over when it surfaces."""
        self._numbers[name] += 1
        self._summary = None
        self._outdated.discard(name)
        self._faulty.pop(name, None)
        verdict = self._verdicts.pop(name, None)
        if isinstance(verdict, Fits):
            self._fitting[verdict.raw] -= 1
            if not self._fitting[verdict.raw]:
                del self._fitting[verdict.raw]
                del self._heaps[verdict.raw]

    # --- Choosing ---------------------------------------------------------------------------------------------------

    def _best_name(self) -> str | None:
        values = compared(self._fitting)
        tops = ((self._top(raw), value) for raw, value in values.items())
        best = max(((value - negative, -rank, name) for (negative, rank, name), value in tops), default=None)
        return best[2] if best is not None else None

    def _top(self, raw: Raw) -> tuple[int, int, str]:
        heap = self._heaps[raw]
        while True:
            negative, rank, name, number = heap[0]
            if self._numbers[name] == number:
                return negative, rank, name
            heapq.heappop(heap)
