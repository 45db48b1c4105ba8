"""Attempts for groups of pods. A group is one entry of the queue: all its members are decided and written together.

Members wait for their PodGroup, and a gang for enough members. A gang that cannot be placed holds nothing: claims with devices that
only its members without a node may use are deallocated.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Sequence
from typing import Final

from dralloc.client.api_calls import ApiCalls
from dralloc.devices.identity import ClaimId
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.scheduling_v1beta1 import SCHEDULED, SCHEDULER_ERROR, UNSCHEDULABLE, PodGroup
from dralloc.primitives.work_allowance import WorkExceeded, work_allowance
from dralloc.scheduler.attempt_parts import AttemptParts
from dralloc.scheduler.bind.binder import BindingFailed, BindingOutcome, Bound
from dralloc.scheduler.bind.gang_binder import GangBinder, GangBound, GangUndone, PlacedPods
from dralloc.scheduler.contract import DecisionFailure, Rejection, WaitReason
from dralloc.scheduler.decide.gang_cycle import (
    GangCycle,
    GangDecision,
    GangPlacement,
    GangRejection,
    GangRequest,
)
from dralloc.scheduler.decide.gang_preemption import GangPreemptionPlan
from dralloc.scheduler.decide.useless_reservations import (
    UselessReservations,
    reservations_of_deleted_claims,
    reservations_of_gang,
)
from dralloc.scheduler.group_requests import GroupNotReady, GroupRequests
from dralloc.scheduler.queue.long_decisions import DECISION_WORK, INTERRUPTIONS_REPORTED, TOLD
from dralloc.scheduler.queue.pending_pods import queue_key
from dralloc.scheduler.report import metrics
from dralloc.scheduler.report.pod_group_conditions import PodGroupConditionWriter
from dralloc.scheduler.report.scheduling_report import log_allocations
from dralloc.scheduler.state.cluster_events import ClusterEvent, claim_allocated, claim_changed, group_changed
from dralloc.scheduler.state.group_members import GroupMembers, PodGroupKey, group_of
from dralloc.scheduler.state.placed_pods import claims_used_by

# A gang of which some members have nodes and others not goes first when the scheduler starts.
HALF_PLACED_PRIORITY: Final = 2**31
# Members that wait for others get a condition only if they still wait after this time.
EARLY_S: Final = 5.0
# The decision about a gang may do the work of so many pods, however many members it has.
GANG_FACTOR: Final = 20

_Refused = Sequence[tuple[Pod, Rejection | DecisionFailure]]


class GangAttempts:
    def __init__(self, calls: ApiCalls, parts: AttemptParts) -> None:
        gates = parts.settings.gates
        self._clock = parts.clock
        self._time_s = parts.time_s
        self._cluster = parts.cluster
        self._queue = parts.queue
        self._long = parts.long_decisions
        # How often in a row the decision about a group was interrupted.
        self._interruptions: dict[PodGroupKey, int] = {}
        self._pending = parts.pending
        self._slots = parts.slots
        self._report = parts.report
        self._wake = parts.wake
        self._queued = parts.queued
        self._preemptor = parts.preemptor
        self._sharing = parts.sharing
        self.has_groups = "GenericWorkload" in gates
        self._members = GroupMembers()
        self._requests = GroupRequests(parts.cluster, gates)
        self._cycle = GangCycle(
            parts.cluster, parts.cycle, gates, parts.settings.new_share_id, domain_tried=self._domain_tried
        )
        # When the attempt on the nodes with one value of a topology key began.
        self._domain_begun_s = 0.0
        self._pod_binder = parts.binder
        self._binder = GangBinder(parts.binder, self._forget, parts.settings.bindings_max)
        self._conditions = PodGroupConditionWriter(calls, parts.clock, self._find_group)

    async def run(self) -> None:
        """Writes conditions of groups until cancelled."""
        await self._conditions.run()

    # --- Members ----------------------------------------------------------------------------------------------------

    def pod_changed(self, before: Pod | None, after: Pod | None) -> PodGroupKey | None:
        """The group of the pod, which is then not queued by itself; None if it has none."""
        pod = after or before
        assert pod is not None
        known = self._members.group_of(pod)
        if after is None or after.is_finished:
            self._members.remove(pod)
            return known
        key = known or self.group_of(after)
        if key is not None:
            self._members.put(key, after, is_waiting=self._pending.is_pending(after))
        return key

    def group_of(self, pod: Pod) -> PodGroupKey | None:
        return group_of(pod, self._cluster.find_claim, pod_groups=self.has_groups)

    def enqueue(self, key: PodGroupKey, pod: Pod, *, is_new: bool) -> None:
        """The member waits for a node."""
        group = self._group(key)
        priority = group.spec.priority if group is not None else None
        self._queue.add(
            key, priority=priority if priority is not None else pod.spec.priority or 0, now_s=self._time_s()
        )
        if is_new:
            self._wake((group_changed(key),))

    def join(self, key: PodGroupKey, pod: Pod) -> None:
        """The pod was queued by itself before its group was known."""
        self._members.put(key, pod, is_waiting=True)
        self.enqueue(key, pod, is_new=True)

    def leave(self, key: PodGroupKey) -> None:
        """A member has a node or is gone."""
        if not self._members.waiting(key):
            self._queue.discard(key)
            self._interruptions.pop(key, None)
            if self._sharing is not None:
                self._sharing.forget(key)

    def resume(self) -> None:
        """Puts gangs that were placed in part, by an earlier scheduler that stopped, before everything else."""
        for key in self._members.groups():
            request = self._request(key)
            if isinstance(request, GangRequest) and request.scheduled and request.needed and request.pods:
                self._queue.discard(key)
                self._queue.add(key, priority=HALF_PLACED_PRIORITY, now_s=self._time_s())

    def _is_pending(self, pod: Pod) -> bool:
        return self._pending.find(queue_key(pod)) is not None

    def _request(self, key: PodGroupKey) -> GangRequest | GroupNotReady:
        members, waiting = self._members.of(key), self._members.waiting(key)
        return self._requests.request(key, members.values(), tuple(waiting.values()))

    def _group(self, key: PodGroupKey) -> PodGroup | None:
        return self._find_group(key.namespace, key.name) if not key.is_of_owner else None

    def _find_group(self, namespace: str, name: str) -> PodGroup | None:
        return self._cluster.pod_groups.get((namespace, name))

    # --- One attempt ------------------------------------------------------------------------------------------------

    def attempt(self, key: PodGroupKey, tasks: asyncio.TaskGroup) -> None:
        if not self._members.waiting(key):
            self._queue.placed(key)
            return
        request = self._request(key)
        if isinstance(request, GroupNotReady):
            self._end_not_ready(key, request, tasks)
            return
        if (early := self._cycle.early(request)) is not None:
            if not self._release_held(key, request.pods, tasks):
                self._gate(key, early.members, early.waits_for | self._own_events(key, request.pods))
            return
        if (until_s := self._long.wait_until_s(key.namespace, self._time_s())) is not None:
            self._queue.postponed(key, until_s=until_s)
            return
        for pod in request.pods:
            self._report.attempt_begins(queue_key(pod))
        freed = self._preemptor.begin_gang(request.pods) if self._preemptor is not None else ()
        started_s = self._domain_begun_s = time.perf_counter()
        try:
            # It cannot go on where it was.
            with work_allowance(DECISION_WORK * GANG_FACTOR) as allowance:
                decision = self._decide(request)
        except WorkExceeded:
            self._interrupt(key, request)
            self._wake(freed)
            return
        self._interruptions.pop(key, None)
        if isinstance(decision, GangRejection) and allowance is not None and allowance.used > DECISION_WORK:
            self._long.interrupted(key.namespace, self._time_s(), times=allowance.used // DECISION_WORK)
        self._report.group_decided(time.perf_counter() - started_s)
        if isinstance(decision, GangPlacement) and decision.placed:
            self._begin_write(key, request, decision, tasks)
        else:
            self._end_without_nodes(key, request, decision, tasks)
        if self._preemptor is not None:
            self._preemptor.end_gang(request.pods, freed)

    def _interrupt(self, key: PodGroupKey, request: GangRequest) -> None:
        now_s = self._time_s()
        until_s = self._long.interrupted(key.namespace, now_s, times=GANG_FACTOR)
        self._queue.postponed(key, until_s=until_s, interrupted_s=now_s)
        if self._preemptor is not None:
            for pod in request.pods:
                self._preemptor.interrupted(pod)
        self._interruptions[key] = times = self._interruptions.get(key, 0) + 1
        if times >= INTERRUPTIONS_REPORTED:
            for pod in request.pods:
                self._report.failed(pod, TOLD)
        self._queued()

    def _decide(self, request: GangRequest) -> GangDecision:
        if self._preemptor is not None:
            return self._preemptor.decide_gang(self._cycle, request)
        return self._cycle.decide(request, self._clock.now())

    def _domain_tried(self, request: GangRequest, is_feasible: bool) -> None:
        begun_s, self._domain_begun_s = self._domain_begun_s, time.perf_counter()
        seconds = self._domain_begun_s - begun_s
        self._report.placement_tried(request.pods[0].spec.scheduler_name, is_feasible=is_feasible, seconds=seconds)

    def _end_not_ready(self, key: PodGroupKey, waiting: GroupNotReady, tasks: asyncio.TaskGroup) -> None:
        if self._release_held(key, waiting.pods, tasks):
            return
        if waiting.is_error:
            self._fail(key, waiting.pods, waiting.message)
            return
        waits_for = self._own_events(key, waiting.pods)
        rejection = Rejection(waiting.message, waits_for, is_early=True, reason=WaitReason.GROUP)
        self._gate(key, [(pod, rejection) for pod in waiting.pods], waits_for)

    def _own_events(self, key: PodGroupKey, pods: Collection[Pod]) -> frozenset[ClusterEvent]:
        """Changes of the group and of its members' claims: a write of an earlier attempt, of unknown outcome, may still allocate one.

        Of claims that are not known, only their allocation counts: a large gang would be tried again at the creation of each.
        """
        used = {claim_id for pod in pods for claim_id in claims_used_by(pod)}
        of_claims = (
            (claim_changed if self._cluster.find_claim(claim_id) is not None else claim_allocated)(claim_id)
            for claim_id in used
        )
        return frozenset({group_changed(key), *of_claims})

    def _release_held(self, key: PodGroupKey, pods: tuple[Pod, ...], tasks: asyncio.TaskGroup) -> bool:
        """Members of an earlier attempt are gone, or lack claims: the others must not keep what nothing can use."""
        group = self._group(key)
        # A group that had nodes keeps its devices for the pods that replace its members.
        consumer = group.metadata.uid if group is not None and not group.was_scheduled else None
        useless = (
            *reservations_of_deleted_claims(pods, self._cluster),
            *reservations_of_gang(pods, consumer, self._cluster),
        )
        nominated = self._preemptor.withdraw_gang(pods) if self._preemptor is not None else ()
        if useless or nominated:
            tasks.create_task(self._release(key, useless, nominated))
        return bool(useless or nominated)

    def _gate(self, key: PodGroupKey, members: _Refused, waits_for: frozenset[ClusterEvent]) -> None:
        """The group cannot be tried before an event, which probably comes soon."""
        self._queue.gated(key, waits_for=waits_for, now_s=self._time_s())
        for pod, refusal in members:
            if isinstance(refusal, Rejection):
                self._report.parked(pod, refusal)
        asyncio.get_running_loop().call_later(EARLY_S, self._report_if_still_gated, key, members, waits_for)

    def _report_if_still_gated(self, key: PodGroupKey, members: _Refused, waits_for: frozenset[ClusterEvent]) -> None:
        if self._queue.waits_for(key) == waits_for:
            for pod, refusal in members:
                if self._is_pending(pod):
                    self._report.rejected(pod, refusal.message)

    # --- Members get nodes ------------------------------------------------------------------------------------------

    def _begin_write(
        self, key: PodGroupKey, request: GangRequest, decision: GangPlacement, tasks: asyncio.TaskGroup
    ) -> None:
        for pod, place in decision.placed:
            log_allocations(pod, place)
            self._report.assumed(pod)
        for pod, refusal in decision.others:
            self._report.rejected(pod, refusal.message)
        if self._sharing is not None:
            new = ((each, place.allocations[each]) for _, place in decision.placed for each in place.new)
            self._sharing.begin_write(key, new)
        self._queue.binding(key)
        self._slots.take()
        tasks.create_task(self._write(key, request, decision.placed))

    async def _write(self, key: PodGroupKey, request: GangRequest, placed: PlacedPods) -> None:
        started_s = self._time_s()
        written = await self._binder.bind(
            placed, needed=request.needed, exists=self._is_pending, consumer=request.consumer
        )
        self._slots.give_back()
        seconds = self._time_s() - started_s
        if isinstance(written, GangUndone):
            self._end_undone(key, placed, written, seconds)
        else:
            self._end_bound(key, placed, written, seconds)
        if self._sharing is not None:
            self._sharing.end_write(key)

    def _end_bound(self, key: PodGroupKey, placed: PlacedPods, written: GangBound, seconds: float) -> None:
        queued = self._queue.placed(key)
        now_s = self._time_s()
        for (pod, place), outcome in zip(placed, written.outcomes, strict=True):
            self._report.binding_ended(pod, outcome, filter(None, map(self._cluster.claims.stored, place.new)), seconds)
            if isinstance(outcome, Bound):
                self._report.scheduled(pod, place.node, queued, now_s)
            else:
                self._wake(self._cluster.forget(pod, place.allocations))
                if isinstance(outcome, BindingFailed):
                    self._report.failed(pod, outcome.message)
        self._report.group_ended(metrics.SCHEDULED, self._profile(placed), seconds)
        if (group := self._group(key)) is not None:
            self._conditions.report(group, SCHEDULED, "all required pods of the group have nodes")
        for pod in [*self._members.waiting(key).values()][:1]:
            # Members that did not fit, or came in the meantime.
            self.enqueue(key, pod, is_new=False)

    def _end_undone(self, key: PodGroupKey, placed: PlacedPods, undone: GangUndone, seconds: float) -> None:
        outcome: BindingOutcome = BindingFailed(undone.message, undone.is_collision)
        for pod, _ in placed:
            self._report.binding_ended(pod, outcome, (), seconds)
        self._report.group_ended(metrics.ERROR, self._profile(placed), seconds)
        if undone.is_collision:
            self._queue.collided(key, now_s=self._time_s())
        else:
            self._queue.failed(key, now_s=self._time_s())
            for pod, _ in placed:
                self._report.failed(pod, f"the pod's gang was not placed: {undone.message}")
            if (group := self._group(key)) is not None:
                self._conditions.report(group, SCHEDULER_ERROR, undone.message)
        self._wake((group_changed(key),))

    def _forget(self, placed: PlacedPods) -> None:
        for pod, place in reversed(placed):
            self._wake(self._cluster.forget(pod, place.allocations))

    # --- Members get no nodes ---------------------------------------------------------------------------------------

    def _end_without_nodes(
        self, key: PodGroupKey, request: GangRequest, decision: GangPlacement | GangRejection, tasks: asyncio.TaskGroup
    ) -> None:
        members = decision.members if isinstance(decision, GangRejection) else decision.others
        made = [(pod, each.delete) for pod, each in members if isinstance(each, Rejection) and each.delete is not None]
        if made:
            tasks.create_task(self._delete(key, made))
            return
        useless = tuple(reservations_of_deleted_claims(request.pods, self._cluster))
        if isinstance(decision, GangRejection):
            useless += decision.release
        if useless:
            tasks.create_task(self._release(key, useless))
            return
        waits_for = self._own_events(key, request.pods)
        for _, refusal in members:
            waits_for |= refusal.waits_for if isinstance(refusal, Rejection) else frozenset()
        if isinstance(decision, GangRejection):
            waits_for |= decision.waits_for
            if decision.is_error:
                messages = [refusal.message for _, refusal in members if not isinstance(refusal, Rejection)]
                self._fail(key, request.pods, messages[0])
                return
            if (group := self._group(key)) is not None:
                self._conditions.report(group, UNSCHEDULABLE, decision.message)
            if self._preemptor is not None:
                plan = self._preemptor.plan_gang(self._cycle, request)
                self._queue.decided(key)
                if plan is not None or any(pod.status.nominated_node_name for pod in request.pods):
                    tasks.create_task(self._preempt(key, request, plan, members, waits_for))
                    return
        self._reject(key, request, members, waits_for)

    async def _preempt(
        self,
        key: PodGroupKey,
        request: GangRequest,
        plan: GangPreemptionPlan | None,
        members: _Refused,
        waits_for: frozenset[ClusterEvent],
    ) -> None:
        """Writes the plan before the gang can be tried again."""
        assert self._preemptor is not None
        group = "" if key.is_of_owner else key.name
        failure = await self._preemptor.preempt_for_gang(request.pods, plan, group)
        if failure is None:
            result = metrics.UNSCHEDULABLE if plan is None else metrics.WAITING_ON_PREEMPTION
            self._reject(key, request, members, waits_for, result)
        else:
            self._fail(key, request.pods, failure)

    def _reject(
        self,
        key: PodGroupKey,
        request: GangRequest,
        members: _Refused,
        waits_for: frozenset[ClusterEvent],
        result: str = metrics.UNSCHEDULABLE,
    ) -> None:
        self._queue.rejected(key, waits_for=waits_for, now_s=self._time_s())
        # Recorded for the whole gang, so that one of its members does not ask for a driver alone.
        elsewhere = self._sharing.rejected(key) if self._sharing is not None else ""
        for pod, refusal in members:
            if isinstance(refusal, Rejection):
                self._report.parked(pod, refusal)
            self._report.rejected(pod, f"{refusal.message} ({elsewhere})" if elsewhere else refusal.message)
        self._report.group_ended(result, request.pods[0].spec.scheduler_name, 0.0)
        self._queued()

    def _fail(self, key: PodGroupKey, pods: Sequence[Pod], message: str) -> None:
        self._queue.failed(key, now_s=self._time_s())
        self._queued()
        for pod in pods:
            self._report.failed(pod, message)
        self._report.group_ended(metrics.ERROR, pods[0].spec.scheduler_name, 0.0)
        if (group := self._group(key)) is not None:
            self._conditions.report(group, SCHEDULER_ERROR, message)

    async def _release(
        self, key: PodGroupKey, useless: Collection[UselessReservations], nominated: Collection[Pod] = ()
    ) -> None:
        """Gives up what the members cannot use, then lets the group be tried again without it."""
        for each in useless:
            await self._pod_binder.release(each.claim_id, each.pods, each.consumers)
        for pod in nominated:
            assert self._preemptor is not None
            await self._preemptor.drop_nomination(pod)
        self._queue.failed(key, now_s=self._time_s())
        self._wake((group_changed(key),))

    async def _delete(self, key: PodGroupKey, made: Collection[tuple[Pod, ClaimId]]) -> None:
        """Deletes claims that an earlier attempt made for extended resources of members."""
        for pod, claim_id in made:
            await self._pod_binder.delete(claim_id, pod)
        self._queue.failed(key, now_s=self._time_s())
        self._queued()

    @staticmethod
    def _profile(placed: PlacedPods) -> str:
        return placed[0][0].spec.scheduler_name
