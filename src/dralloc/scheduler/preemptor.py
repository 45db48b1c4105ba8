"""Preemption within the scheduler's loop: what a rejected pod may still get, and the nominated pods that wait for their room.

A nominated pod is counted on its node, with the devices that it is going to get (`ClusterState.nominate`). So pods of the same or of
lower priority take nothing of that; pods of higher priority may. Only the node's name is stored; the devices are worked out again by a
new leader.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from typing import Final

from msgspec.structs import replace

from dralloc.devices.identity import ClaimId
from dralloc.kube.pod_v1 import Pod
from dralloc.primitives.clock import Clock
from dralloc.primitives.phrases import counted
from dralloc.primitives.work_allowance import WorkExceeded, work_allowance
from dralloc.scheduler.bind.evictor import Evictor
from dralloc.scheduler.contract import Decision, Placement, PlannedVictim, PreemptionPlan, Rejection
from dralloc.scheduler.decide.cycle import Cycle, SchedulingAttempt
from dralloc.scheduler.decide.gang_cycle import GangCycle, GangDecision, GangRejection, GangRequest
from dralloc.scheduler.decide.gang_preemption import GangPreemptionPlan, plan_for_gang
from dralloc.scheduler.decide.preemption import (
    NOTHING_TO_PREEMPT,
    NoPreemption,
    PreemptionPlanner,
    lower_nominations,
)
from dralloc.scheduler.decide.preemption_candidates import VictimCandidates, group_evicted_with
from dralloc.scheduler.queue.long_decisions import DECISION_WORK
from dralloc.scheduler.report.scheduling_report import SchedulingReport
from dralloc.scheduler.state.cluster_events import ClusterEvent, pod_changed
from dralloc.scheduler.state.cluster_state import ClusterState
from dralloc.scheduler.state.placed_pods import PlacedPod, pod_key

REASONS_MAX: Final = 1000
# What it may take to find out which pods to evict: it cannot go on where it was.
PLAN_WORK: Final = 20 * DECISION_WORK
TAKES_TOO_LONG: Final = NoPreemption("it takes too long to find out which pods to evict")


class Preemptor:
    """`wake` gets the events of what became free when a nomination ends; `names` are the `schedulerName`s of our pods."""

    def __init__(
        self,
        cluster: ClusterState,
        cycle: Cycle,
        evictor: Evictor,
        report: SchedulingReport,
        clock: Clock,
        wake: Callable[[Collection[ClusterEvent]], None],
        names: Collection[str],
    ) -> None:
        self._cluster = cluster
        self._cycle = cycle
        self._candidates = VictimCandidates(cluster)
        self._planner = PreemptionPlanner(cluster, cycle, self._candidates)
        self._evictor = evictor
        self._report = report
        self._clock = clock
        self._wake = wake
        self._names = names
        # Pods with a stored nomination that is not counted yet, by UID.
        self._stored: dict[str, Pod] = {}
        # Why pods with these requirements preempt no other pods.
        self._reasons: OrderedDict[bytes, NoPreemption] = OrderedDict()

    def pod_changed(self, before: Pod | None, after: Pod | None) -> None:
        """Follows stored nominations, also those of other schedulers' pods."""
        for pod in filter(None, (before, after)):
            self._stored.pop(pod.metadata.uid, None)
        if after is None or after.spec.node_name or after.is_finished or after.is_terminating:
            return
        stored, placed = after.status.nominated_node_name, self._cluster.nominated.get(after.metadata.uid)
        if placed is not None and placed.node != stored and after.spec.scheduler_name not in self._names:
            # Its own scheduler has ended or moved it. Of ours, the store may show what was before the newest decision.
            self._wake(self._cluster.withdraw(after.metadata.uid))
            placed = None
        if placed is None and stored:
            self._stored[after.metadata.uid] = after
        elif placed is not None and not stored and before is not None and before.status.nominated_node_name:
            # A late write or a user has removed it: a new attempt stores it again.
            self._wake((pod_changed(pod_key(after)),))

    # --- An attempt -------------------------------------------------------------------------------------------------

    def begin(self, pod: Pod) -> Collection[ClusterEvent]:
        """Prepares the attempt for a pod: nominations are counted, except its own. Returns what its own kept from others."""
        self._stored.pop(pod.metadata.uid, None)
        now = self._clock.now()
        for other in sorted(self._stored.values(), key=lambda each: -(each.spec.priority or 0)):
            del self._stored[other.metadata.uid]
            if (placement := self._planner.awaited(other, now)) is not None:
                self._nominate(other, placement)
        return self._cluster.withdraw(pod.metadata.uid)

    def conclude(self, attempt: SchedulingAttempt, now: datetime) -> Decision:
        """The decision of the cycle; a pod that it rejects may get a node by preemption."""
        pod = attempt.pod
        if node := pod.status.nominated_node_name:
            placement = self._cycle.place_on(attempt, node, now)
            if placement is not None:
                return placement
        decision = self._cycle.conclude(attempt, now)
        if not isinstance(decision, Rejection) or decision.deallocate is not None:
            return decision
        try:
            with work_allowance(PLAN_WORK):
                if (placement := self._planner.without_nominations(pod, now)) is not None:
                    return placement
                plan = self._planner.plan(pod, now)
        except WorkExceeded:
            plan = TAKES_TOO_LONG
        key = self._key(pod, decision)
        if isinstance(plan, PreemptionPlan):
            self._report.preemption_attempted(len(plan.victims))
            message = f"{decision.message}; preemption: {_summary(pod, plan)}"
            return replace(decision, message=message, equivalence_key=None, preemption=plan)
        if plan is not NOTHING_TO_PREEMPT:
            self._report.preemption_attempted(0)
        if key is not None:
            self._remember(key, plan)
        return _explained(decision, plan, key)

    def describe(self, pod: Pod, decision: Decision) -> Decision:
        """The rejection of a pod as its representative's attempt would have worded it."""
        if not isinstance(decision, Rejection) or (key := self._key(pod, decision)) is None:
            return decision
        return _explained(decision, self._reasons.get(key, NOTHING_TO_PREEMPT), key)

    def end(self, pod: Pod, decision: Decision, freed: Collection[ClusterEvent]) -> None:
        """The decision is made and, if it is a placement, assumed. `freed` is what `begin` returned."""
        if isinstance(decision, Placement):
            self._displace(pod)
        elif isinstance(decision, Rejection) and decision.preemption is not None:
            self._nominate(pod, decision.preemption.placement)
            self._displace(pod)
            return
        self._wake(freed)

    def interrupted(self, pod: Pod) -> None:
        """The decision goes on later: until then the pod is counted on its nominated node again."""
        if pod.status.nominated_node_name:
            self._stored[pod.metadata.uid] = pod

    # --- Gangs ------------------------------------------------------------------------------------------------------

    def begin_gang(self, pods: Sequence[Pod]) -> Collection[ClusterEvent]:
        """Prepares the attempt for a gang: its members are not counted on their nominated nodes. Returns what they kept from others."""
        return [event for pod in pods for event in self.begin(pod)]

    def end_gang(self, pods: Sequence[Pod], freed: Collection[ClusterEvent]) -> None:
        """The attempt has ended. `freed` is what `begin_gang` returned."""
        if not any(pod.metadata.uid in self._cluster.nominated for pod in pods):
            self._wake(freed)

    def withdraw_gang(self, pods: Sequence[Pod]) -> tuple[Pod, ...]:
        """The gang cannot be tried: its members keep nothing from others. Returns those whose nominations are stored."""
        for pod in pods:
            self._stored.pop(pod.metadata.uid, None)
            self._wake(self._cluster.withdraw(pod.metadata.uid))
        return tuple(pod for pod in pods if pod.status.nominated_node_name)

    def decide_gang(self, cycle: GangCycle, request: GangRequest) -> GangDecision:
        """The decision of the cycle. Nominated pods of lower priority give way to a gang that fits without them."""
        now = self._clock.now()
        decision = cycle.decide(request, now)
        lower = lower_nominations(self._cluster, request.pods[0])
        if not isinstance(decision, GangRejection) or not lower:
            return decision
        withdrawn = [(self._cluster.nominated[uid], self._cluster.withdraw(uid)) for _, uid in lower]
        try:
            return cycle.decide(request, now)
        finally:
            # Also if the decision is interrupted, which has no work left.
            with work_allowance(None):
                for nominated, freed in withdrawn:
                    self._nominate_again(nominated, freed)

    def plan_gang(self, cycle: GangCycle, request: GangRequest) -> GangPreemptionPlan | None:
        """The plan for a gang that has no place. Its members are nominated."""
        try:
            with work_allowance(PLAN_WORK):
                plan = plan_for_gang(self._cluster, cycle, self._candidates, request, self._clock.now())
        except WorkExceeded:
            plan = None
        counted: set[ClaimId] = set()
        for pod, placement in plan.places if plan is not None else ():
            committed = placement.commit(lambda uid=pod.metadata.uid: f"nominated-{uid}")  # type: ignore[misc]
            # Members may share a claim.
            new = [committed.allocations[each] for each in sorted(committed.new - counted)]
            counted |= committed.new
            self._cluster.nominate(pod, placement.node, new, committed.extended)
        if plan is not None:
            self._displace(request.pods[0])
        self._report.group_preemption_attempted(len(plan.victims) if plan is not None else None)
        return plan

    async def preempt_for_gang(self, pods: Sequence[Pod], plan: GangPreemptionPlan | None, group: str) -> str | None:
        """Writes the plan, or that the members have no nominated nodes; returns why that failed. `group` is their PodGroup."""
        places = {pod.metadata.uid: placement.node for pod, placement in plan.places} if plan is not None else {}
        victims = plan.victims if plan is not None else ()
        for pod in pods:
            node = places.get(pod.metadata.uid, "")
            if (failure := await self._evictor.nominate(pod, node, evicts=bool(node and victims))) is not None:
                return failure
        if plan is None:
            return None
        evicted, failure = await self._evict(pods[0], plan.victims, "podgroup")
        for victim in evicted:
            self._report.preempted(victim.pod, pods[0], victim.node, group)
        return failure

    async def _evict(
        self, pod: Pod, victims: Sequence[PlannedVictim], preemptor: str
    ) -> tuple[list[PlannedVictim], str | None]:
        found = (group_evicted_with(victim.pod, self._cluster) for victim in victims)
        groups = {group.metadata.uid: group for group in found if group is not None}
        if groups:
            self._report.groups_disrupted(len(groups), preemptor)
        return await self._evictor.evict(pod, victims, tuple(groups.values()))

    def _key(self, pod: Pod, decision: Rejection) -> bytes | None:
        """Pods of different priorities preempt different pods."""
        key, spec = decision.equivalence_key, pod.spec
        return key + f"/{spec.priority or 0}/{spec.preemption_policy}".encode() if key is not None else None

    def _remember(self, key: bytes, reason: NoPreemption) -> None:
        self._reasons[key] = reason
        self._reasons.move_to_end(key)
        if len(self._reasons) > REASONS_MAX:
            self._reasons.popitem(last=False)

    def _nominate(self, pod: Pod, placement: Placement) -> None:
        # The shares of a pod that waits have no IDs yet.
        committed = placement.commit(lambda: f"nominated-{pod.metadata.uid}")
        devices = [committed.allocations[each] for each in committed.new]
        self._cluster.nominate(pod, placement.node, devices, committed.extended)

    def _displace(self, pod: Pod) -> None:
        """Ends the nominations of pods with lower priority whose room the pod takes."""
        for _, uid in lower_nominations(self._cluster, pod):
            self._nominate_again(self._cluster.nominated[uid], self._cluster.withdraw(uid))

    def _nominate_again(self, nominated: PlacedPod, freed: Collection[ClusterEvent]) -> None:
        """Counts the pod on its node again if it still fits there; otherwise it gives way. `freed` is what it kept from others.

        A pod that gives way is tried again, and only its own attempts write its nominated node: one after the other.
        """
        other = replace(nominated.pod, status=replace(nominated.pod.status, nominated_node_name=nominated.node))
        if (placement := self._planner.awaited(other, self._clock.now())) is not None:
            self._nominate(nominated.pod, placement)
            return
        self._wake((*freed, pod_changed(pod_key(other))))

    # --- Writes -----------------------------------------------------------------------------------------------------

    async def preempt(self, pod: Pod, plan: PreemptionPlan) -> str | None:
        """Writes the plan; returns why that failed."""
        if (failure := await self._evictor.nominate(pod, plan.node, evicts=bool(plan.victims))) is not None:
            return failure
        evicted, failure = await self._evict(pod, plan.victims, "pod")
        for victim in evicted:
            self._report.preempted(victim.pod, pod, plan.node)
        return failure

    async def drop_nomination(self, pod: Pod) -> None:
        """Removes the stored nomination of a pod that it does not help. What fails is written with the pod's next attempt."""
        await self._evictor.nominate(pod, "")


def _explained(decision: Rejection, reason: NoPreemption, key: bytes | None) -> Rejection:
    message = f"{decision.message}; preemption: {reason.message}" if reason.message else decision.message
    return replace(decision, message=message, equivalence_key=key)


def _summary(pod: Pod, plan: PreemptionPlan) -> str:
    """The names of pods in other namespaces are confidential."""
    if not plan.victims and plan.leaving:
        return f"waiting for {counted(len(plan.leaving), 'pod')} to leave node {plan.node}"
    if not plan.victims:
        return f"waiting for devices of pods that are gone, for node {plan.node}"
    namespace, all_pods = pod.metadata.namespace, [victim.pod.metadata for victim in plan.victims]
    names = sorted(each.name for each in all_pods if each.namespace == namespace)
    shown = [f"pod {name}" for name in names[:3]]
    if len(names) > 3:
        shown.append(counted(len(names) - 3, "other pod"))
    if len(names) < len(all_pods):
        shown.append(f"{counted(len(all_pods) - len(names), 'pod')} of other namespaces")
    return f"evicting {', '.join(shown)} to make room on node {plan.node}"
