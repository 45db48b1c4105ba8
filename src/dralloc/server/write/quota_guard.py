"""The write guard of quotas: limits on the objects of a namespace, and on the devices of each class that its claims request.

Usage is summed up from stored objects by views of the store, only for namespaces with a quota. A new object is charged before it is
stored, so that concurrent writes cannot exceed a quota together. The status of a quota is written with each charge; a controller corrects
it when objects are deleted.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from dralloc.kube.codec import decode, decode_again
from dralloc.kube.core_v1 import ResourceQuota
from dralloc.kube.kind import Kind
from dralloc.kube.meta_v1 import ApiObject
from dralloc.kube.pod_claims import controller_of
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.quota import (
    QuotaCharge,
    QuotaFacts,
    charge_of_pod,
    explain_excess,
    find_excess,
    is_extended_usage,
    usage_of_claim,
)
from dralloc.kube.registry import POD, RESOURCE_QUOTA
from dralloc.kube.resource_v1 import DeviceClass, ResourceClaim
from dralloc.kube.unstructured_object import UnstructuredObject, view
from dralloc.primitives.errors import NotFound
from dralloc.primitives.features import FeatureGates
from dralloc.primitives.quantity import Quantity
from dralloc.server.documents.json_documents import Document
from dralloc.server.http.statuses import forbidden
from dralloc.server.read.api_resources import key_of, name_of, namespace_of, prefix_of
from dralloc.server.read.store_view import RecordIndex, StoreView
from dralloc.server.read.stored_form import from_stored
from dralloc.server.store.interface import Store
from dralloc.server.store.records import Record
from dralloc.server.write.write_guards import GuardedView, GuardLedger, Hold, Holds, all_ready

Limits = Mapping[str, Quantity]
WriteQuota = Callable[[str, Callable[[Document], Document]], Awaitable[object]]


class QuotaGuard:
    def __init__(
        self,
        store: Store,
        kind: Kind,
        limits: StoreView[QuotaLimits],
        classes: StoreView[ExtendedResourceNames],
        gates: FeatureGates,
    ) -> None:
        self._store = store
        self._kind = kind
        self._limits = limits
        self._classes = classes
        self._gates = gates
        self._namespaces: dict[str, _NamespaceUsage] = {}
        # Pods and claims are charged under the same names for extended resources.
        self._other: QuotaGuard | None = None

    def charge_with(self, other: QuotaGuard) -> None:
        """The objects of both guards are charged together under the names that they have in common."""
        self._other, other._other = other, self

    async def hold(self, key: str, new: ApiObject, old: ApiObject | None) -> Hold | None:
        # Updates change no charge: the charged fields of all kinds are immutable.
        if old is not None:
            return None
        namespace = namespace_of(self._kind, key)
        await self._limits.ready()
        quotas = self._limits.index.by_namespace.get(namespace)
        if not quotas:
            await self._forget(namespace)
            return None
        await self._classes.ready()
        # What a claim is charged depends on its pod, and is found out when both are up to date.
        charge = self._charge_of_pod(new) if self._kind is POD else None
        usage = await self._ready_usage(namespace)
        # As they are now: quotas come and go meanwhile.
        quotas = self._limits.index.by_namespace.get(namespace, {})
        charge = charge or self.charge_of(new)
        for name, hard in quotas.items():
            if excess := find_excess(hard, self._used(namespace, hard.keys() & charge.amounts.keys()), charge.amounts):
                raise forbidden(self._kind.group, self._kind.plural, name_of(key), explain_excess(name, excess))
        held = usage.objects.hold(key, charge)
        limited = {name for hard in quotas.values() for name in hard.keys() & charge.amounts.keys()}
        if self._other is None or not any(map(is_extended_usage, limited)):
            return held
        # Another server may be about to charge an object of the other kind under the same name.
        return Holds((held, self._other.usage_of(namespace).objects.hold_fence(lambda: None)))

    def usage_of(self, namespace: str) -> _NamespaceUsage:
        usage = self._namespaces.get(namespace)
        if usage is None:
            usage = self._namespaces[namespace] = _NamespaceUsage(self._store, self, namespace)
        return usage

    async def _ready_usage(self, namespace: str) -> _NamespaceUsage:
        """What is used, when this is up to date in both guards. The caller then decides at once."""
        # Pods first: what a claim is charged may depend on its pod.
        guards = [self] if self._other is None else sorted((self, self._other), key=lambda each: each.kind is not POD)
        for guard in guards:
            if namespace not in guard._namespaces:
                await guard._forget_unlimited()
        usages = [guard.usage_of(namespace) for guard in guards]
        for usage in usages:
            usage.waiting += 1
        try:
            await all_ready([usage.objects for usage in usages])
        finally:
            for usage in usages:
                usage.waiting -= 1
        return self.usage_of(namespace)

    def charged_before(self, namespace: str) -> GuardedView[Any, Any] | None:
        """The pods, for claims: what a claim is charged may depend on its pod."""
        return self._other.usage_of(namespace).objects if self._other is not None and self._kind is not POD else None

    def _used(self, namespace: str, names: Iterable[str]) -> dict[str, int]:
        """What the objects of the namespace use under these names."""
        usages = [guard._namespaces.get(namespace) for guard in (self, self._other) if guard is not None]
        used = [usage.objects.ledger.used for usage in usages if usage is not None]
        return {name: sum(each[name] for each in used) for name in names}

    async def record_use(self, key: str, write: WriteQuota) -> None:
        """Write what is used, with the held charges of the object, to the status of the quotas that limit it."""
        namespace = namespace_of(self._kind, key)
        usage = self._namespaces.get(namespace)
        charge = usage.objects.ledger.find(key) if usage is not None else None
        if usage is None or charge is None:
            return
        # One write at a time: it has the charges of all that wait.
        async with usage.writing:
            # Quotas come and go meanwhile.
            for quota, hard in tuple(self._limits.index.by_namespace.get(namespace, {}).items()):
                now = self._used(namespace, hard.keys() & charge.amounts.keys())
                used = {name: Quantity.of(amount).exact_text for name, amount in now.items()}
                if used:
                    with suppress(NotFound):
                        await write(key_of(RESOURCE_QUOTA, namespace, quota), partial(_with_use, used))

    async def stop(self) -> None:
        for usage in self._namespaces.values():
            await usage.objects.stop()

    def charge_of_record(self, record: Record) -> QuotaCharge:
        if self._kind is POD:
            return charge_of_pod(decode_again(record.value, Pod))
        return self.charge_of(from_stored(self._kind, record.value))

    def charge_of(self, obj: ApiObject) -> QuotaCharge:
        if isinstance(obj, ResourceClaim):
            facts = QuotaFacts(
                extended_names=self._classes.index.names,
                counts_extended="DRAExtendedResource" in self._gates,
                pod_usage=self._pod_usage(obj),
            )
            return QuotaCharge(usage_of_claim(obj, facts))
        suffix = f".{self._kind.group}" if self._kind.group else ""
        return QuotaCharge({f"count/{self._kind.plural}{suffix}": 1})

    @staticmethod
    def _charge_of_pod(pod: ApiObject) -> QuotaCharge:
        assert isinstance(pod, UnstructuredObject), "pods are modelled in part"
        return charge_of_pod(view(pod, Pod))

    def _pod_usage(self, claim: ResourceClaim) -> Mapping[str, int]:
        """What the pod of a claim for extended resources is charged already."""
        owner, namespace = controller_of(claim.metadata), claim.metadata.namespace
        pods = self._other._namespaces.get(namespace) if self._other is not None else None
        if owner is None or pods is None:
            return {}
        charge = pods.objects.ledger.find(key_of(POD, namespace, owner.name))
        return charge.amounts if charge is not None and charge.covers(claim) else {}

    @property
    def kind(self) -> Kind:
        return self._kind

    async def _forget_unlimited(self) -> None:
        """Stop to count in namespaces without a quota, most of which are gone: nothing is created there any more."""
        for namespace in self._namespaces.keys() - self._limits.index.by_namespace.keys():
            await self._forget(namespace)

    async def _forget(self, namespace: str) -> None:
        """Together with the objects of the other guard, which follow these, or which these follow."""
        guards = [guard for guard in (self, self._other) if guard is not None]
        usages = [usage for guard in guards if (usage := guard._namespaces.get(namespace)) is not None]
        if not usages or any(usage.waiting or usage.objects.ledger.holds_any for usage in usages):
            return
        for guard in guards:
            guard._namespaces.pop(namespace, None)
        for usage in usages:
            await usage.objects.stop()


class _NamespaceUsage:
    def __init__(self, store: Store, guard: QuotaGuard, namespace: str) -> None:
        self.writing = asyncio.Lock()
        # Creates that are about to be decided, also if the quota has gone since they began.
        self.waiting = 0
        prefix = prefix_of(guard.kind, namespace)
        self.objects = GuardedView[_Charges, QuotaCharge](
            store,
            prefix,
            lambda: _Charges(guard.charge_of_record),
            fence=f"quota{prefix}",
            follows=guard.charged_before(namespace),
        )


class _Charges(GuardLedger[QuotaCharge]):
    """What is charged for each object, and the sums."""

    def __init__(self, read: Callable[[Record], QuotaCharge]) -> None:
        super().__init__(read, self._add_amounts)
        self.used: Counter[str] = Counter()

    def _add_amounts(self, charge: QuotaCharge, sign: int) -> None:
        for name, amount in charge.amounts.items():
            self.used[name] += sign * amount


def _with_use(used: Mapping[str, str], quota: Document) -> Document:
    """The quota with these amounts. A quota that its controller has not seen yet has none to be changed."""
    status = quota.get("status") or {}
    before = status.get("used") or {}
    changed = {name: amount for name, amount in used.items() if name in before}
    return {**quota, "status": {**status, "used": {**before, **changed}}} if changed else quota


class QuotaLimits(RecordIndex):
    """The hard limits of each namespace by the names of its quotas."""

    def __init__(self) -> None:
        self.by_namespace: defaultdict[str, dict[str, Limits]] = defaultdict(dict)

    def _put(self, key: str, record: Record | None) -> None:
        namespace = namespace_of(RESOURCE_QUOTA, key)
        limits = self.by_namespace[namespace]
        limits.pop(name_of(key), None)
        if record is not None:
            limits[name_of(key)] = decode_again(record.value, ResourceQuota).spec.hard
        if not limits:
            del self.by_namespace[namespace]


class ExtendedResourceNames(RecordIndex):
    """The extended resource name of each device class that has one."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}

    def _put(self, key: str, record: Record | None) -> None:
        self.names.pop(name_of(key), None)
        extended = decode(record.value, DeviceClass).spec.extended_resource_name if record else None
        if extended:
            self.names[name_of(key)] = extended
