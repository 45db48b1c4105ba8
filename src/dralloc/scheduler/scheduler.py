"""The scheduler: decides for one pod after the other, and has many decisions written at once.

Deciding is quick and strictly one after the other, each decision on what the ones before have left. Writing waits for the
API and happens beside it, up to a bound.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final
from zlib import crc32

from dralloc.api.pod_v1 import Pod
from dralloc.api.resource_v1 import ResourceClaim
from dralloc.client.api_calls import ApiCalls
from dralloc.client.work_queue import WorkQueue
from dralloc.devices.identity import PoolId
from dralloc.primitives.clock import Clock
from dralloc.primitives.features import FeatureGates
from dralloc.scheduler.bind.binder import Binder, BindingOutcome, Bound, Gone, Undone, WriteSlots
from dralloc.scheduler.bind.claim_writer import ClaimWriter
from dralloc.scheduler.decide.claim_checks import asks_alternatives, pod_key
from dralloc.scheduler.decide.cycle import Cycle, Decision, Fail, Place, Reject
from dralloc.scheduler.queue.scheduling_queue import QueuedPod, SchedulingQueue
from dralloc.scheduler.report import metrics
from dralloc.scheduler.report.metrics import SchedulerMetrics
from dralloc.scheduler.report.pod_conditions import ERROR, UNSCHEDULABLE, PodConditionWriter
from dralloc.scheduler.state.binding_conditions import results_with_conditions
from dralloc.scheduler.state.cluster_events import ClusterEvent, pod_changed
from dralloc.scheduler.state.cluster_state import ClusterState
from dralloc.scheduler.state.watches import Watches

NAME: Final = "dralloc"
# A pod whose claims are not there yet is told so only when they do not come.
EARLY_S: Final = 5.0
# A pod that others keep getting ahead of is told so after that many attempts in a row, which take some seconds.
COLLISIONS_TOLD: Final = 7
# How much later than a pod that was tried for them, too, pods are told that ask for the same.
OTHERS_TOLD_S: Final = 30.0
# How many pods are decided on before watches and writes get their turn.
ATTEMPTS_AT_ONCE: Final = 8

QueueKey = tuple[str, str, str]


def _any_pool(_: PoolId) -> bool:
    return True


def _random_share_id() -> str:
    return str(uuid.uuid4())


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerSettings:
    """`names` are the schedulerNames of the pods that are ours; `bindings_max` bounds the pods being written."""

    names: frozenset[str] = frozenset({NAME})
    gates: FeatureGates = field(default_factory=FeatureGates.defaults)
    identity: str = NAME
    bindings_max: int = 64
    owns_pool: Callable[[PoolId], bool] = _any_pool
    new_share_id: Callable[[], str] = _random_share_id


class Scheduler:
    """One term of being in charge: it begins with nothing but what the server says."""

    def __init__(
        self,
        calls: ApiCalls,
        clock: Clock,
        settings: SchedulerSettings | None = None,
        counters: SchedulerMetrics | None = None,
    ) -> None:
        self._clock = clock
        self._settings = settings = settings or SchedulerSettings()
        self.counters = counters or SchedulerMetrics()
        self._queue = SchedulingQueue()
        self._cluster = ClusterState(
            # Two schedulers that find many nodes equally good must not all go for the same one.
            rank=lambda name: crc32(f"{settings.identity}/{name}".encode()),
            owns_pool=settings.owns_pool,
            for_workloads="DRAReservedForWorkloads" in settings.gates,
        )
        self._cycle = Cycle(self._cluster, settings.gates, settings.new_share_id)
        self._watches = Watches(calls, self._cluster, self._report)
        self._writer = ClaimWriter(calls, self._cluster, self._report)
        self._teller = PodConditionWriter(calls, clock, component=NAME)
        self._stirred = asyncio.Event()
        self._slots = WriteSlots(settings.bindings_max, self._stirred.set)
        self._binder = Binder(
            calls,
            self._cluster,
            slots=self._slots,
            writer=self._writer,
            progress=self._watches.progress,
            clock=clock,
            reporter=_DeviceReports(self._teller, self.counters),
        )
        self._kept_by: dict[QueueKey, frozenset[str]] = {}
        # Pods that others are not done with: they have scheduling gates.
        self._held_back: set[QueueKey] = set()
        self._crowds_to_tell: WorkQueue[bytes] = WorkQueue()

    async def run(self) -> None:
        """Schedule until cancelled."""
        self.counters.queued = self._count_queued
        self.counters.kept = self._count_kept
        self._watches.pods.subscribe(self._pod_changed)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._teller.run())
                tasks.create_task(self._tell_crowds())
                await self._watches.start(tasks, taint_rules="DRADeviceTaintRules" in self._settings.gates)
                await self._schedule(tasks)
        finally:
            await self._writer.close()

    # --- News -------------------------------------------------------------------------------------------------------

    def _pod_changed(self, before: Pod | None, after: Pod | None) -> None:
        if before is not None and before.spec.scheduling_gates:
            self._held_back.discard(queue_key(before))
        if after is not None and after.spec.scheduling_gates and after.spec.scheduler_name in self._settings.names:
            self._held_back.add(queue_key(after))
        if after is not None and self._is_ours(after):
            self._queue.add(queue_key(after), priority=after.spec.priority or 0, now_s=_now_s())
            if before is None:
                self.counters.incoming.add("active", "PodAdd")
            elif _is_news(before, after):
                self._report((pod_changed(pod_key(after)),))
        elif before is not None:
            self._queue.discard(queue_key(before))
            self._kept_by.pop(queue_key(before), None)
            self._teller.forget(before)
        self._stirred.set()

    def _report(self, news: Collection[ClusterEvent]) -> None:
        if not news:
            return
        now_s = _now_s()
        for event in news:
            self._binder.notify(event)
            woken = self._queue.wake(event, now_s=now_s)
            if woken:
                self.counters.incoming.add("backoff", event.kind, amount=woken)
        self._stirred.set()

    def _is_ours(self, pod: Pod) -> bool:
        spec = pod.spec
        is_waiting = not spec.node_name and not spec.scheduling_gates and not pod.is_finished and not pod.is_terminating
        return is_waiting and spec.scheduler_name in self._settings.names

    def _count_queued(self) -> Mapping[str, int]:
        counts = self._queue.counts()
        return {**counts, "gated": counts["gated"] + len(self._held_back)}

    def _count_kept(self) -> Mapping[tuple[str, str], int]:
        counts: Counter[tuple[str, str]] = Counter()
        for (namespace, name, _), plugins in self._kept_by.items():
            pod = self._watches.pods.get(name, namespace)
            counts.update((plugin, pod.spec.scheduler_name) for plugin in plugins if pod is not None)
        return counts

    # --- Attempts ---------------------------------------------------------------------------------------------------

    async def _schedule(self, tasks: asyncio.TaskGroup) -> None:
        while True:
            self._stirred.clear()
            if self._attempt_some(tasks):
                # Watches and writes get their turn.
                await asyncio.sleep(0)
            else:
                await self._wait()

    def _attempt_some(self, tasks: asyncio.TaskGroup) -> bool:
        """Decide on pods that are ready in the same moment: those that share a claim then share its write, too."""
        for number in range(ATTEMPTS_AT_ONCE):
            queued = self._queue.pop(now_s=_now_s()) if self._slots else None
            if queued is None:
                return number > 0
            self._attempt(queued, tasks)
        return True

    async def _wait(self) -> None:
        """Until something happens, or a pod is ready by itself."""
        ready_s = self._queue.next_time_s() if self._slots else None
        if ready_s is None:
            await self._stirred.wait()
            return
        try:
            async with asyncio.timeout_at(ready_s):
                await self._stirred.wait()
        except TimeoutError:
            return

    def _attempt(self, queued: QueuedPod, tasks: asyncio.TaskGroup) -> None:
        key: QueueKey = queued.key  # type: ignore[assignment]
        self._kept_by.pop(key, None)
        pod = self._find(key)
        if pod is None:
            self._queue.placed(key)
            return
        started_s = time.perf_counter()
        decision = self._cycle.decide(pod, self._clock.now())
        took_s = time.perf_counter() - started_s
        self.counters.decision_duration.observe(value=took_s)
        if pod.spec.resource_claims:
            self.counters.devices_took(metrics.FILTER, _STATUSES[type(decision)], took_s)
        if isinstance(decision, Place):
            self._cluster.assume(pod, decision.node, decision.allocations)
            self._teller.decided(pod)
            self._queue.binding(key)
            self._slots.take()
            tasks.create_task(self._bind(pod, decision, _now_s()))
        else:
            self._count_attempt(pod, decision, _now_s())
            self._park(pod, key, decision, tasks)

    def _find(self, key: QueueKey) -> Pod | None:
        """The pod, if it is still that one and still ours to place."""
        namespace, name, uid = key
        pod = self._watches.pods.get(name, namespace)
        return pod if pod is not None and pod.metadata.uid == uid and self._is_ours(pod) else None

    def _park(self, pod: Pod, key: QueueKey, decision: Reject | Fail, tasks: asyncio.TaskGroup) -> None:
        match decision:
            case Reject(is_early=True):
                self._queue.gated(key, waits_for=decision.waits_for, now_s=_now_s())
                self._kept_by[key] = decision.plugins
                asyncio.get_running_loop().call_later(EARLY_S, self._tell_if_still_early, key, decision)
            case Reject(deallocate=None):
                self._reject(pod, key, decision)
            case Reject():
                tasks.create_task(self._deallocate(pod, key, decision))
            case Fail(message):
                self._fail(pod, key, message)

    def _reject(self, pod: Pod, key: QueueKey, decision: Reject) -> None:
        shape = decision.shape
        is_for_others = self._queue.rejected(key, waits_for=decision.waits_for, now_s=_now_s(), like=shape)
        self._kept_by[key] = decision.plugins
        is_news = self._teller.waits(pod, UNSCHEDULABLE, decision.message)
        if shape is not None and is_for_others and is_news:
            self._crowds_to_tell.add_after(shape, OTHERS_TOLD_S)
        self._stirred.set()

    def _fail(self, pod: Pod, key: QueueKey, message: str) -> None:
        self._queue.failed(key, now_s=_now_s())
        self._teller.waits(pod, ERROR, message)
        self._stirred.set()

    async def _deallocate(self, pod: Pod, key: QueueKey, decision: Reject) -> None:
        """Give back what keeps the pod from its nodes, before it is tried again: it must not find what is about to go."""
        assert decision.deallocate is not None
        started_s = _now_s()
        undone = await self._binder.deallocate(decision.deallocate, pod)
        status = "Error" if undone is not None else "Success"
        self.counters.devices_took(metrics.POST_FILTER, status, _now_s() - started_s)
        if undone is None:
            self._reject(pod, key, decision)
        else:
            self._fail(pod, key, undone.message)

    def _tell_if_still_early(self, key: QueueKey, decision: Reject) -> None:
        pod = self._find(key)
        if pod is not None and self._queue.waits_for(key) == decision.waits_for:
            self._teller.waits(pod, UNSCHEDULABLE, decision.message)

    async def _tell_crowds(self) -> None:
        """Tell pods for which another one was tried what they would have been told."""
        while (shape := await self._crowds_to_tell.get()) is not None:
            for number, key in enumerate(self._queue.alike(shape), start=1):
                self._tell_asleep(key)  # type: ignore[arg-type]
                if number % ATTEMPTS_AT_ONCE == 0:
                    await asyncio.sleep(0)
            self._crowds_to_tell.done(shape)

    def _tell_asleep(self, key: QueueKey) -> None:
        pod = self._find(key) if self._queue.waits_for(key) is not None else None
        if pod is None:
            return
        decision = self._cycle.decide(pod, self._clock.now())
        # Anything else is found out by the attempt that is about to be made for all of them, or for this one.
        if isinstance(decision, Reject) and decision.shape is not None:
            self._kept_by[key] = decision.plugins
            self._teller.waits(pod, UNSCHEDULABLE, decision.message)

    # --- Binding ----------------------------------------------------------------------------------------------------

    async def _bind(self, pod: Pod, place: Place, started_s: float) -> None:
        outcome = await self._binder.bind(pod, place)
        self._slots.give_back()
        self._count_binding(pod, place, outcome, started_s)
        key = queue_key(pod)
        match outcome:
            case Bound():
                self._count_placed(self._queue.placed(key))
                self._teller.scheduled(pod, place.node)
                return
            case Gone():
                self._queue.placed(key)
                self._report(self._cluster.forget(pod, place.allocations))
            case Undone(message, is_collision, listed):
                self._report(self._cluster.forget(pod, place.allocations))
                # Before the pod is tried again: it must not find what is about to be taken back.
                await self._binder.undo(pod, listed)
                if is_collision:
                    self._collide(pod, key, message)
                else:
                    self._fail(pod, key, message)

    def _collide(self, pod: Pod, key: QueueKey, message: str) -> None:
        # Others that are faster now and then are no news.
        if self._queue.collided(key, now_s=_now_s()) == COLLISIONS_TOLD:
            self._teller.waits(pod, ERROR, f"others get what the pod is to get, time and again: {message}")
        self._stirred.set()

    # --- Counting ---------------------------------------------------------------------------------------------------

    def _count_attempt(self, pod: Pod, decision: Decision, started_s: float) -> None:
        result = metrics.ERROR if isinstance(decision, Fail) else metrics.UNSCHEDULABLE
        self.counters.attempts.add(result, pod.spec.scheduler_name)
        self.counters.attempt_duration.observe(result, pod.spec.scheduler_name, value=_now_s() - started_s)

    def _count_binding(self, pod: Pod, place: Place, outcome: BindingOutcome, started_s: float) -> None:
        result = metrics.SCHEDULED if isinstance(outcome, Bound) else metrics.ERROR
        self.counters.attempts.add(result, pod.spec.scheduler_name)
        self.counters.attempt_duration.observe(result, pod.spec.scheduler_name, value=_now_s() - started_s)
        for claim_id in place.new:
            claim = self._cluster.stored_claim(claim_id)
            if claim is not None:
                has_list = "true" if asks_alternatives(claim) else "false"
                self.counters.allocations.add("success" if isinstance(outcome, Bound) else "failure", has_list)

    def _count_placed(self, queued: QueuedPod) -> None:
        attempts = str(queued.attempts) if queued.attempts < 15 else "15+"
        self.counters.pod_duration.observe(attempts, value=_now_s() - queued.first_seen_s)
        self.counters.pod_attempts.observe(value=queued.attempts)


# As Kubernetes calls how a plugin ends.
_STATUSES: Final[Mapping[type[Decision], str]] = {Place: "Success", Reject: "Unschedulable", Fail: "Error"}


class _DeviceReports:
    """Tells users and dashboards about devices that must be made ready."""

    def __init__(self, teller: PodConditionWriter, counters: SchedulerMetrics) -> None:
        self._teller = teller
        self._counters = counters

    def devices_pending(self, pod: Pod, claim: ResourceClaim) -> None:
        self._teller.devices_pending(pod, claim)

    def claims_written(self, status: str, seconds: float) -> None:
        self._counters.devices_took(metrics.PRE_BIND, status, seconds)

    def devices_settled(self, pod: Pod, claim: ResourceClaim, status: str, seconds: float) -> None:
        for result in results_with_conditions(claim):
            labels = (pod.spec.scheduler_name, result.driver, status)
            self._counters.binding_conditions.add(*labels)
            self._counters.binding_conditions_wait.observe(*labels, value=seconds)


def queue_key(pod: Pod) -> QueueKey:
    """A pod that was made again under its name is another pod."""
    return (pod.metadata.namespace, pod.metadata.name, pod.metadata.uid)


def _now_s() -> float:
    return asyncio.get_running_loop().time()


def _is_news(before: Pod, after: Pod) -> bool:
    """Whether an attempt may end otherwise for what has changed in the pod itself."""
    return (
        before.spec != after.spec
        or before.metadata.labels != after.metadata.labels
        or before.status.resource_claim_statuses != after.status.resource_claim_statuses
    )
