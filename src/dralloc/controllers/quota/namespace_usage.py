"""What each namespace uses of its quotas, updated by each change: a namespace may have thousands of claims."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from dralloc.api.quota import QuotaFacts, is_counted, usage_of_claim
from dralloc.api.resource_v1 import DeviceClass, ResourceClaim
from dralloc.primitives.quantity import Quantity

Charges = Mapping[str, Quantity]


class NamespaceUsage:
    """Usage by namespace and resource name."""

    def __init__(self, *, counts_extended: bool) -> None:
        self._counts_extended = counts_extended
        # The extended resource of each device class.
        self._extended: dict[str, str] = {}
        self._claims: defaultdict[str, dict[str, Quantity]] = defaultdict(dict)
        self._objects: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._object_names: set[str] = set()

    def of(self, namespace: str, names: Iterable[str]) -> dict[str, Quantity]:
        """The usage of these resources in the namespace; resources that are not counted are left out."""
        claims, objects = self._claims.get(namespace, {}), self._objects.get(namespace, Counter())
        used = {}
        for name in names:
            if name in self._object_names:
                used[name] = Quantity.of(objects[name])
            elif is_counted(name, self._extended.values()) or name in claims:
                used[name] = claims.get(name, Quantity.ZERO)
        return used

    def count_objects(self, name: str) -> None:
        """Count objects under this name, even while there are none."""
        self._object_names.add(name)

    def change_object(self, name: str, namespace: str, by: int) -> None:
        self._objects[namespace][name] += by

    def change_claim(self, claim: ResourceClaim, sign: int) -> None:
        """A claim was added (1) or deleted (-1). Its charges do not change in between."""
        totals = self._claims[claim.metadata.namespace]
        for name, amount in self._charges(claim).items():
            before = totals.get(name, Quantity.ZERO)
            totals[name] = before + amount if sign > 0 else before - amount

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
        self._claims.clear()
        for claim in claims:
            self.change_claim(claim, 1)

    def _charges(self, claim: ResourceClaim) -> Charges:
        facts = QuotaFacts(extended_names=self._extended, counts_extended=self._counts_extended)
        return usage_of_claim(claim, facts)
