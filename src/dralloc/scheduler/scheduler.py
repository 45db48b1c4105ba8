"""The scheduler: watches the cluster, decides for one pod after the other, and has many decisions written at once.

Deciding is quick and strictly one after the other, each decision on what the ones before have left. Writing waits for the
API and happens beside it, up to a bound.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final
from zlib import crc32

from dralloc.api.core_v1 import DEFAULT_SCHEDULER, Node, Pod
from dralloc.api.resource_v1 import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice
from dralloc.client.calls import Calls
from dralloc.client.informer import Informer
from dralloc.client.reflector import Reflector
from dralloc.client.resource import Object
from dralloc.client.resources import resource_for
from dralloc.primitives.clock import Clock
from dralloc.primitives.errors import NotFound
from dralloc.primitives.features import FeatureGates
from dralloc.scheduler.binding import Binder, Bound, Gone, Undone
from dralloc.scheduler.claim_writer import ClaimWriter
from dralloc.scheduler.claims import pod_key
from dralloc.scheduler.cluster import Cluster
from dralloc.scheduler.cycle import Cycle, Fail, Place, Reject
from dralloc.scheduler.news import claim_changed, pod_changed
from dralloc.scheduler.queue import Happening, SchedulingQueue
from dralloc.scheduler.telling import ERROR, UNSCHEDULABLE, Teller
from dralloc.scheduler.watch_progress import WatchProgress
from dralloc.snapshot.identity import PoolId

NAME: Final = "dralloc"
# A pod whose claims are not there yet is told so only when they do not come.
EARLY_S: Final = 5.0

QueueKey = tuple[str, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerSettings:
    """`names` are the schedulerNames of the pods that are ours; `bindings_max` bounds the writes under way."""

    names: frozenset[str] = frozenset({NAME})
    gates: FeatureGates = field(default_factory=FeatureGates.defaults)
    identity: str = NAME
    bindings_max: int = 64
    owns_pool: Callable[[PoolId], bool] = lambda _: True

    @classmethod
    def default_names(cls, *, also_default: bool) -> frozenset[str]:
        return frozenset({NAME, DEFAULT_SCHEDULER} if also_default else {NAME})


class Scheduler:
    def __init__(self, calls: Calls, clock: Clock, settings: SchedulerSettings = SchedulerSettings()) -> None:  # noqa: B008 - immutable
        self._calls = calls
        self._clock = clock
        self._settings = settings
        self._queue = SchedulingQueue()
        self._cluster = Cluster(
            # Two schedulers that find many nodes equally good must not all go for the same one.
            rank=lambda name: crc32(f"{settings.identity}/{name}".encode()),
            owns_pool=settings.owns_pool,
            for_workloads="DRAReservedForWorkloads" in settings.gates,
        )
        self._cycle = Cycle(self._cluster, settings.gates, lambda: str(uuid.uuid4()))
        self._progress = WatchProgress()
        self._writer = ClaimWriter(calls, self._cluster, self._report)
        self._binder = Binder(calls, self._cluster, self._writer, self._progress, clock)
        self._teller = Teller(calls, clock, component=NAME)
        self._pods: Informer[Pod] = Informer()
        self._free_bindings = settings.bindings_max
        self._stirred = asyncio.Event()

    async def run(self) -> None:
        """Schedule until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                informers = await self._watch(tasks)
                tasks.create_task(self._teller.run())
                for informer in informers:
                    await informer.synced.wait()
                await self._schedule(tasks)
        finally:
            await self._writer.close()

    # --- News -------------------------------------------------------------------------------------------------------

    async def _watch(self, tasks: asyncio.TaskGroup) -> list[Informer[Any]]:
        cluster = self._cluster
        informers: list[Informer[Any]] = []

        def follow(kind: type[Object], informer: Informer[Object], handle: Callable[..., Iterable[Happening]]) -> None:
            informer.subscribe(lambda before, after: self._report(handle(before, after)))
            informers.append(informer)
            tasks.create_task(Reflector(self._calls, resource_for(kind), informer).run())

        follow(Node, Informer(), cluster.node_changed)
        follow(DeviceClass, Informer(), cluster.class_changed)
        follow(ResourceSlice, Informer(), cluster.slice_changed)
        if "DRADeviceTaintRules" in self._settings.gates and await self._serves(DeviceTaintRule):
            follow(DeviceTaintRule, Informer(), cluster.rule_changed)
        follow(ResourceClaim, Informer(), self._claim_changed)
        follow(Pod, self._pods, self._pod_changed)
        return informers

    async def _serves(self, kind: type[Object]) -> bool:
        """Whether the server has such objects at all; older ones do not have them all."""
        try:
            await self._calls.page(resource_for(kind), query={"limit": "1"})
        except NotFound:
            return False
        return True

    def _claim_changed(self, before: ResourceClaim | None, after: ResourceClaim | None) -> Iterable[Happening]:
        news = self._cluster.claim_changed(before, after)
        if after is not None:
            self._progress.advance(after.metadata.resource_version)
        return news

    def _pod_changed(self, before: Pod | None, after: Pod | None) -> Iterable[Happening]:
        news = self._cluster.pod_changed(before, after)
        if after is not None and self._is_ours(after):
            self._queue.add(queue_key(after), priority=after.spec.priority or 0, now_s=self._now_s())
            return (*news, pod_changed(pod_key(after))) if before is not None and _is_news(before, after) else news
        if before is not None:
            self._queue.discard(queue_key(before))
            self._teller.forget(before)
        return news

    def _report(self, news: Iterable[Happening]) -> None:
        now_s = self._now_s()
        for happening in news:
            self._queue.happened(happening, now_s=now_s)
        self._stirred.set()

    def _is_ours(self, pod: Pod) -> bool:
        spec = pod.spec
        is_waiting = not spec.node_name and not spec.scheduling_gates and not pod.is_finished and not pod.is_terminating
        return is_waiting and spec.scheduler_name in self._settings.names

    # --- Attempts ---------------------------------------------------------------------------------------------------

    async def _schedule(self, tasks: asyncio.TaskGroup) -> None:
        while True:
            self._stirred.clear()
            queued = self._queue.pop(now_s=self._now_s()) if self._free_bindings else None
            if queued is None:
                await self._wait()
                continue
            self._attempt(queued.key, tasks)
            # Watches and writes get their turn between any two attempts.
            await asyncio.sleep(0)

    async def _wait(self) -> None:
        """Until something happens, or a pod is ready by itself."""
        ready_s = self._queue.next_time_s()
        if ready_s is None or not self._free_bindings:
            await self._stirred.wait()
            return
        try:
            async with asyncio.timeout_at(ready_s):
                await self._stirred.wait()
        except TimeoutError:
            return

    def _attempt(self, key: Any, tasks: asyncio.TaskGroup) -> None:
        namespace, name, uid = key
        pod = self._pods.get(name, namespace)
        if pod is None or pod.metadata.uid != uid or not self._is_ours(pod):
            self._queue.placed(key)
            return
        decision = self._cycle.decide(pod, self._clock.now())
        match decision:
            case Place():
                self._cluster.assume(pod, decision.node, decision.allocations)
                self._queue.binding(key)
                self._free_bindings -= 1
                tasks.create_task(self._bind(pod, decision))
            case Reject(is_early=True):
                self._queue.gated(key, waits_for=decision.waits_for, now_s=self._now_s())
                asyncio.get_running_loop().call_later(EARLY_S, self._tell_if_still_early, key, decision)
            case Reject():
                self._queue.rejected(key, waits_for=decision.waits_for, now_s=self._now_s())
                if decision.deallocate is not None:
                    tasks.create_task(self._deallocate(pod, decision))
                self._teller.waits(pod, UNSCHEDULABLE, decision.message)
            case Fail():
                self._queue.rejected(key, waits_for=decision.waits_for, now_s=self._now_s())
                self._teller.waits(pod, ERROR, decision.message)

    def _tell_if_still_early(self, key: QueueKey, decision: Reject) -> None:
        namespace, name, uid = key
        pod = self._pods.get(name, namespace)
        if pod is not None and pod.metadata.uid == uid and self._queue.waits_for(key) == decision.waits_for:
            self._teller.waits(pod, UNSCHEDULABLE, decision.message)

    async def _bind(self, pod: Pod, place: Place) -> None:
        outcome = await self._binder.bind(pod, place)
        self._free_bindings += 1
        key = queue_key(pod)
        match outcome:
            case Bound():
                self._queue.placed(key)
                self._teller.scheduled(pod, place.node)
                self._stirred.set()
                return
            case Gone():
                self._queue.placed(key)
            case Undone(message, is_collision):
                end = self._queue.collided if is_collision else self._queue.failed
                end(key, now_s=self._now_s())
                if not is_collision:
                    self._teller.waits(pod, ERROR, message)
        self._report(self._cluster.forget(pod, place.allocations))
        await self._binder.undo(pod, place)

    async def _deallocate(self, pod: Pod, decision: Reject) -> None:
        assert decision.deallocate is not None
        if await self._binder.deallocate(decision.deallocate, pod):
            self._report((claim_changed(decision.deallocate),))

    def _now_s(self) -> float:
        return asyncio.get_running_loop().time()


def queue_key(pod: Pod) -> QueueKey:
    """A pod that was made again under its name is another pod."""
    return (pod.metadata.namespace, pod.metadata.name, pod.metadata.uid)


def _is_news(before: Pod, after: Pod) -> bool:
    """Whether an attempt may end otherwise for what has changed in the pod itself."""
    return before.spec != after.spec or before.status.resource_claim_statuses != after.status.resource_claim_statuses
