"""Keeps the statuses of resource quotas up to date."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Final

from dralloc.client.known_resources import resource_for
from dralloc.client.typed_resource import ObjectKey, TypedResource, key_of
from dralloc.controllers.controller_context import ControllerContext
from dralloc.controllers.controller_loop import Controller
from dralloc.controllers.mutation_cache import MutationCache
from dralloc.controllers.planned_actions import PlannedActions
from dralloc.controllers.shared_informers import JOBS, TEMPLATES
from dralloc.kube.core_v1 import ResourceQuota
from dralloc.kube.meta_v1 import ApiObject
from dralloc.kube.pod_claims import EXTENDED_RESOURCE_CLAIM, controller_of
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.quota import (
    QuotaCharge,
    QuotaFacts,
    charge_of_pod,
    is_counted,
    usage_of_claim,
)
from dralloc.kube.resource_v1 import DeviceClass, ResourceClaim
from dralloc.primitives.quantity import Quantity

# --- Plan -----------------------------------------------------------------------------------------------------------
# The status of a quota.


Amounts = Mapping[str, Quantity]


@dataclass(frozen=True, slots=True)
class WriteUsage:
    quota: ResourceQuota
    hard: Amounts
    used: Amounts

    @property
    def patch(self) -> dict[str, dict[str, Quantity | None]]:
        """The status as a merge patch that removes absent members."""
        before = self.quota.status
        return {
            "hard": {**dict.fromkeys(before.hard), **self.hard},
            "used": {**dict.fromkeys(before.used), **self.used},
        }


def plan_quota(quota: ResourceQuota, used: Amounts) -> tuple[WriteUsage, ...]:
    """The write that is needed, if any. Limits of resources that are not counted are left out of the status."""
    hard = {name: limit for name, limit in quota.spec.hard.items() if name in used}
    if (quota.status.hard, quota.status.used) == (hard, dict(used)):
        return ()
    return (WriteUsage(quota, hard, used),)


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
            self._queue_quotas(quota.metadata.namespace)
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


# --- Namespace usage ------------------------------------------------------------------------------------------------
# What each namespace uses of its quotas, updated by each change: a namespace may have thousands of claims.


# By quota name. All that is counted here is whole.
Charges = Mapping[str, int]
# Namespace and name.
ObjectName = tuple[str, str]


class NamespaceUsage:
    """Usage by namespace and resource name."""

    def __init__(self, *, counts_extended: bool) -> None:
        self._counts_extended = counts_extended
        # The extended resource of each device class.
        self._extended: dict[str, str] = {}
        self._charged: defaultdict[str, Counter[str]] = defaultdict(Counter)
        # What each claim is charged, and pods by UID; and claims whose charge may depend on a pod, by its UID.
        self._claims: dict[ObjectName, Charges] = {}
        self._pods: dict[str, QuotaCharge] = {}
        self._owned: dict[str, dict[ObjectName, ResourceClaim]] = {}
        self._objects: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._object_names: set[str] = set()

    def of(self, namespace: str, names: Iterable[str]) -> dict[str, Quantity]:
        """The usage of these resources in the namespace; those that are not counted are left out."""
        charged, objects = self._charged.get(namespace, Counter()), self._objects.get(namespace, Counter())
        used = {}
        for name in names:
            if name in self._object_names:
                used[name] = Quantity.of(objects[name])
            elif is_counted(name):
                used[name] = Quantity.of(charged[name])
        return used

    def count_objects(self, name: str) -> None:
        """Count objects under this name, even while there are none."""
        self._object_names.add(name)

    def change_object(self, name: str, namespace: str, by: int) -> None:
        _add(self._objects, namespace, name, by)

    def change_pod(self, before: Pod | None, after: Pod | None) -> bool:
        """Apply a change of a pod to its extended resources; returns True if the usage may have changed."""
        pod = after or before
        assert pod is not None, "a change has an object"
        uid, namespace = pod.metadata.uid, pod.metadata.namespace
        charge = charge_of_pod(after) if after is not None else None
        old, new = self._pods.pop(uid, None), charge if charge is not None and charge.extended_usage else None
        if new is not None:
            self._pods[uid] = new
        if old == new:
            return False
        for charge, sign in ((old, -1), (new, 1)):
            if charge is not None:
                self._add(namespace, charge.extended_usage, sign)
        for claim in tuple(self._owned.get(uid, {}).values()):
            self.change_claim(claim, claim)
        return True

    def change_claim(self, before: ResourceClaim | None, after: ResourceClaim | None) -> None:
        claim = after or before
        assert claim is not None, "a change has an object"
        key, namespace = (claim.metadata.namespace, claim.metadata.name), claim.metadata.namespace
        if (charged := self._claims.pop(key, None)) is not None:
            self._add(namespace, charged, -1)
        # A change can be to another claim of the same name, with another owner.
        self._disown(before, key)
        if after is None:
            return
        self._claims[key] = self._charges(after)
        self._add(namespace, self._claims[key], 1)
        owner = controller_of(after.metadata)
        if owner is not None and EXTENDED_RESOURCE_CLAIM in after.metadata.annotations:
            self._owned.setdefault(owner.uid, {})[key] = after

    def _disown(self, claim: ResourceClaim | None, key: ObjectName) -> None:
        owner = controller_of(claim.metadata) if claim is not None else None
        if owner is not None and (owned := self._owned.get(owner.uid)) is not None:
            owned.pop(key, None)
            if not owned:
                del self._owned[owner.uid]

    def _add(self, namespace: str, charges: Charges, sign: int) -> None:
        for name, amount in charges.items():
            _add(self._charged, namespace, name, sign * amount)

    def change_class(self, before: DeviceClass | None, after: DeviceClass | None) -> bool:
        """Apply a change of a class; returns True if all claims must be counted again."""
        known = after or before
        assert known is not None, "a change has an object"
        name, extended = known.metadata.name, after.spec.extended_resource_name if after is not None else None
        if self._extended.get(name) == extended:
            return False
        self._extended.pop(name, None)
        if extended is not None:
            self._extended[name] = extended
        return True

    def recount_claims(self, claims: Iterable[ResourceClaim]) -> None:
        for claim in claims:
            self.change_claim(claim, claim)

    def _charges(self, claim: ResourceClaim) -> Charges:
        owner = controller_of(claim.metadata)
        pod = self._pods.get(owner.uid) if owner is not None else None
        facts = QuotaFacts(
            extended_names=self._extended,
            counts_extended=self._counts_extended,
            pod_usage=pod.extended_usage if pod is not None and pod.covers(claim) else {},
        )
        return usage_of_claim(claim, facts)


def _add(totals: defaultdict[str, Counter[str]], namespace: str, name: str, amount: int) -> None:
    """Add to the total. Namespaces come and go, so that nothing is kept of one that uses nothing."""
    of_namespace = totals[namespace]
    of_namespace[name] += amount
    if not of_namespace[name]:
        del of_namespace[name]
        if not of_namespace:
            del totals[namespace]
