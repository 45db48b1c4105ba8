"""The claims of a pod: which they are, and whether the pod can have them as they are now.

Everything here is decided before any node is looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from dralloc.allocator.features import Features
from dralloc.allocator.outcome import Fatal, FatalCause
from dralloc.allocator.requests import class_names, request_fault
from dralloc.api.pod_claims import is_made_for
from dralloc.api.pod_v1 import Pod, PodResourceClaim
from dralloc.api.request_name import RequestName
from dralloc.api.resource_v1 import DeviceClass, DeviceRequest, ResourceClaim
from dralloc.devices.identity import ClaimId
from dralloc.primitives.features import FeatureGates
from dralloc.scheduler.state.cluster_events import ClusterEvent, claim_changed, class_changed, pod_changed
from dralloc.scheduler.state.placed_pods import pod_key
from dralloc.scheduler.state.reservation import RESERVATIONS_MAX, consumer_for


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why no node can help the pod for now, and what could. `is_early`: what is missing is probably on its way."""

    message: str
    waits_for: frozenset[ClusterEvent]
    is_early: bool = False


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
    claims: tuple[ResourceClaim, ...], classes: Mapping[str, DeviceClass], features: Features
) -> Obstacle | None:
    """Why a claim that is yet to be allocated cannot be, on any node."""
    for index, claim in enumerate(claims):
        for request in claim.spec.devices.requests or ():
            if (fatal := _fatal(index, request, classes, features)) is not None:
                waits_for = {claim_changed(ClaimId.of(claim))}
                if fatal.device_class is not None:
                    waits_for.add(class_changed(fatal.device_class))
                return Obstacle(fatal.text(tuple(map(ClaimId.of, claims))), frozenset(waits_for))
    return None


def _fatal(claim: int, request: DeviceRequest, classes: Mapping[str, DeviceClass], features: Features) -> Fatal | None:
    if (cause := request_fault(request, features)) is not None:
        return Fatal(cause, claim=claim, request=RequestName(request.name))
    for name, class_name in class_names(request):
        if class_name not in classes:
            return Fatal(FatalCause.CLASS_MISSING, class_name, claim, name, class_name)
    return None


def classes_of(claim: ResourceClaim) -> Iterator[str]:
    """The names of the device classes that the claim's requests name, in their order."""
    for request in claim.spec.devices.requests or ():
        for _, class_name in class_names(request):
            yield class_name


def asks_alternatives(claim: ResourceClaim) -> bool:
    return any(request.first_available for request in claim.spec.devices.requests or ())
