"""The scheduler: watch → state → queue → decide → bind.

1. Watches feed the cluster state; the cluster events that follow wake parked pods in the queue.
2. The next pod or group is taken from the queue and decided on (`Cycle`), strictly one after the other.
3. A decision is assumed at once, so the next pod sees what is left, and written by a task of its own (`Binder`).
4. A pod without a node is parked with the events that could help it. An attempt that failed is retried after a back-off.

Steps 2 to 4 of one pod are in `pod_attempts`, those of a group in `gang_attempts`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from datetime import timedelta
from itertools import chain
from typing import Final

from dralloc.client.api_calls import ApiCalls
from dralloc.devices.allocator.features import Features
from dralloc.devices.identity import PoolId
from dralloc.kube.pod_v1 import Pod
from dralloc.primitives.clock import Clock
from dralloc.scheduler.attempt_parts import AttemptParts
from dralloc.scheduler.bind.binder import Binder
from dralloc.scheduler.bind.claim_writer import ClaimWriter
from dralloc.scheduler.bind.evictor import Evictor
from dralloc.scheduler.bind.extended_claims import ExtendedClaimWriter
from dralloc.scheduler.bind.volume_writer import VolumeWriter
from dralloc.scheduler.bind.write_slots import WriteSlots
from dralloc.scheduler.configuration_publisher import ConfigurationPublisher
from dralloc.scheduler.decide.cycle import Cycle
from dralloc.scheduler.gang_attempts import GangAttempts
from dralloc.scheduler.ownership.shared_pools import SharedPools
from dralloc.scheduler.pod_attempts import PodAttempts
from dralloc.scheduler.preemptor import Preemptor
from dralloc.scheduler.queue.long_decisions import LongDecisions
from dralloc.scheduler.queue.parked_pods import QueuedPod
from dralloc.scheduler.queue.pending_pods import PendingPods, QueueKey, may_change_outcome, queue_key
from dralloc.scheduler.queue.scheduling_queue import SchedulingQueue
from dralloc.scheduler.report.device_totals import DeviceTotals
from dralloc.scheduler.report.fragmentation import ObservedFragmentation
from dralloc.scheduler.report.metrics import SchedulerMetrics
from dralloc.scheduler.report.pod_conditions import PodConditionWriter
from dralloc.scheduler.report.scheduling_report import SchedulingReport
from dralloc.scheduler.settings import NAME, SchedulerSettings
from dralloc.scheduler.state.cluster_events import ClusterEvent, pod_changed
from dralloc.scheduler.state.cluster_state import ClusterState
from dralloc.scheduler.state.group_members import PodGroupKey
from dralloc.scheduler.state.placed_pods import claims_used_by, pod_key
from dralloc.scheduler.state.watches import Watches

# How many pods are decided on before watches and writes run, and for how long.
ATTEMPTS_AT_ONCE: Final = 64
ATTEMPTS_TIME: Final = timedelta(milliseconds=20)


class Scheduler:
    """Schedules during one term as leader. It starts with no state but what the API server has."""

    def __init__(
        self,
        calls: ApiCalls,
        clock: Clock,
        settings: SchedulerSettings | None = None,
        counters: SchedulerMetrics | None = None,
    ) -> None:
        self._clock = clock
        self._time_s = asyncio.get_running_loop().time
        self._settings = settings = settings or SchedulerSettings()
        self.counters = counters or SchedulerMetrics()
        self._queue = SchedulingQueue()
        self._sharing: SharedPools | None = None
        self._cluster = ClusterState(
            rank=settings.rank,
            owns_pool=self._may_allocate_from,
            for_workloads="DRAReservedForWorkloads" in settings.gates,
            for_groups="DRAWorkloadResourceClaims" in settings.gates,
            class_settings=settings.class_settings,
        )
        self._cycle = Cycle(self._cluster, settings.gates, strategies=settings.strategies)
        self._publisher = ConfigurationPublisher(calls, settings, lambda: self._cycle.strategies)
        self._watches = Watches(calls, self._cluster, self._wake)
        features = Features.of(settings.gates)
        self._fragmentation = ObservedFragmentation(self._cluster, features, self._watches.pods.all)
        self._sharing = self._share_pools(calls) if settings.pool_leases is not None else None
        self._pending = PendingPods(self._watches.pods, settings.names)
        self._conditions = PodConditionWriter(calls, clock, component=NAME)
        self._report = SchedulingReport(self._conditions, self.counters, settings.strategies, self._exists)
        self._preemptor: Preemptor | None = None
        if "DRAPreemption" in settings.gates:
            evictor = Evictor(calls, clock)
            self._preemptor = Preemptor(
                self._cluster, self._cycle, evictor, self._report, clock, self._wake, settings.names
            )
        # Set when a pod may have become ready, or a slot free.
        self._has_work = asyncio.Event()
        self._slots = WriteSlots(settings.bindings_max, self._has_work.set)
        extended_writer = ExtendedClaimWriter(calls, self._cluster, self._wake)
        volume_writer = VolumeWriter(calls, self._cluster, slots=self._slots, is_pending=self._exists)
        self._binder = Binder(
            calls,
            self._cluster,
            slots=self._slots,
            writer=ClaimWriter(calls, self._cluster, self._wake),
            extended_writer=extended_writer,
            volume_writer=volume_writer,
            progress=self._watches.progress,
            clock=clock,
            reporter=self._report,
        )
        parts = AttemptParts(
            clock=clock,
            time_s=self._time_s,
            settings=settings,
            cluster=self._cluster,
            cycle=self._cycle,
            queue=self._queue,
            long_decisions=LongDecisions(),
            pending=self._pending,
            binder=self._binder,
            slots=self._slots,
            report=self._report,
            wake=self._wake,
            queued=self._has_work.set,
            preemptor=self._preemptor,
            sharing=self._sharing,
        )
        self._pods = PodAttempts(parts, publisher=self._publisher, fragmentation=self._fragmentation)
        self._gangs = GangAttempts(calls, parts)

    async def run(self) -> None:
        """Schedules until cancelled."""
        self.counters.queued = self._count_queued
        self.counters.rejected = self._report.rejected_counts
        self.counters.idle = self._fragmentation.by_driver
        self.counters.waiting = self._report.waiting_counts
        totals = DeviceTotals(self._cluster, Features.of(self._settings.gates))
        self.counters.totals = totals.by_driver
        self.counters.follow = lambda: chain(self._fragmentation.follow(), totals.follow())
        self._watches.pods.subscribe(self._pod_changed)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._conditions.run())
            tasks.create_task(self._pods.run())
            tasks.create_task(self._gangs.run())
            await self._watches.start(tasks, self._settings.gates)
            self._learn_from_placed()
            tasks.create_task(self._publisher.run())
            self._gangs.resume()
            if self._sharing is not None:
                await self._sharing.start(tasks)
            await self._schedule(tasks)

    def _learn_from_placed(self) -> None:
        """Typical pods, from those that were placed in earlier terms."""
        placed = (pod for pod in self._watches.pods.all() if pod.spec.node_name and not pod.is_finished)
        self._cycle.learn_from(
            (pod, filter(None, map(self._cluster.find_claim, claims_used_by(pod)))) for pod in placed
        )
        self._publisher.check()

    def _exists(self, pod: Pod) -> bool:
        return self._pending.find(queue_key(pod)) is not None

    def _share_pools(self, calls: ApiCalls) -> SharedPools:
        settings = self._settings
        assert settings.pool_leases is not None
        return SharedPools(
            calls,
            settings.pool_leases,
            self._clock,
            cluster=self._cluster,
            watches=self._watches,
            selects_pool=settings.owns_pool,
            wake=self._wake,
        )

    def _may_allocate_from(self, pool_id: PoolId) -> bool:
        if not self._settings.owns_pool(pool_id):
            return False
        return self._sharing is None or self._sharing.may_allocate_from(pool_id)

    def _count_queued(self) -> Mapping[str, int]:
        counts = self._queue.counts()
        return {**counts, "gated": counts["gated"] + self._pending.gated_count}

    # --- 1. Watch events go to the queue ----------------------------------------------------------------------------

    def _pod_changed(self, before: Pod | None, after: Pod | None) -> None:
        self._pending.pod_changed(before, after)
        if self._preemptor is not None:
            self._preemptor.pod_changed(before, after)
        group = self._gangs.pod_changed(before, after)
        if after is not None and self._pending.is_pending(after):
            # A pod whose scheduling gates were removed is new to its group.
            self._enqueue(after, group, is_new=before is None or not self._pending.is_pending(before))
            if before is None:
                self.counters.incoming.add("active", "PodAdd")
            elif may_change_outcome(before, after):
                self._wake((pod_changed(pod_key(after)),))
        elif before is not None:
            if group is None:
                self._queue.discard(queue_key(before))
            else:
                self._gangs.leave(group)
            self._binder.notify((pod_changed(pod_key(before)),))
            if self._sharing is not None:
                self._sharing.forget(queue_key(before))
            self._report.removed(before)
            self._pods.forget(queue_key(before))
        self._has_work.set()

    def _enqueue(self, pod: Pod, group: PodGroupKey | None, *, is_new: bool) -> None:
        if group is None:
            self._queue.add(queue_key(pod), priority=pod.spec.priority or 0, now_s=self._time_s())
        else:
            self._gangs.enqueue(group, pod, is_new=is_new)

    def _wake(self, events: Collection[ClusterEvent]) -> None:
        if not events:
            return
        self._binder.notify(events)
        now_s = self._time_s()
        for event in events:
            woken = self._queue.wake(event, now_s=now_s)
            if woken:
                self.counters.incoming.add("backoff", event.kind, amount=woken)
        self._has_work.set()

    # --- 2. One pod after the other is decided on -------------------------------------------------------------------

    async def _schedule(self, tasks: asyncio.TaskGroup) -> None:
        while True:
            self._has_work.clear()
            if self._attempt_some(tasks):
                # Let watches and writes run.
                await asyncio.sleep(0)
            else:
                await self._wait()

    def _attempt_some(self, tasks: asyncio.TaskGroup) -> bool:
        """Tries several ready pods without yielding, so that those that share a claim share its write, too.

        Decisions in a row are faster, too: between other work, the processor's caches lose them.
        """
        now_s, end = self._time_s(), self._clock.now() + ATTEMPTS_TIME
        for number in range(ATTEMPTS_AT_ONCE):
            queued = self._queue.pop(now_s=now_s) if self._slots else None
            if queued is None:
                return number > 0
            self._attempt(queued, tasks)
            if self._clock.now() > end:
                break
        return True

    async def _wait(self) -> None:
        """Returns when there may be work, or when a back-off ends."""
        ready_s = self._queue.next_time_s() if self._slots else None
        if ready_s is None:
            await self._has_work.wait()
            return
        try:
            async with asyncio.timeout_at(ready_s):
                await self._has_work.wait()
        except TimeoutError:
            return

    def _attempt(self, queued: QueuedPod, tasks: asyncio.TaskGroup) -> None:
        if isinstance(queued.key, PodGroupKey):
            self._gangs.attempt(queued.key, tasks)
            return
        key: QueueKey = queued.key  # type: ignore[assignment]
        self._report.attempt_begins(key)
        pod = self._pending.find(key)
        group = self._gangs.group_of(pod) if pod is not None else None
        if pod is None or group is not None:
            self._queue.placed(key)
            if pod is not None and group is not None:
                self._gangs.join(group, pod)
            return
        self._pods.attempt(pod, key, tasks)
