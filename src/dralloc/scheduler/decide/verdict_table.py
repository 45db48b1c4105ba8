"""For one kind of pod: the verdicts of all nodes, updated by changes of the cluster, with the best node at hand.

A pod with known requirements costs what has changed since the last such pod, not a search on every node:

- Only nodes that changed are judged again, and of those that got fuller only the ones that fitted. Where masks tell which nodes
  fit (`node_masks`), nodes that do not are judged when their reasons are asked for; and where the strategy's score only falls with
  load, a node that got fuller keeps its score as an upper bound until it is the best.
- A change of a pool that few nodes see counts as a change of these nodes. Where many nodes see it, a verdict is checked when it
  is about to be used: allocating devices improves no verdict, so that a stale verdict is an upper bound. Deallocating may improve
  some: these nodes are judged again, the best first.
- New requirements are not judged on all nodes of a large cluster at once. As in Kubernetes, a number of nodes that fit is
  enough; later pods judge the others little by little.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Container, Iterable, Mapping

from msgspec import Struct

from dralloc.devices.allocator.allocate import score_max
from dralloc.devices.allocator.diagnosis.reasons import ReasonGroup
from dralloc.scheduler.contract import ClusterView
from dralloc.scheduler.decide.device_judge import DeviceJudge
from dralloc.scheduler.decide.extended_supply import ExtendedSupplies
from dralloc.scheduler.decide.fitting_nodes import FittingNodes
from dralloc.scheduler.decide.mask_reasons import groups_and_plugins
from dralloc.scheduler.decide.node_masks import FitMask
from dralloc.scheduler.decide.node_reasons import NodeReasons, plugins
from dralloc.scheduler.decide.node_scores import RawScores, normalized
from dralloc.scheduler.decide.node_verdicts import (
    Faulty,
    Fits,
    Lacking,
    NodeJudge,
    NodeVerdict,
    OutOfReach,
    Unfit,
    overruled,
)
from dralloc.scheduler.decide.offer_verdicts import OfferJudge
from dralloc.scheduler.decide.placement_rules import PlacementRules
from dralloc.scheduler.decide.placement_strategy import Scoring
from dralloc.scheduler.decide.pod_requirements import PodRequirements
from dralloc.scheduler.decide.ranked_groups import LimitIndex, RankedGroups
from dralloc.scheduler.decide.search_effort import DEFAULT_EFFORT, SearchEffort
from dralloc.scheduler.decide.verdict_changes import VerdictChanges
from dralloc.scheduler.state.node_state import NodeState


class NodeChoice(Struct, frozen=True, gc=False):
    node: NodeState
    fits: Fits


class VerdictTable:
    """`start` is the index of the node to begin with, so that tables do not all begin with the same nodes.

    `mask` has the nodes that fit, if a mask can tell it.
    """

    def __init__(
        self,
        requirements: PodRequirements,
        view: ClusterView,
        devices: DeviceJudge | None,
        scoring: Scoring,
        offers: OfferJudge,
        *,
        mask: FitMask | None = None,
        limits: LimitIndex | None = None,
        extended: ExtendedSupplies | None = None,
        start: int = 0,
        effort: SearchEffort = DEFAULT_EFFORT,
    ) -> None:
        self.requirements = requirements
        self.offers = offers
        self.devices = devices
        self._effort = effort
        self.judge = NodeJudge(requirements, devices, scoring, offers, extended)
        self._mask = mask
        self._view = view
        self._only = requirements.only_nodes()
        self._devices_max = score_max(requirements.demand) if requirements.demand is not None else 0
        self._judges_all = scoring.strategy.judges_all
        self._falls_with_load = scoring.strategy.falls_with_load
        self._scale = scoring.strategy.scale
        self._scoring = scoring
        self._start = start
        self._ranked: RankedGroups | None = None
        if mask is not None and limits is not None and self._judges_all:
            scorer = self.judge.scorer
            shared = limits.of(mask, scorer, scoring, devices)
            self._ranked = RankedGroups(mask, shared, lambda node: scorer.score(node, view.snapshot))
        self._restart()

    def uses_any(self, judges: Container[object]) -> bool:
        """True if it asks one of these judges of offers or devices."""
        return self.offers in judges or self.devices in judges

    def __len__(self) -> int:
        return len(self._verdicts) + len(self._unseen)

    def fault(self, rules: PlacementRules | None = None) -> Faulty | None:
        """An error in the claims. One node that meets it is enough: Kubernetes ends an attempt that meets an error."""
        if rules is None:
            return next(iter(self._faulty.values()), None)
        met = (fault for name, fault in self._faulty.items() if rules.misfit(self._view.nodes[name]) is None)
        return next(met, None)

    def reasons(self, rules: PlacementRules | None = None) -> tuple[tuple[ReasonGroup, ...], frozenset[str]]:
        """Why no node was chosen, and the Kubernetes plugins that reject the nodes."""
        view = self._view
        if rules is None and self._mask is not None and self._mask.is_exact:
            return groups_and_plugins(self._mask)
        self._explain()
        if rules is None:
            return self._reasons.groups(self._verdicts, view.nodes, view.snapshot), self._reasons.plugins()
        verdicts = overruled(self._verdicts, rules, view.nodes)
        return self._reasons.groups_under(verdicts, view.nodes, view.snapshot), plugins(verdicts.values())

    def best(self, rules: PlacementRules | None = None) -> NodeChoice | None:
        """The best node for the pod, if one fits."""
        mask = self._mask
        if mask is not None:
            mask.catch_up()
            if rules is None and mask.is_exact:
                if mask.is_hopeless():
                    return None
                choice = self._best_ranked(self._ranked) if self._ranked is not None else None
                # Asking for nodes may have shown that masks cannot tell.
                if self._ranked is not None and mask.is_exact:
                    return choice
        self._catch_up()
        if rules is not None:
            self._judge_fuller()
            return self._best_under(rules)
        self._look_further()
        while (name := self._best_known()) is not None:
            if (choice := self._confirmed(name, self._verdicts[name])) is not None:
                return choice
            self._look_further()
        return None

    def _best_ranked(self, ranked: RankedGroups) -> NodeChoice | None:
        ranked.catch_up()
        found = ranked.best(self._view.nodes, self._scale)
        return NodeChoice(found.node, Fits(found.raw, found.score)) if found is not None else None

    def _best_known(self) -> str | None:
        """The best of the nodes that were judged, as far as is known without a search for devices."""
        if self._fuller and not self._is_bounded():
            self._judge_fuller()
        return self._fitting.best(self._fuller, self._score_again) if not self._faulty else None

    def _score_again(self, name: str) -> Fits:
        """Gives a node that fits its present score. Masks tell that it fits, so that devices add nothing to it."""
        node, known = self._view.nodes[name], self._verdicts[name]
        assert type(known) is Fits, "only nodes that fit are scored"
        self._fuller.discard(name)
        score = self.judge.scorer.score(node, self._view.snapshot)
        if score != known.strategy_score:
            self._verdicts[name] = known = Fits(known.raw, score)
        return known

    def _confirmed(self, name: str, expected: NodeVerdict) -> NodeChoice | None:
        """The choice of the node if it is as good as expected; otherwise None, and the node has a new verdict."""
        assert isinstance(expected, Fits), "the best node fits"
        node, snapshot = self._view.nodes[name], self._view.snapshot
        if self._fits_exactly() or self.judge.is_current(expected, node, snapshot):
            return NodeChoice(node, expected)
        verdict = self.judge.verdict(node, snapshot)
        if isinstance(verdict, Fits) and (verdict.raw, verdict.strategy_score) == (
            expected.raw,
            expected.strategy_score,
        ):
            self._verdicts[name] = verdict
            return NodeChoice(node, verdict)
        self._take(node, verdict)
        return None

    # --- Keeping up -------------------------------------------------------------------------------------------------

    def _restart(self) -> None:
        names = list(self._view.nodes) if self._only is None else sorted(self._only & self._view.nodes.keys())
        start = self._start % len(names) if names else 0
        self._unseen = deque((*names[start:], *names[:start]))
        self._changes = VerdictChanges(self._view.changes, self.requirements, self._effort)
        self._basis = self._scoring.basis
        self._verdicts: dict[str, NodeVerdict] = {}
        # Nodes in `_unseen` that fit and may have a better verdict by now.
        self._outdated: set[str] = set()
        # Nodes that have less left than when they were judged.
        self._fuller: set[str] = set()
        # Nodes that do not fit, and whose verdict, if there is one, may have another reason by now.
        self._unexplained: set[str] = set()
        self._faulty: dict[str, Faulty] = {}
        self._reasons = NodeReasons(self.requirements, self.judge)
        self._fitting = FittingNodes(self._verdicts, self._view, self._scale, self._mask)

    def _catch_up(self) -> None:
        if self._basis is not self._scoring.basis or (new := self._changes.read()) is None:
            self._restart()
            return
        self._fuller |= new.worsened
        for name in new.improved:
            self._judge(name)
        self._drop_full()
        if new.improvable or not self._is_bounded():
            self._judge_fuller()
        for names in new.improvable:
            self._look_again(names)

    def _is_bounded(self) -> bool:
        """True if all nodes with a verdict that they fit do fit, and none of them is better than its verdict."""
        return self._falls_with_load and self._fits_exactly()

    def _fits_exactly(self) -> bool:
        """True if the mask tells which nodes fit."""
        return self._mask is not None and self._mask.is_exact

    def _drop_full(self) -> None:
        """Drops the verdicts of nodes that fitted and do not any more."""
        if self._mask is not None and self._mask.is_exact:
            for name in self._fitting.others_than(self._mask.left()):
                self._exclude(name)

    def _exclude(self, name: str) -> None:
        if name in self._verdicts:
            self._remove(name)
        self._unexplained.add(name)

    def _judge_fuller(self) -> None:
        for name in tuple(self._fuller):
            self._judge_fuller_node(name)

    def _judge_fuller_node(self, name: str) -> None:
        """Takes into account that less is left on the node."""
        self._fuller.discard(name)
        match self._verdicts.get(name):
            case Fits() | Faulty():
                # A device with an error is no longer an obstacle once it is in use.
                node = self._view.nodes.get(name)
                if node is None:
                    self._remove(name)
                else:
                    self._expect(node)
            case Unfit() | OutOfReach() | Lacking():
                self._unexplained.add(name)
            case None:
                pass

    def _explain(self) -> None:
        """Judges the nodes again whose reasons may have changed."""
        self._judge_fuller()
        unexplained, self._unexplained = sorted(self._unexplained), set()
        for name in unexplained:
            node = self._view.nodes[name]
            verdict = self.judge.verdict(node, self._view.snapshot)
            # Verdicts about the node itself are one object as long as the reason is the same.
            if verdict is not self._verdicts.get(name):
                self._take(node, verdict)

    def _look_again(self, names: Iterable[str]) -> None:
        """Schedules these nodes for a new verdict: more of them may fit, or serve an earlier alternative."""
        lacking: list[str] = []
        improvable: list[tuple[int, int, str, RawScores]] = []
        for name in names:
            match self._verdicts.get(name):
                case Lacking():
                    lacking.append(name)
                case Fits(raw, score) if raw.devices < self._devices_max:
                    improvable.append((-score, self._view.nodes[name].rank, name, raw))
        for name in lacking:
            self._remove(name)
            self._unseen.append(name)
        self._improve(improvable)

    def _improve(self, heap: list[tuple[int, int, str, RawScores]]) -> None:
        """Judge nodes that fit again, the best first; those that are not needed now come later.

        Once a node has the best device score, others with the same raw scores otherwise cannot be better.
        """
        heapq.heapify(heap)
        everywhere = len(self._view.nodes)
        left = everywhere if self._effort.enough(everywhere) == everywhere else self._effort.few_max
        settled: set[RawScores] = set()
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

    def _enough(self) -> int:
        nodes = len(self._view.nodes)
        return nodes if self._judges_all else self._effort.enough(nodes)

    def _look_further(self) -> None:
        """Judge unseen nodes until enough fit, and a few more."""
        if not self._unseen:
            return
        wanted = self._enough()
        extra = self._effort.extra
        while self._unseen:
            if self._fitting.total >= wanted:
                if extra <= 0:
                    return
                extra -= 1
            name = self._unseen.popleft()
            if name not in self._verdicts or name in self._outdated:
                self._judge(name)

    def _judge(self, name: str) -> None:
        """What to expect of a node is enough until it is about to be chosen."""
        node = self._view.nodes.get(name)
        if node is None or (self._only is not None and name not in self._only):
            self._remove(name)
            return
        self._expect(node)
        if not self._fits_exactly():
            self._changes.watch(name, self.judge.pools(node, self._view.snapshot))

    def _expect(self, node: NodeState) -> None:
        """Judges the node, as far as is possible without a search for devices."""
        mask, snapshot = self._mask, self._view.snapshot
        if mask is not None and mask.is_exact:
            fits = mask.has(node)
            # Asking for the node may have shown that masks cannot tell.
            if fits and mask.is_exact:
                self._take(node, self.judge.fits(node, snapshot))
                return
            if mask.is_exact:
                self._exclude(node.name)
                return
        self._take(node, self.judge.expectation(node, snapshot))

    def _take(self, node: NodeState, verdict: NodeVerdict) -> None:
        """Notes the verdict. Only nodes that fit and whose scores change need a place in the heaps."""
        name = node.name
        known = self._verdicts.get(name)
        if known is None:
            self._unexplained.discard(name)
            if type(verdict) is not Fits:
                self._reasons.pending[name] = None
            self._add(name, verdict)
        elif type(verdict) is Fits and type(known) is Fits and known.raw == verdict.raw:
            self._outdated.discard(name)
        else:
            self._remove(name)
            self._add(name, verdict)
            known = None
        self._verdicts[name] = verdict
        self._fuller.discard(name)
        if type(verdict) is Fits and (known is None or known.strategy_score != verdict.strategy_score):
            self._fitting.rate(node, verdict)

    def _add(self, name: str, verdict: NodeVerdict) -> None:
        if isinstance(verdict, Faulty):
            self._faulty[name] = verdict
        elif isinstance(verdict, Fits):
            self._fitting.add(name, verdict.raw)

    def _remove(self, name: str) -> None:
        self._reasons.pending[name] = None
        self._outdated.discard(name)
        self._fuller.discard(name)
        self._unexplained.discard(name)
        self._faulty.pop(name, None)
        verdict = self._verdicts.pop(name, None)
        if isinstance(verdict, Fits):
            self._fitting.remove(name, verdict.raw)

    # --- Choosing ---------------------------------------------------------------------------------------------------

    def _best_under(self, rules: PlacementRules) -> NodeChoice | None:
        """The best node under the rules. They differ from pod to pod, so every node that fits is looked at."""
        nodes = self._view.nodes
        allowed = self._allowed_by(rules)
        while allowed and self.fault(rules) is None:
            values = normalized({verdict.raw for verdict in allowed.values()}, self._scale)
            added = rules.scores([nodes[name] for name in allowed])
            name = max(allowed, key=lambda each: self._rating(each, allowed[each], values, added))
            if (choice := self._confirmed(name, allowed[name])) is not None:
                return choice
            allowed = self._allowed_by(rules)
        return None

    def _rating(
        self, name: str, fits: Fits, values: Mapping[RawScores, int], added: Mapping[str, int]
    ) -> tuple[int, int, str]:
        """The larger, the better the node: its score, then its rank."""
        score = values[fits.raw] + fits.strategy_score + self._scale * added.get(name, 0)
        return score, -self._view.nodes[name].rank, name

    def _allowed_by(self, rules: PlacementRules) -> dict[str, Fits]:
        """Nodes that fit and that the rules allow. Unseen nodes are judged until there are enough."""
        nodes = self._view.nodes
        allowed = {name: verdict for name, verdict in self._fitting.items() if rules.misfit(nodes[name]) is None}
        wanted = self._enough()
        while self._unseen and len(allowed) < wanted:
            name = self._unseen.popleft()
            if name not in self._verdicts or name in self._outdated:
                self._judge(name)
            verdict = self._verdicts.get(name)
            if isinstance(verdict, Fits) and rules.misfit(nodes[name]) is None:
                allowed[name] = verdict
        return allowed
