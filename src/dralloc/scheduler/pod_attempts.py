"""Attempts for single pods: decide, then write the decision, or park the pod with the events that could help it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection
from typing import Final

from msgspec.structs import replace

from dralloc.devices.identity import ClaimId
from dralloc.kube.pod_v1 import Pod
from dralloc.primitives.work_allowance import WorkExceeded, work_allowance
from dralloc.scheduler.attempt_parts import AttemptParts
from dralloc.scheduler.bind.binder import BindingFailed, Bound, PodGone
from dralloc.scheduler.configuration_publisher import ConfigurationPublisher
from dralloc.scheduler.contract import (
    DYNAMIC_RESOURCES,
    CommittedPlacement,
    Decision,
    DecisionFailure,
    Placement,
    Rejection,
)
from dralloc.scheduler.decide.useless_reservations import UselessReservations, reservations_of_deleted_claims
from dralloc.scheduler.queue.long_decisions import DECISION_WORK, INTERRUPTIONS_REPORTED, TOLD
from dralloc.scheduler.queue.pending_pods import QueueKey, queue_key
from dralloc.scheduler.report.fragmentation import ObservedFragmentation
from dralloc.scheduler.report.scheduling_report import log_allocations
from dralloc.scheduler.report.untried_conditions import UntriedConditions
from dralloc.scheduler.state.cluster_events import ClusterEvent

# A pod whose claims are not created yet gets a condition only if they are still missing after this time.
EARLY_S: Final = 5.0
# A pod that loses races gets a condition after this many errors in a row, which take some seconds.
COLLISIONS_REPORTED: Final = 7


class PodAttempts:
    def __init__(
        self, parts: AttemptParts, *, publisher: ConfigurationPublisher, fragmentation: ObservedFragmentation
    ) -> None:
        self._clock = parts.clock
        self._time_s = parts.time_s
        self._new_share_id = parts.settings.new_share_id
        self._cluster = parts.cluster
        self._cycle = parts.cycle
        self._queue = parts.queue
        self._long = parts.long_decisions
        # How often in a row the decision about a pod was interrupted.
        self._interruptions: dict[QueueKey, int] = {}
        self._pending = parts.pending
        self._binder = parts.binder
        self._slots = parts.slots
        self._report = parts.report
        self._wake = parts.wake
        self._queued = parts.queued
        self._preemptor = parts.preemptor
        self._sharing = parts.sharing
        self._publisher = publisher
        self._fragmentation = fragmentation
        self._untried_conditions = UntriedConditions(parts.queue, parts.pending, self._describe, parts.report)

    async def run(self) -> None:
        """Writes conditions of pods that were not tried themselves until cancelled."""
        await self._untried_conditions.run()

    def attempt(self, pod: Pod, key: QueueKey, tasks: asyncio.TaskGroup) -> None:
        namespace = pod.metadata.namespace
        if (until_s := self._long.wait_until_s(namespace, self._time_s())) is not None:
            self._queue.postponed(key, until_s=until_s)
            return
        freed = self._preemptor.begin(pod) if self._preemptor is not None else ()
        try:
            with work_allowance(DECISION_WORK):
                decision = self._decide_and_report(pod)
        except WorkExceeded:
            self._interrupt(pod, key, freed)
            return
        self._interruptions.pop(key, None)
        if isinstance(decision, Placement):
            placement = decision.commit(self._new_share_id)
            log_allocations(pod, placement)
            self._cluster.assume(
                pod,
                placement.node,
                placement.allocations,
                placement.volumes,
                placement.extended,
                placement.needs,
            )
            if self._sharing is not None:
                self._sharing.begin_write(key, ((each, placement.allocations[each]) for each in placement.new))
            self._queue.binding(key)
            self._slots.take()
            tasks.create_task(self._bind(pod, placement, self._time_s()))
        if self._preemptor is not None:
            self._preemptor.end(pod, decision, freed)
            self._queue.decided(key)
        if not isinstance(decision, Placement):
            self._end_without_node(pod, key, decision, tasks)

    def _interrupt(self, pod: Pod, key: QueueKey, freed: Collection[ClusterEvent]) -> None:
        now_s = self._time_s()
        self._interruptions[key] = times = self._interruptions.get(key, 0) + 1
        is_endless = times >= INTERRUPTIONS_REPORTED
        is_alone = not self._queue.has_active and not is_endless
        until_s = self._long.interrupted(pod.metadata.namespace, now_s, is_alone=is_alone)
        self._queue.postponed(key, until_s=until_s, interrupted_s=now_s)
        if self._preemptor is not None:
            self._preemptor.interrupted(pod)
        self._wake(freed)
        if is_endless:
            self._report.failed(pod, TOLD)
        self._queued()

    def forget(self, key: QueueKey) -> None:
        """The pod is gone or has a node."""
        self._interruptions.pop(key, None)

    def _decide_and_report(self, pod: Pod) -> Decision:
        started_s = time.perf_counter()
        attempt = self._cycle.begin(pod)
        self._publisher.check()
        begun_s = time.perf_counter()
        self._report.begun(pod, is_over=isinstance(attempt, Rejection), seconds=begun_s - started_s)
        if isinstance(attempt, Rejection):
            self._report.decided(pod, attempt, begun_s - started_s)
            return attempt
        conclude = self._cycle.conclude if self._preemptor is None else self._preemptor.conclude
        decision = conclude(attempt, self._clock.now())
        self._fragmentation.decided(attempt, decision)
        ended_s = time.perf_counter()
        self._report.searched(pod, decision, ended_s - begun_s)
        self._report.decided(pod, decision, ended_s - started_s)
        return decision

    def _describe(self, pod: Pod) -> Decision:
        """Raises WorkExceeded."""
        with work_allowance(DECISION_WORK):
            decision = self._cycle.decide(pod, self._clock.now())
        return decision if self._preemptor is None else self._preemptor.describe(pod, decision)

    # --- The decision is written ------------------------------------------------------------------------------------

    async def _bind(self, pod: Pod, place: CommittedPlacement, started_s: float) -> None:
        outcome = await self._binder.bind(pod, place)
        self._slots.give_back()
        now_s = self._time_s()
        allocated = filter(None, map(self._cluster.claims.stored, place.new))
        self._report.binding_ended(pod, outcome, allocated, now_s - started_s)
        key = queue_key(pod)
        match outcome:
            case Bound():
                self._report.scheduled(pod, place.node, self._queue.placed(key), now_s)
            case PodGone():
                self._queue.placed(key)
                self._wake(self._cluster.forget(pod, place.allocations))
            case BindingFailed(message, is_collision, reserved):
                self._wake(self._cluster.forget(pod, place.allocations))
                # Before the next attempt, which must not use claims that are about to be released.
                await self._binder.undo(pod, place, reserved)
                if is_collision:
                    self._collide(pod, key, message)
                else:
                    self._fail(pod, key, message)
        if self._sharing is not None:
            self._sharing.end_write(key)

    # --- A pod without a node waits ---------------------------------------------------------------------------------

    def _end_without_node(
        self, pod: Pod, key: QueueKey, decision: Rejection | DecisionFailure, tasks: asyncio.TaskGroup
    ) -> None:
        if isinstance(decision, Rejection) and (
            useless := tuple(reservations_of_deleted_claims((pod,), self._cluster))
        ):
            tasks.create_task(self._release(pod, key, decision, useless))
            return
        match decision:
            case Rejection(delete=ClaimId()):
                tasks.create_task(self._delete(pod, key, decision))
            case Rejection(preemption=plan) if plan is not None or self._has_useless_nomination(pod, decision):
                tasks.create_task(self._preempt(pod, key, decision))
            case Rejection(is_early=True):
                self._wait_early(pod, key, decision)
            case Rejection(deallocate=None):
                self._reject(pod, key, decision)
            case Rejection():
                tasks.create_task(self._deallocate(pod, key, decision))
            case DecisionFailure(message):
                self._fail(pod, key, message)

    def _reject(self, pod: Pod, key: QueueKey, decision: Rejection) -> None:
        if self._sharing is not None and DYNAMIC_RESOURCES in decision.plugins and (why := self._sharing.rejected(key)):
            decision = replace(decision, message=f"{decision.message} ({why})")
        group_key = decision.equivalence_key
        is_for_group = self._queue.rejected(
            key, waits_for=decision.waits_for, now_s=self._time_s(), group_key=group_key
        )
        self._report.parked(pod, decision)
        is_new = self._report.rejected(pod, decision.message)
        if group_key is not None and is_for_group and is_new:
            self._untried_conditions.write_later(group_key)
        self._queued()

    def _fail(self, pod: Pod, key: QueueKey, message: str) -> None:
        self._queue.failed(key, now_s=self._time_s())
        self._report.failed(pod, message)
        self._queued()

    def _collide(self, pod: Pod, key: QueueKey, message: str) -> None:
        # A race that is lost now and then is not worth a condition.
        if self._queue.collided(key, now_s=self._time_s()) == COLLISIONS_REPORTED:
            self._report.failed(pod, f"repeatedly lost a race for devices with another scheduler: {message}")
        self._queued()

    async def _deallocate(self, pod: Pod, key: QueueKey, decision: Rejection) -> None:
        """Deallocates the claim that keeps the pod from its nodes before the pod can be tried again with it."""
        assert decision.deallocate is not None
        started_s = self._time_s()
        failed = await self._binder.deallocate(decision.deallocate, pod)
        self._report.deallocated(is_done=failed is None, seconds=self._time_s() - started_s)
        if failed is None:
            self._reject(pod, key, decision)
        else:
            self._fail(pod, key, failed.message)

    async def _release(
        self, pod: Pod, key: QueueKey, decision: Rejection, useless: Collection[UselessReservations]
    ) -> None:
        """Releases claims that are being deleted, before the pod waits until they are gone."""
        outcomes = [await self._binder.release(each.claim_id, each.pods, each.consumers) for each in useless]
        if failed := next(filter(None, outcomes), None):
            self._fail(pod, key, failed.message)
        else:
            self._reject(pod, key, decision)

    async def _delete(self, pod: Pod, key: QueueKey, decision: Rejection) -> None:
        """Deletes the claim of an earlier attempt. The pod is tried again when it is gone."""
        assert decision.delete is not None
        started_s = self._time_s()
        failed = await self._binder.delete(decision.delete, pod)
        self._report.deallocated(is_done=failed is None, seconds=self._time_s() - started_s)
        if failed is None:
            self._wait_early(pod, key, decision)
        else:
            self._fail(pod, key, failed.message)

    def _wait_early(self, pod: Pod, key: QueueKey, decision: Rejection) -> None:
        """What is missing is about to come, so the pod's condition says it only if it does not."""
        self._queue.gated(key, waits_for=decision.waits_for, now_s=self._time_s())
        self._report.parked(pod, decision)
        asyncio.get_running_loop().call_later(EARLY_S, self._report_if_still_early, key, decision)

    def _has_useless_nomination(self, pod: Pod, decision: Rejection) -> bool:
        return self._preemptor is not None and bool(pod.status.nominated_node_name) and decision.deallocate is None

    async def _preempt(self, pod: Pod, key: QueueKey, decision: Rejection) -> None:
        """Writes the plan before the pod can be tried again; a pod without a plan has no use for its nominated node."""
        assert self._preemptor is not None
        if decision.preemption is None:
            await self._preemptor.drop_nomination(pod)
            failure = None
        else:
            failure = await self._preemptor.preempt(pod, decision.preemption)
        if failure is not None:
            self._fail(pod, key, failure)
        elif decision.is_early:
            self._wait_early(pod, key, decision)
        else:
            self._reject(pod, key, decision)

    def _report_if_still_early(self, key: QueueKey, decision: Rejection) -> None:
        pod = self._pending.find(key)
        if pod is not None and self._queue.waits_for(key) == decision.waits_for:
            self._report.rejected(pod, decision.message)
