"""The claims of a pod: which they are, and whether the pod can have them as they are now.

Everything here is decided before any node is looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from dralloc.api.pod_claims import is_made_for
from dralloc.api.pod_v1 import Pod, PodResourceClaim
from dralloc.api.resource_v1 import DeviceClass, DeviceRequest, ResourceClaim
from dralloc.devices.identity import ClaimId
from dralloc.primitives.features import FeatureGates
from dralloc.scheduler.state.cluster_events import ClusterEvent, claim_changed, class_changed, pod_changed
from dralloc.scheduler.state.reservation import RESERVATIONS_MAX, consumer_for

# What Kubernetes calls everything about claims and devices in its scheduler.
PLUGIN: Final = "DynamicResources"


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why no node can help the pod for now, and what could. `is_early`: what is missing is probably on its way."""

    message: str
    waits_for: frozenset[ClusterEvent]
    is_early: bool = False


def pod_key(pod: Pod) -> tuple[str, str]:
    return (pod.metadata.namespace, pod.metadata.name)


# Finds a claim as the scheduler has it: with allocations and reservations that it has decided and not yet written.
FindClaim = Callable[[ClaimId], ResourceClaim | None]


def claims_of(pod: Pod, find: FindClaim) -> tuple[ResourceClaim, ...] | Obstacle:
    """The claims in the order in which the pod names them, each once and usable by the pod."""
    claims: dict[ClaimId, ResourceClaim] = {}
    for entry in pod.spec.resource_claims:
        name = _claim_name(pod, entry)
        if isinstance(name, Obstacle):
            return name
        if name is None:
            continue
        claim_id = ClaimId(pod.metadata.namespace, name)
        claim = find(claim_id)
        if claim is None:
            return Obstacle(f"claim {claim_id} does not exist", _until_another(pod, claim_id), is_early=True)
        if fault := _fault(pod, entry, claim):
            return Obstacle(f"claim {claim_id} {fault}", _until_another(pod, claim_id))
        claims[claim_id] = claim
    return tuple(claims.values())


def _until_another(pod: Pod, claim_id: ClaimId) -> frozenset[ClusterEvent]:
    """A claim that was made for the pod may also be made anew, by another name."""
    return frozenset({claim_changed(claim_id), pod_changed(pod_key(pod))})


def _claim_name(pod: Pod, entry: PodResourceClaim) -> str | Obstacle | None:
    """The claim's name; None where the entry needs no claim."""
    waits_for = frozenset({pod_changed(pod_key(pod))})
    if entry.resource_claim_name:
        return entry.resource_claim_name
    if not entry.resource_claim_template_name:
        return Obstacle(f"entry {entry.name} of the pod's claims is of a kind that is not supported", waits_for)
    for status in pod.status.resource_claim_statuses:
        if status.name == entry.name:
            return status.resource_claim_name
    return Obstacle(f"the claim for {entry.name} is not created yet", waits_for, is_early=True)


def _fault(pod: Pod, entry: PodResourceClaim, claim: ResourceClaim) -> str | None:
    if claim.metadata.deletion_timestamp is not None:
        return "is being deleted"
    if not entry.resource_claim_name and not is_made_for(claim, pod):
        return "was not created for this pod"
    return None


def reservation_obstacle(pod: Pod, claims: tuple[ResourceClaim, ...], gates: FeatureGates) -> Obstacle | None:
    """A claim whose list of users is full."""
    for_workloads = "DRAReservedForWorkloads" in gates
    for claim in claims:
        is_full = len(claim.status.reserved_for) >= RESERVATIONS_MAX
        if is_full and consumer_for(claim, pod, for_workloads=for_workloads) is not None:
            claim_id = ClaimId.of(claim)
            message = f"claim {claim_id} is in use by {len(claim.status.reserved_for)} pods, the most that can share it"
            return Obstacle(message, frozenset({claim_changed(claim_id)}))
    return None


def demand_obstacle(
    claims: tuple[ResourceClaim, ...], classes: Mapping[str, DeviceClass], gates: FeatureGates
) -> Obstacle | None:
    """What is wrong with a claim that is yet to be allocated, on whatever node."""
    for claim in claims:
        claim_id = ClaimId.of(claim)
        for request in claim.spec.devices.requests or ():
            if fault := _request_fault(request, gates):
                message = f"claim {claim_id}: request {request.name} {fault}"
                return Obstacle(message, frozenset({claim_changed(claim_id)}))
            for name, class_name in _classes_of_request(request):
                if class_name not in classes:
                    message = f"claim {claim_id}: request {name}: device class {class_name} does not exist"
                    return Obstacle(message, frozenset({claim_changed(claim_id), class_changed(class_name)}))
    return None


def _request_fault(request: DeviceRequest, gates: FeatureGates) -> str | None:
    stated = request.first_available or ((request.exactly,) if request.exactly is not None else ())
    if not stated:
        return "is of a kind that is not known: it has neither `exactly` nor `firstAvailable`"
    if request.first_available and "DRAPrioritizedList" not in gates:
        return "has alternatives, but the feature DRAPrioritizedList is off"
    if "DRAConsumableCapacity" not in gates and any(entry.capacity is not None for entry in stated):
        return "asks for capacity, but the feature DRAConsumableCapacity is off"
    return None


def _classes_of_request(request: DeviceRequest) -> Iterator[tuple[str, str]]:
    """What the request, or each of its alternatives, is called, and its class."""
    if request.exactly is not None:
        yield request.name, request.exactly.device_class_name
    for entry in request.first_available:
        yield f"{request.name}/{entry.name}", entry.device_class_name


def classes_of(claim: ResourceClaim) -> Iterator[str]:
    """The names of the classes that the claim's requests are for, in their order."""
    for request in claim.spec.devices.requests or ():
        for _, class_name in _classes_of_request(request):
            yield class_name


def asks_alternatives(claim: ResourceClaim) -> bool:
    return any(request.first_available for request in claim.spec.devices.requests or ())
