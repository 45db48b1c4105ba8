"""Keeps the statuses of resource quotas up to date."""

from __future__ import annotations

import asyncio
from functools import partial
from itertools import chain
from typing import Any, ClassVar, Final

from dralloc.api.core_v1 import ResourceQuota
from dralloc.api.meta_v1 import ApiObject
from dralloc.api.pod_v1 import Pod
from dralloc.api.resource_v1 import DeviceClass, ResourceClaim
from dralloc.client.known_resources import resource_for
from dralloc.client.typed_resource import ObjectKey, TypedResource, key_of
from dralloc.controllers.controller_context import ControllerContext
from dralloc.controllers.controller_loop import Controller
from dralloc.controllers.mutation_cache import MutationCache
from dralloc.controllers.planned_actions import PlannedActions
from dralloc.controllers.quota.namespace_usage import NamespaceUsage
from dralloc.controllers.quota.plan import WriteUsage, plan_quota
from dralloc.controllers.shared_informers import JOBS, TEMPLATES

FIELD_MANAGER: Final = "resource-quota-controller"
QUOTAS: Final = resource_for(ResourceQuota)
CLAIMS: Final = resource_for(ResourceClaim)
CLASSES: Final = resource_for(DeviceClass)
PODS: Final = resource_for(Pod)
# Kinds whose objects are counted. Claims are charged for their devices as well.
COUNTED: Final[tuple[TypedResource[Any], ...]] = (PODS, TEMPLATES, JOBS, QUOTAS)

# The minimum between two writes of a status: claims may be created by the hundred.
WRITE_PAUSE_S: Final = 1.0


class QuotaController(Controller[ObjectKey, WriteUsage]):
    """Keys are quotas."""

    queue_name: ClassVar[str] = "resource_quota"
    workers: ClassVar[int] = 4

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self._calls = context.calls(FIELD_MANAGER)
        self._usage = NamespaceUsage(counts_extended="DRAExtendedResource" in context.gates)
        self._written_s: dict[ObjectKey, float] = {}
        informers = context.informers
        self._quota_informer, self._claims = informers.informer_for(QUOTAS), informers.informer_for(CLAIMS)
        self._quotas = MutationCache(self._quota_informer)
        informers.informer_for(CLASSES).subscribe(self._on_class)
        self._claims.subscribe(self._on_claim)
        informers.informer_for(PODS).subscribe(self._on_pod)
        for resource in COUNTED:
            name = f"count/{resource.plural}{'.' + resource.group if resource.group else ''}"
            self._usage.count_objects(name)
            informers.informer_for(resource).subscribe(partial(self._on_object, name))
        self._quota_informer.subscribe(self._on_quota)

    def _on_claim(self, before: ResourceClaim | None, after: ResourceClaim | None) -> None:
        if before is None or after is None:
            self._usage.change_claim(before, after)
            self._queue_quotas((after or before).metadata.namespace)  # type: ignore[union-attr]

    def _on_pod(self, before: Pod | None, after: Pod | None) -> None:
        if self._usage.change_pod(before, after):
            self._queue_quotas((after or before).metadata.namespace)  # type: ignore[union-attr]

    def _on_object(self, name: str, before: ApiObject | None, after: ApiObject | None) -> None:
        if before is None and after is not None:
            self._usage.change_object(name, after.metadata.namespace, 1)
            self._queue_quotas(after.metadata.namespace)
        elif after is None and before is not None:
            self._usage.change_object(name, before.metadata.namespace, -1)
            self._queue_quotas(before.metadata.namespace)

    def _on_class(self, before: DeviceClass | None, after: DeviceClass | None) -> None:
        if self._usage.change_class(before, after):
            self._usage.recount_claims(self._claims.all())
            for quota in self._quota_informer.all():
                self.queue.add(key_of(quota))

    def _on_quota(self, before: ResourceQuota | None, after: ResourceQuota | None) -> None:
        quota = after or before
        assert quota is not None, "a change has an object"
        if before is None or after is None or before.spec.hard != after.spec.hard:
            namespace = quota.metadata.namespace
            quotas = self._quota_informer.by("namespace", namespace)
            self._usage.limit(namespace, chain.from_iterable(each.spec.hard for each in quotas))
            self._queue_quotas(namespace)
        if after is not None:
            self.queue.add(key_of(after))
        else:
            self._written_s.pop(key_of(quota), None)

    def _queue_quotas(self, namespace: str) -> None:
        for quota in self._quota_informer.by("namespace", namespace):
            self.queue.add(key_of(quota))

    async def plan(self, key: ObjectKey) -> PlannedActions[WriteUsage]:
        quota = self._quotas.get(key.name, key.namespace)
        if quota is None:
            return PlannedActions()
        actions = plan_quota(quota, self._usage.of(key.namespace, quota.spec.hard))
        pause_s = self._written_s.get(key, -WRITE_PAUSE_S) + WRITE_PAUSE_S - asyncio.get_running_loop().time()
        return PlannedActions((), pause_s) if actions and pause_s > 0 else PlannedActions(actions)

    async def apply(self, action: WriteUsage) -> None:
        key = key_of(action.quota)
        patch = {"metadata": {"uid": action.quota.metadata.uid}, "status": action.patch}
        self._quotas.keep(await self._calls.patch(QUOTAS, key, patch, subresource="status"))
        self._written_s[key] = asyncio.get_running_loop().time()
