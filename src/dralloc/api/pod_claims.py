"""Which claims a pod uses, who owns a claim and for whom it is reserved; shared by scheduler, controllers and nodes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from dralloc.api.meta_v1 import ApiObject, ObjectMeta, OwnerReference
from dralloc.api.pod_v1 import Pod
from dralloc.api.resource_v1 import ConsumerReference, ResourceClaim

# Protects an allocated claim from deletion: set before allocation, removed after deallocation.
CLAIM_FINALIZER: Final = "resource.kubernetes.io/delete-protection"
# On a claim made from a template: the pod's entry that it was made for.
POD_CLAIM_NAME: Final = "resource.kubernetes.io/pod-claim-name"
# On a claim that a scheduler made for the extended resources of a pod.
EXTENDED_RESOURCE_CLAIM: Final = "resource.kubernetes.io/extended-resource-claim"


@dataclass(frozen=True, slots=True)
class ClaimUse:
    """A claim and its name within the pod. A claim that was made for the pod must also be owned by it."""

    entry: str
    claim: str
    is_own: bool


def claims_of(pod: Pod) -> Iterator[ClaimUse]:
    """Yields the known claims of a pod; claims from templates are known once the status records them."""
    # Most pods have none, and this runs at every change of a pod.
    if pod.spec.resource_claims:
        made = {entry.name: entry.resource_claim_name for entry in pod.status.resource_claim_statuses}
        for entry in pod.spec.resource_claims:
            if entry.resource_claim_name is not None:
                yield ClaimUse(entry.name, entry.resource_claim_name, False)
            elif name := made.get(entry.name):
                yield ClaimUse(entry.name, name, True)
    extended = pod.status.extended_resource_claim_status
    if extended is not None:
        yield ClaimUse("", extended.resource_claim_name, True)


def controller_of(metadata: ObjectMeta) -> OwnerReference | None:
    return next((owner for owner in metadata.owner_references if owner.controller), None)


def is_made_for(claim: ResourceClaim, pod: ApiObject) -> bool:
    """True if the claim was made for exactly this pod."""
    owner = controller_of(claim.metadata)
    return owner is not None and owner.uid == pod.metadata.uid and claim.metadata.namespace == pod.metadata.namespace


def may_use(use: ClaimUse, claim: ResourceClaim, pod: Pod) -> bool:
    return not use.is_own or is_made_for(claim, pod)


def is_pod(reference: ConsumerReference) -> bool:
    return reference.resource == "pods" and not reference.api_group


def pod_reference(pod: Pod) -> ConsumerReference:
    return ConsumerReference(resource="pods", name=pod.metadata.name, uid=pod.metadata.uid)


def is_held_by_workload(claim: ResourceClaim) -> bool:
    """True if the claim is reserved for something other than a pod; its pods are not listed then (KEP-5194)."""
    return not all(map(is_pod, claim.status.reserved_for))


def is_reserved_for(claim: ResourceClaim, pod: Pod, *, for_workloads: bool = True) -> bool:
    """True if the claim is reserved for the pod, or for any pod; the latter only with the gate DRAReservedForWorkloads."""
    allocation = claim.status.allocation
    if for_workloads and allocation is not None and allocation.reserved_for_any_pod:
        return True
    return is_listed(claim, pod)


def is_listed(claim: ResourceClaim, pod: Pod) -> bool:
    """True if `status.reservedFor` has the pod."""
    return any(reference.uid == pod.metadata.uid for reference in claim.status.reserved_for)
