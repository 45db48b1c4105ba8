"""What each namespace uses of its quotas, updated by each change: a namespace may have thousands of claims."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from dralloc.api.pod_claims import EXTENDED_RESOURCE_CLAIM, controller_of
from dralloc.api.pod_v1 import Pod
from dralloc.api.quota import (
    QuotaCharge,
    QuotaFacts,
    asks_for_extended,
    extended_charge,
    extended_resource_of,
    is_counted,
    usage_of_claim,
)
from dralloc.api.resource_v1 import DeviceClass, ResourceClaim
from dralloc.primitives.quantity import Quantity

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
        # By namespace: the extended resources that quotas limit, with their quota names; and the pods, by UID, that ask for some.
        # They are charged for these only: a hostile pod asks for 180,000 others.
        self._limited: dict[str, Mapping[str, str]] = {}
        self._asking: dict[str, dict[str, Pod]] = {}
        # What each claim is charged, and pods by UID; and claims whose charge may depend on a pod, by its UID.
        self._claims: dict[ObjectName, Charges] = {}
        self._pods: dict[str, QuotaCharge] = {}
        self._owned: dict[str, dict[ObjectName, ResourceClaim]] = {}
        self._objects: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._object_names: set[str] = set()

    def of(self, namespace: str, names: Iterable[str]) -> dict[str, Quantity]:
        """The usage of these resources in the namespace; those that are not counted, or not limited, are left out."""
        charged, objects = self._charged.get(namespace, Counter()), self._objects.get(namespace, Counter())
        limited = self._limited.get(namespace, {})
        used = {}
        for name in names:
            if name in self._object_names:
                used[name] = Quantity.of(objects[name])
            elif is_counted(name) and ((resource := extended_resource_of(name)) is None or resource in limited):
                used[name] = Quantity.of(charged[name])
        return used

    def count_objects(self, name: str) -> None:
        """Count objects under this name, even while there are none."""
        self._object_names.add(name)

    def change_object(self, name: str, namespace: str, by: int) -> None:
        _add(self._objects, namespace, name, by)

    def limit(self, namespace: str, names: Iterable[str]) -> None:
        """Count the extended resources that quotas of the namespace limit, by their quota names."""
        limited = {resource: name for name in names if (resource := extended_resource_of(name)) is not None}
        if limited.keys() == self._limited.get(namespace, {}).keys():
            return
        self._limited[namespace] = limited
        for uid, pod in self._asking.get(namespace, {}).items():
            self._charge_pod(namespace, uid, extended_charge(pod, limited))
        if not limited:
            del self._limited[namespace]

    def change_pod(self, before: Pod | None, after: Pod | None) -> bool:
        """Apply a change of a pod to its extended resources; returns True if the usage may have changed."""
        pod = after or before
        assert pod is not None, "a change has an object"
        uid, namespace = pod.metadata.uid, pod.metadata.namespace
        if after is not None and asks_for_extended(after):
            self._asking.setdefault(namespace, {})[uid] = after
            return self._charge_pod(namespace, uid, extended_charge(after, self._limited.get(namespace, {})))
        asking = self._asking.get(namespace)
        if asking is None or asking.pop(uid, None) is None:
            return False
        if not asking:
            del self._asking[namespace]
        return self._charge_pod(namespace, uid, None)

    def _charge_pod(self, namespace: str, uid: str, new: QuotaCharge | None) -> bool:
        old = self._pods.pop(uid, None)
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
