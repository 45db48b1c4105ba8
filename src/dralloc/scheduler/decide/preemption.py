"""Which pods to evict so that a pod of higher priority fits: the plan, as a value. Nothing is written here.

The question "does it fit without these pods?" is put to the scheduler's own cycle, on a view of the cluster without them
(`ReducedView`). Pods that are leaving anyway, and claims that only pods hold which are gone, are left out from the beginning: they
are waited for, and no pod is evicted in their place. Nominated pods of lower priority give way without being evicted.

A victim is on the node, holds devices that the node can use, or shares a claim with the pod.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cached_property
from typing import Final

from msgspec import Struct

from dralloc.devices.identity import PoolId
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.scheduling_v1 import PREEMPT_NEVER
from dralloc.scheduler.contract import Placement, PlannedVictim, PreemptionPlan, Rejection
from dralloc.scheduler.decide.cycle import Cycle, SchedulingAttempt
from dralloc.scheduler.decide.node_verdicts import OutOfReach, Unfit
from dralloc.scheduler.decide.preemption_bounds import Lack, NodeBounds, WantedDevices, least_cost, least_cost_of_pods
from dralloc.scheduler.decide.preemption_candidates import VictimCandidate, VictimCandidates, holders, seconds
from dralloc.scheduler.decide.victim_search import Cost, VictimQuestion, VictimSet, VictimUnit, cheapest_victims
from dralloc.scheduler.state.cluster_state import ClusterState
from dralloc.scheduler.state.node_state import EMPTY, NodeState
from dralloc.scheduler.state.placed_pods import PodKey, claims_used_by
from dralloc.scheduler.state.reduced_view import ReducedView

# A terminating pod counts as leaving until this time after its deadline. Later its node seems to be lost.
LEAVING_MAX: Final = timedelta(seconds=60)


class NoPreemption(Struct, frozen=True, gc=False):
    """Why no pod is evicted for the pod; the message is empty if there is no pod that it could preempt."""

    message: str = ""


NOTHING_TO_PREEMPT: Final = NoPreemption()
POLICY_IS_NEVER: Final = NoPreemption("its preemptionPolicy is Never")
NOT_HELPFUL: Final = NoPreemption("no eviction of pods with lower priority would help")


class PreemptionPlanner:
    """`cycle` decides for the cluster as it is."""

    def __init__(self, cluster: ClusterState, cycle: Cycle, candidates: VictimCandidates | None = None) -> None:
        self._cluster = cluster
        self._cycle = cycle
        self._candidates = candidates or VictimCandidates(cluster)

    def plan(self, pod: Pod, now: datetime) -> PreemptionPlan | NoPreemption:
        """The plan for a pod that no node can take now. It is not counted on a nominated node itself."""
        lowest, priority = self._cluster.placed_pods.lowest_priority, pod.spec.priority or 0
        # A nominated pod may wait for pods that are gone while their claims are not released yet.
        if (lowest is None or lowest >= priority) and not pod.status.nominated_node_name:
            return NOTHING_TO_PREEMPT
        if pod.spec.preemption_policy == PREEMPT_NEVER:
            return POLICY_IS_NEVER
        return _PodPreemption(self._cluster, self._cycle, self._candidates, pod, now).plan()

    def without_nominations(self, pod: Pod, now: datetime) -> Placement | None:
        """The placement that takes the room of nominated pods with lower priority, if there are any."""
        lower = lower_nominations(self._cluster, pod)
        if not lower:
            return None
        return self._cycle.on(ReducedView(self._cluster, releases=False).without(lower)).placement(pod, now)

    def awaited(self, pod: Pod, now: datetime) -> Placement | None:
        """What a nominated pod gets on its node once the pods that are leaving are gone; None if it does not fit then."""
        cycle = self._cycle.on(view_for(self._cluster, pod, now))
        attempt = cycle.begin(pod)
        if isinstance(attempt, Rejection):
            return None
        return cycle.place_on(attempt, pod.status.nominated_node_name, now)


def view_for(cluster: ClusterState, pod: Pod, now: datetime) -> ReducedView:
    """The cluster without the pods that leave it, and without nominated pods that give way to the pod."""
    return ReducedView(cluster).without([*leaving_pods(cluster, now), *lower_nominations(cluster, pod)])


def leaving_pods(cluster: ClusterState, now: datetime) -> list[PodKey]:
    """The pods that are terminating and whose nodes seem to be there."""
    latest = now.timestamp() - LEAVING_MAX.total_seconds()
    terminating = cluster.placed_pods.terminating.items()
    return [key for key, placed in terminating if seconds(placed.pod.metadata.deletion_timestamp) >= latest]


def lower_nominations(cluster: ClusterState, pod: Pod) -> list[PodKey]:
    """The nominated pods that give way to the pod."""
    priority = pod.spec.priority or 0
    nominated = cluster.nominated.values()
    return [("", each.uid) for each in nominated if each.priority < priority and each.uid != pod.metadata.uid]


class _PodPreemption:
    """The plan for one pod at one moment."""

    def __init__(
        self, cluster: ClusterState, cycle: Cycle, candidates: VictimCandidates, pod: Pod, now: datetime
    ) -> None:
        self._cluster = cluster
        self._cycle = cycle
        self._candidates = candidates
        self._pod = pod
        self._priority = pod.spec.priority or 0
        self._now = now
        self._budgets = candidates.begin()
        self._own_claims = frozenset(claims_used_by(pod))
        self._view = view_for(cluster, pod, now)
        self._wanted: WantedDevices | None = None
        self._best: VictimSet[Placement] | None = None

    @property
    def _limit(self) -> Cost | None:
        """What victims must cost less than."""
        return self._best.cost if self._best is not None else None

    def plan(self) -> PreemptionPlan | NoPreemption:
        attempt = self._cycle.begin(self._pod)
        if isinstance(attempt, Rejection):
            return NOTHING_TO_PREEMPT
        if (placement := self._fits_soon()) is not None:
            return self._planned(None, placement)
        self._wanted = WantedDevices.of(attempt)
        for node, candidates, bounds in self._promising_nodes(attempt):
            self._best = self._victims_on(node, candidates, bounds, attempt) or self._best
        return self._planned(self._best, self._best.proof) if self._best is not None else NOT_HELPFUL

    def _fits_soon(self) -> Placement | None:
        """The placement that needs no victims because pods are leaving; on the nominated node, if possible."""
        if not self._view.differs:
            return None
        cycle = self._cycle.on(self._view)
        attempt = cycle.begin(self._pod)
        if isinstance(attempt, Rejection):
            return None
        nominated = self._pod.status.nominated_node_name
        there = cycle.place_on(attempt, nominated, self._now) if nominated else None
        return there or cycle.placement(self._pod, self._now)

    def _planned(self, found: VictimSet[Placement] | None, placement: Placement) -> PreemptionPlan:
        placed = self._cluster.placed_pods
        keys = [key for unit in found.units for key in unit.keys] if found is not None else []
        after = self._view.without(keys)
        victims = [pod for key in keys if (pod := placed.find(key)) is not None]
        return PreemptionPlan(
            placement.node,
            tuple(PlannedVictim(each.pod, each.node, tuple(after.frees(each))) for each in victims),
            tuple(sorted(self._view.removed & placed.on_node(placement.node).keys())),
            placement,
            found.cost if found is not None else Cost(),
            found.is_cheapest if found is not None else True,
        )

    # --- One node -----------------------------------------------------------------------------------------------------

    def _victims_on(
        self,
        node: str,
        candidates: Sequence[VictimCandidate],
        bounds: NodeBounds,
        attempt: SchedulingAttempt,
    ) -> VictimSet[Placement] | None:
        def fits(gone: Sequence[VictimUnit]) -> Placement | None:
            return self._placement(self._view.without([key for unit in gone for key in unit.keys]), node, attempt)

        question = VictimQuestion(fits, bounds.needed, self._budgets.allowed)
        return cheapest_victims([candidate.unit for candidate in candidates], question, self._limit)

    def _placement(self, view: ReducedView, node: str, attempt: SchedulingAttempt) -> Placement | None:
        if attempt.rules is None and self._own_claims.isdisjoint(view.claims):
            return self._cycle.place_on(attempt, node, self._now, view)
        # Where other pods are, or what the pod's own claims have, is not as the attempt knows it.
        cycle = self._cycle.on(view)
        begun = cycle.begin(self._pod)
        return cycle.place_on(begun, node, self._now) if not isinstance(begun, Rejection) else None

    # --- All nodes ----------------------------------------------------------------------------------------------------

    def _promising_nodes(
        self, attempt: SchedulingAttempt
    ) -> Iterator[tuple[str, Sequence[VictimCandidate], NodeBounds]]:
        """The nodes where victims may cost less than the best so far, the most promising first.

        At first a node promises that its cheapest pod is enough. When its turn comes, it promises as many of its cheapest pods as it
        lacks devices or resources for; when that comes, its pods are looked at closely.
        """
        sharing = [*self._candidates.users(self._own_claims, self._priority, self._budgets)] if self._own_claims else []
        shared = self._holders_of_shared_pools(attempt)
        # Pods elsewhere, and groups, do not count as pods of the node do.
        is_countable = not sharing and not shared and not self._cluster.pod_groups
        lacks: dict[str, Lack] = {}
        looked_at: dict[str, tuple[Sequence[VictimCandidate], NodeBounds]] = {}
        queue = [*self._first_promises(sharing, shared)]
        heapq.heapify(queue)
        while queue:
            least, rank, name = queue[0]
            if self._limit is not None and least >= self._limit:
                return
            heapq.heappop(queue)
            if name in looked_at:
                yield name, *looked_at.pop(name)
                continue
            node = self._view.nodes[name]
            if name not in lacks:
                lack = self._lack_on(node, attempt, may_be_released=bool(sharing))
                if lack is None:
                    continue
                lacks[name] = lack
                promised = self._promise(lack, name) if is_countable else least
                if promised is None:
                    continue
                if promised > least:
                    heapq.heappush(queue, (promised, rank, name))
                    continue
            found = self._look_at(node, lacks.pop(name), attempt, sharing, shared)
            if found is not None:
                candidates, bounds, needed = found
                looked_at[name] = candidates, bounds
                least = max(least, least_cost([each.unit for each in candidates], needed))
                heapq.heappush(queue, (least, rank, name))

    def _first_promises(
        self, sharing: Sequence[VictimCandidate], shared: Mapping[PoolId, Sequence[VictimCandidate]]
    ) -> Iterator[tuple[Cost, int, str]]:
        anywhere = [_alone(each) for each in (*sharing, *(each for found in shared.values() for each in found))]
        least_anywhere = min(anywhere, default=None)
        for name, node in self._cluster.nodes.items():
            least = self._candidates.least_cost(self._priority, name, self._budgets)
            if least is None or (least_anywhere is not None and least_anywhere < least):
                least = least_anywhere
            if least is not None:
                yield least, node.rank, name

    def _lack_on(self, node: NodeState, attempt: SchedulingAttempt, *, may_be_released: bool) -> Lack | None:
        """What the pod lacks on the node; None if evictions there would not help."""
        if not self._could_take(node, attempt, may_be_released=may_be_released):
            return None
        lack = Lack(attempt, node, self._view.snapshot, self._wanted)
        return lack if not lack.is_hopeless else None

    def _promise(self, lack: Lack, node: str) -> Cost | None:
        """What as many victims as the node must lose at least cost at least; None if it has not so many."""
        lower = [
            placed
            for placed in self._cluster.placed_pods.on_node(node).values()
            if (placed.pod.spec.priority or 0) < self._priority
        ]
        needed = lack.least_number(lower, self._results_max)
        return least_cost_of_pods(lower, needed) if needed is not None and needed <= len(lower) else None

    @cached_property
    def _results_max(self) -> int:
        """The most devices that a claim has."""
        found = (tracked.effective.status.allocation for tracked in self._cluster.claims.all())
        return max((len(each.devices.results) for each in found if each is not None), default=0)

    def _look_at(
        self,
        node: NodeState,
        lack: Lack,
        attempt: SchedulingAttempt,
        sharing: Sequence[VictimCandidate],
        shared: Mapping[PoolId, Sequence[VictimCandidate]],
    ) -> tuple[Sequence[VictimCandidate], NodeBounds, int] | None:
        """The candidates for the node, and how many of them must go at least; None if that would not help."""
        pools = attempt.table.judge.pools(node, self._view.snapshot) if shared else ()
        others = dict.fromkeys((*sharing, *(each for pool in pools for each in shared.get(pool, ()))))
        here = self._candidates.lower_than(self._priority, node.name, self._budgets)
        elsewhere = (each for each in others if all(pod.node != node.name for pod in each.pods))
        candidates = [each for each in (*here, *elsewhere) if lack.is_reduced_by(each)]
        bounds = lack.bounds(candidates)
        needed = bounds.needed(()) if candidates else None
        return (candidates, bounds, needed) if needed is not None else None

    def _could_take(self, node: NodeState, attempt: SchedulingAttempt, *, may_be_released: bool) -> bool:
        """False if the node could not take the pod without any other pods. Claims that it shares may be released."""
        if may_be_released:
            return True
        names = attempt.table.requirements.only_nodes()
        if names is not None and node.name not in names:
            return False
        return not isinstance(attempt.table.judge.verdict_on_node(node.with_load(EMPTY)), Unfit | OutOfReach)

    def _holders_of_shared_pools(self, attempt: SchedulingAttempt) -> Mapping[PoolId, Sequence[VictimCandidate]]:
        """The candidates that hold devices which several nodes can use, by pool."""
        if attempt.table.requirements.demand is None:
            return {}
        snapshot = self._view.snapshot
        pools = frozenset(
            pool_id for pool_id, pool in snapshot.pools.items() if any(not indexed.node_name for indexed in pool.slices)
        )
        if not pools:
            return {}
        return {
            pool_id: [*self._candidates.users(claims, self._priority, self._budgets)]
            for pool_id, claims in holders(pools, snapshot).items()
        }


def _alone(candidate: VictimCandidate) -> Cost:
    """What the candidate costs at least."""
    return least_cost((candidate.unit,), 1)
