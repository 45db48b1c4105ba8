"""All nodes at once, as the rest of the cluster sees them: bound pods run, some end by themselves, deleted ones go."""

from __future__ import annotations

import asyncio

from dralloc.api.core_v1 import Pod
from dralloc.api.timestamps import parse_timestamp
from dralloc.client.calls import Calls
from dralloc.client.informer import Informer
from dralloc.client.reflector import Reflector
from dralloc.client.resource import ObjectKey, key_of
from dralloc.client.resources import resource_for
from dralloc.client.work_queue import Backoff, WorkQueue, work
from dralloc.primitives.clock import Clock
from dralloc.primitives.errors import NotFound

PODS = resource_for(Pod)
# Pods that say so end this many seconds after they were made; the others run until they are deleted.
ENDS_AFTER = "simulator/ends-after-seconds"


class PodLives:
    """Brings every bound pod through its life."""

    def __init__(self, calls: Calls, clock: Clock) -> None:
        self._calls = calls
        self._clock = clock
        self._pods: Informer[Pod] = Informer()
        self._queue: WorkQueue[ObjectKey] = WorkQueue(Backoff(first_s=0.5, most_s=30))

    async def run(self) -> None:
        """Live until cancelled."""
        self._pods.subscribe(lambda before, after: self._queue.add(key_of(after or before)))  # type: ignore[arg-type]
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(Reflector(self._calls, PODS, self._pods).run())
            for _ in range(4):
                tasks.create_task(work(self._queue, self._advance, lambda *_: None))

    async def _advance(self, key: ObjectKey) -> None:
        pod = self._pods.get(key.name, key.namespace)
        if pod is None or not pod.spec.node_name:
            return
        try:
            if pod.is_terminating:
                await self._calls.delete(PODS, key, uid=pod.metadata.uid, grace_period_s=0)
            elif not pod.is_finished and pod.status.phase != "Running":
                await self._set_phase(key, pod, "Running")
            elif pod.status.phase == "Running" and (lifetime := pod.metadata.annotations.get(ENDS_AFTER)):
                await self._end_when_due(key, pod, float(lifetime))
        except NotFound:
            return

    async def _end_when_due(self, key: ObjectKey, pod: Pod, lifetime_s: float) -> None:
        created = parse_timestamp(pod.metadata.creation_timestamp or "")
        left_s = lifetime_s - (self._clock.now() - created).total_seconds()
        if left_s <= 0:
            await self._set_phase(key, pod, "Succeeded")
        else:
            self._queue.add_after(key, left_s)

    async def _set_phase(self, key: ObjectKey, pod: Pod, phase: str) -> None:
        # The UID makes sure that it is still the same pod.
        patch = {"metadata": {"uid": pod.metadata.uid}, "status": {"phase": phase}}
        await self._calls.patch(PODS, key, patch, subresource="status")
