"""The quota usage of a claim: how many devices of each class it may hold; and of a pod: its extended resources.

A request with alternatives is charged the maximum per class over its alternatives, because any of them may be chosen.
Mode `All` is charged the largest number of devices that a claim can hold. Shares are not charged by their size.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from msgspec import Struct

from dralloc.kube import resource_v1
from dralloc.kube.extended_resources import extended_names, implicit_name, is_extended
from dralloc.kube.pod_claims import EXTENDED_RESOURCE_CLAIM, controller_of
from dralloc.kube.pod_requests import peak_requests
from dralloc.kube.pod_v1 import Pod
from dralloc.primitives.quantity import NANOS, Quantity

CLAIM_COUNT: Final = f"count/resourceclaims.{resource_v1.GROUP}"
DEVICES_SUFFIX: Final = f".deviceclass.{resource_v1.GROUP}/devices"
POD_COUNT: Final = "count/pods"
ALL_DEVICES_COUNT: Final = 32
_REQUESTS: Final = "requests."


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaFacts:
    """The facts besides the claim that its charge depends on.

    A claim that the scheduler made for the extended resources of a pod would duplicate the pod's own charge;
    `pod_usage` is that charge, by quota name, and empty for all other claims.
    """

    # Explicit extended resource names, by class.
    extended_names: Mapping[str, str] = field(default_factory=dict)
    counts_extended: bool = True
    pod_usage: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Excess:
    """A quota name whose limit would be exceeded."""

    name: str
    used: Quantity
    requested: Quantity
    limit: Quantity


def usage_of_claim(claim: resource_v1.ResourceClaim, facts: QuotaFacts) -> dict[str, int]:
    """Returns the claim's charge, by quota name."""
    devices = devices_by_class(claim.spec)
    usage = {CLAIM_COUNT: 1, **{f"{name}{DEVICES_SUFFIX}": count for name, count in devices.items()}}
    if facts.counts_extended:
        usage.update(_extended_usage(devices, facts))
    return usage


class QuotaCharge(Struct, frozen=True, gc=False):
    """What an object is charged; of a pod also what tells whether a claim was made for its extended resources."""

    amounts: Mapping[str, int]
    uid: str = ""
    # The claim for its extended resources that its status names.
    extended_claim: str = ""

    def covers(self, claim: resource_v1.ResourceClaim) -> bool:
        """True if the claim is the pod's own for its extended resources."""
        owner = controller_of(claim.metadata)
        is_owned = owner is not None and owner.kind == "Pod" and owner.uid == self.uid
        is_special = claim.metadata.annotations.get(EXTENDED_RESOURCE_CLAIM) == "true"
        return is_owned and is_special and self.extended_claim in ("", claim.metadata.name)

    @property
    def extended_usage(self) -> dict[str, int]:
        """Its extended resources, by quota name."""
        return {name: amount for name, amount in self.amounts.items() if is_extended_usage(name)}


def charge_of_pod(pod: Pod) -> QuotaCharge:
    """One object, and the extended resources of a pod that has not ended."""
    amounts = {POD_COUNT: 1}
    if not pod.is_finished and (names := extended_names(pod.spec)):
        peak = peak_requests(pod.spec)
        # Extended resources are whole.
        amounts |= {_quota_name(name): -(-peak[name] // NANOS) for name in sorted(names)}
    status = pod.status.extended_resource_claim_status
    return QuotaCharge(amounts, pod.metadata.uid, status.resource_claim_name if status is not None else "")


def devices_by_class(spec: resource_v1.ResourceClaimSpec) -> dict[str, int]:
    """Returns the maximal number of devices that the claim can hold, by class."""
    total: Counter[str] = Counter()
    for request in spec.devices.requests or ():
        for class_name, count in _charge(request).items():
            total[class_name] += count
    return dict(total)


def is_counted(name: str) -> bool:
    """True if claims, or pods for their extended resources, are charged under this quota name."""
    if name == CLAIM_COUNT or name.endswith(DEVICES_SUFFIX):
        return True
    return is_extended_usage(name) and is_extended(name.removeprefix(_REQUESTS))


def is_extended_usage(name: str) -> bool:
    """True for the quota name of an extended resource."""
    return name.startswith(_REQUESTS)


def find_excess(hard: Mapping[str, Quantity], used: Mapping[str, int], usage: Mapping[str, int]) -> tuple[Excess, ...]:
    """Returns the quota names that the usage would exceed; the usage of an update is what it adds."""
    return tuple(
        Excess(name, Quantity.of(used.get(name, 0)), Quantity.of(usage[name]), hard[name])
        for name in sorted(hard.keys() & usage.keys())
        if usage[name] > 0 and (used.get(name, 0) + usage[name]) * NANOS > hard[name].nanos
    )


def explain_excess(quota: str, excesses: Iterable[Excess]) -> str:
    """Returns the error in Kubernetes' wording."""
    listed = list(excesses)
    requested = ",".join(f"{excess.name}={excess.requested}" for excess in listed)
    used = ",".join(f"{excess.name}={excess.used}" for excess in listed)
    limited = ",".join(f"{excess.name}={excess.limit}" for excess in listed)
    return f"exceeded quota: {quota}, requested: {requested}, used: {used}, limited: {limited}"


def _charge(request: resource_v1.DeviceRequest) -> dict[str, int]:
    if request.first_available:
        most: dict[str, int] = {}
        for alternative in request.first_available:
            count = _count(alternative)
            if count is not None:
                most[alternative.device_class_name] = max(count, most.get(alternative.device_class_name, 0))
        return most
    if request.exactly is not None:
        return {request.exactly.device_class_name: _count(request.exactly) or 0}
    return {}


def _count(ask: resource_v1.ExactDeviceRequest | resource_v1.DeviceSubRequest) -> int | None:
    if ask.allocation_mode == resource_v1.ALL:
        return ALL_DEVICES_COUNT
    # With summed capacity, `count` is the maximum.
    counted = ask.allocation_mode in (resource_v1.EXACT_COUNT, resource_v1.AGGREGATED_CAPACITY)
    return ask.count if counted else None


def _extended_usage(devices: Mapping[str, int], facts: QuotaFacts) -> dict[str, int]:
    total: Counter[str] = Counter()
    for class_name, count in devices.items():
        total[_quota_name(implicit_name(class_name))] += count
        if class_name in facts.extended_names:
            total[_quota_name(facts.extended_names[class_name])] += count
    beyond_pod = {name: count - facts.pod_usage.get(name, 0) for name, count in total.items()}
    return {name: count for name, count in beyond_pod.items() if count > 0}


def _quota_name(extended_name: str) -> str:
    return f"{_REQUESTS}{extended_name}"
