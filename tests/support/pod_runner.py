"""All nodes of a simulation: bound pods run, some end by themselves, deleted pods are removed.

A pod runs as soon as each of its claims is allocated and reserved for it. Devices are not prepared.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from dralloc.client.api_calls import ApiCalls
from dralloc.client.informer import Informer
from dralloc.client.known_resources import resource_for
from dralloc.client.reflector import Reflector
from dralloc.client.typed_resource import ObjectKey, key_of
from dralloc.client.work_queue import Backoff, WorkQueue, work
from dralloc.kube.pod_claims import claims_of, is_reserved_for, may_use
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import ResourceClaim
from dralloc.kube.timestamps import parse_timestamp
from dralloc.primitives.clock import Clock
from dralloc.primitives.errors import NotFound

PODS = resource_for(Pod)
CLAIMS = resource_for(ResourceClaim)
# Seconds after its creation at which a pod with this annotation ends; other pods run until they are deleted.
ENDS_AFTER = "simulator/ends-after-seconds"


class PodRunner:
    """Moves every bound pod through its phases."""

    def __init__(self, calls: ApiCalls, clock: Clock) -> None:
        self._calls = calls
        self._clock = clock
        self._pods: Informer[Pod] = Informer({"claim": _claim_keys})
        self._claims: Informer[ResourceClaim] = Informer()
        self._queue: WorkQueue[ObjectKey] = WorkQueue(Backoff(first_s=0.5, most_s=30))

    async def run(self) -> None:
        self._pods.subscribe(lambda before, after: self._queue.add(key_of(after or before)))  # type: ignore[arg-type]
        self._claims.subscribe(self._on_claim)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(Reflector(self._calls, PODS, self._pods).run())
            tasks.create_task(Reflector(self._calls, CLAIMS, self._claims).run())
            for _ in range(4):
                tasks.create_task(work(self._queue, self._advance, lambda *_: None))

    def _on_claim(self, _: ResourceClaim | None, after: ResourceClaim | None) -> None:
        if after is not None:
            for pod in self._pods.by("claim", key_of(after)):
                if pod.spec.node_name and pod.status.phase == "Pending":
                    self._queue.add(key_of(pod))

    async def _advance(self, key: ObjectKey) -> None:
        pod = self._pods.get(key.name, key.namespace)
        if pod is None or not pod.spec.node_name:
            return
        try:
            if pod.is_terminating:
                await self._calls.delete_unchanged(PODS, pod, grace_period_s=0)
            elif pod.status.phase == "Pending":
                if self._may_run(pod):
                    await self._set_phase(key, pod, "Running")
            elif pod.status.phase == "Running" and (lifetime := pod.metadata.annotations.get(ENDS_AFTER)):
                await self._end_when_due(key, pod, float(lifetime))
        except NotFound:
            return

    def _may_run(self, pod: Pod) -> bool:
        made = {status.name for status in pod.status.resource_claim_statuses}
        asked = {entry.name for entry in pod.spec.resource_claims if entry.resource_claim_template_name is not None}
        if not asked <= made:
            return False
        for use in claims_of(pod):
            claim = self._claims.get(use.claim, pod.metadata.namespace)
            if claim is None or claim.status.allocation is None:
                return False
            if not may_use(use, claim, pod) or not is_reserved_for(claim, pod):
                return False
        return True

    async def _end_when_due(self, key: ObjectKey, pod: Pod, lifetime_s: float) -> None:
        created = parse_timestamp(pod.metadata.creation_timestamp or "")
        left_s = lifetime_s - (self._clock.now() - created).total_seconds()
        if left_s <= 0:
            await self._set_phase(key, pod, "Succeeded")
        else:
            self._queue.add_after(key, left_s)

    async def _set_phase(self, key: ObjectKey, pod: Pod, phase: str) -> None:
        # The UID excludes a new pod of the same name, the revision a delayed request that arrives after a later phase.
        metadata = {"uid": pod.metadata.uid, "resourceVersion": pod.metadata.resource_version}
        patch = {"metadata": metadata, "status": {"phase": phase}}
        await self._calls.patch(PODS, key, patch, subresource="status")


def _claim_keys(pod: Pod) -> Iterator[ObjectKey]:
    return (ObjectKey(pod.metadata.namespace, use.claim) for use in claims_of(pod))
