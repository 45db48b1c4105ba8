"""Which claims a pod uses, whose a claim is, and who holds it: what scheduler, controllers and nodes must agree on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from dralloc.api.meta_v1 import ApiObject, ObjectMeta, OwnerReference
from dralloc.api.pod_v1 import Pod
from dralloc.api.resource_v1 import ConsumerReference, ResourceClaim

# Keeps a claim that is allocated from vanishing: whoever allocates sets it first, whoever deallocates takes it off last.
CLAIM_FINALIZER: Final = "resource.kubernetes.io/delete-protection"
# On a claim made from a template: the entry of the pod that it was made for.
POD_CLAIM_NAME: Final = "resource.kubernetes.io/pod-claim-name"
# On a claim that a scheduler made for the extended resources of a pod.
EXTENDED_RESOURCE_CLAIM: Final = "resource.kubernetes.io/extended-resource-claim"


@dataclass(frozen=True, slots=True)
class ClaimUse:
    """A claim by the name that its pod knows it by. One that was made for the pod must also be the pod's."""

    entry: str
    claim: str
    is_own: bool


def claims_of(pod: Pod) -> Iterator[ClaimUse]:
    """The claims of a pod as far as they are known: those to be made from templates once they are recorded."""
    # Most pods have none, and this is asked at every change of a pod.
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
    """Whether the claim belongs to this very pod."""
    owner = controller_of(claim.metadata)
    return owner is not None and owner.uid == pod.metadata.uid


def may_use(use: ClaimUse, claim: ResourceClaim, pod: Pod) -> bool:
    return not use.is_own or is_made_for(claim, pod)


def is_pod(reference: ConsumerReference) -> bool:
    return reference.resource == "pods" and not reference.api_group


def pod_reference(pod: Pod) -> ConsumerReference:
    return ConsumerReference(resource="pods", name=pod.metadata.name, uid=pod.metadata.uid)


def is_held_by_workload(claim: ResourceClaim) -> bool:
    """Whether something other than a pod holds the claim: then its pods are not listed (KEP-5194)."""
    return not all(map(is_pod, claim.status.reserved_for))


def is_reserved_for(claim: ResourceClaim, pod: Pod) -> bool:
    """Whether the pod may use what the claim got: it is listed, or any pod may."""
    allocation = claim.status.allocation
    if allocation is not None and allocation.reserved_for_any_pod:
        return True
    return any(reference.uid == pod.metadata.uid for reference in claim.status.reserved_for)
