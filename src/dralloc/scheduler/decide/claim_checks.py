"""Checks of a pod's claims that need no node: they exist, the pod may use them, and their requests can be served."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from dralloc.devices.allocator.features import Features
from dralloc.devices.allocator.outcome import Fatal, FatalCause
from dralloc.devices.allocator.requests import alternative_name, class_names, request_fault
from dralloc.devices.identity import ClaimId
from dralloc.kube.pod_claims import group_name, is_listed_group, is_made_for, is_made_for_group
from dralloc.kube.pod_v1 import Pod, PodResourceClaim
from dralloc.kube.request_name import RequestName
from dralloc.kube.resource_v1 import DeviceClass, DeviceRequest, ResourceClaim
from dralloc.primitives.features import FeatureGates
from dralloc.scheduler.state.cluster_events import ClusterEvent, claim_changed, class_changed, pod_changed
from dralloc.scheduler.state.placed_pods import pod_key
from dralloc.scheduler.state.tracked_claim import RESERVATIONS_MAX, consumer_for


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why no node can take the pod, and which events may change that. `is_early`: the missing object is probably about to be
    created."""

    message: str
    waits_for: frozenset[ClusterEvent]
    is_early: bool = False


# Finds a claim, with allocations and reservations that are assumed and not written yet.
FindClaim = Callable[[ClaimId], ResourceClaim | None]


def claims_of(pod: Pod, find: FindClaim, *, for_groups: bool = False) -> tuple[ResourceClaim, ...] | Obstacle:
    """The pod's claims in the order of its spec, each once. `for_groups`: the gate DRAWorkloadResourceClaims."""
    claims: dict[ClaimId, ResourceClaim] = {}
    made = {status.name: status.resource_claim_name for status in pod.status.resource_claim_statuses}
    for entry in pod.spec.resource_claims:
        name = _claim_name(pod, entry, made)
        if isinstance(name, Obstacle):
            return name
        if name is None:
            continue
        claim_id = ClaimId(pod.metadata.namespace, name)
        claim = find(claim_id)
        if claim is None:
            return Obstacle(f"claim {claim_id} does not exist", _until_another(pod, claim_id), is_early=True)
        if fault := _fault(pod, entry, claim, for_groups=for_groups):
            return Obstacle(f"claim {claim_id} {fault}", _until_another(pod, claim_id))
        claims[claim_id] = claim
    return tuple(claims.values())


def _until_another(pod: Pod, claim_id: ClaimId) -> frozenset[ClusterEvent]:
    """A claim that was created for the pod may also be created again, with another name."""
    return frozenset({claim_changed(claim_id), pod_changed(pod_key(pod))})


def _claim_name(pod: Pod, entry: PodResourceClaim, made: Mapping[str, str | None]) -> str | Obstacle | None:
    """The claim's name; None if the entry needs no claim. `made` are the claims in the pod's status, by entry."""
    if entry.resource_claim_name:
        return entry.resource_claim_name
    waits_for = frozenset({pod_changed(pod_key(pod))})
    if not entry.resource_claim_template_name:
        return Obstacle(
            f"pod claim {entry.name} has neither resourceClaimName nor resourceClaimTemplateName", waits_for
        )
    if entry.name in made:
        return made[entry.name]
    return Obstacle(f"pod claim {entry.name}: ResourceClaim not created yet", waits_for, is_early=True)


def _fault(pod: Pod, entry: PodResourceClaim, claim: ResourceClaim, *, for_groups: bool) -> str | None:
    if claim.metadata.deletion_timestamp is not None:
        return "is being deleted"
    if entry.resource_claim_name or is_made_for(claim, pod):
        return None
    if for_groups and is_made_for_group(claim, group_name(pod)):
        return None
    return "was not created for this pod"


def reservation_obstacle(pod: Pod, claims: tuple[ResourceClaim, ...], gates: FeatureGates) -> Obstacle | None:
    """Rejects a claim whose `reservedFor` is full."""
    for claim in claims:
        if len(claim.status.reserved_for) < RESERVATIONS_MAX:
            continue
        if "DRAWorkloadResourceClaims" in gates and is_listed_group(claim, group_name(pod)):
            continue
        if consumer_for(claim, pod, for_workloads="DRAReservedForWorkloads" in gates) is not None:
            claim_id = ClaimId.of(claim)
            message = f"claim {claim_id} is reserved for {len(claim.status.reserved_for)} pods, the maximum"
            return Obstacle(message, frozenset({claim_changed(claim_id)}))
    return None


def demand_obstacle(
    claims: tuple[ResourceClaim, ...], classes: Mapping[str, DeviceClass], features: Features
) -> Obstacle | None:
    """Why a claim cannot be allocated on any node."""
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
    for place, class_name in enumerate(class_names(request)):
        if class_name not in classes:
            name = alternative_name(request, place)
            return Fatal(FatalCause.CLASS_MISSING, class_name, claim, name, class_name)
    return None


def classes_of(claim: ResourceClaim) -> list[str]:
    """The names of the device classes that the claim's requests name, in their order."""
    return [name for request in claim.spec.devices.requests or () for name in class_names(request)]


def has_prioritized_list(claim: ResourceClaim) -> bool:
    return any(request.first_available for request in claim.spec.devices.requests or ())
