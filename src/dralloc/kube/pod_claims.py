"""Which claims a pod uses, who owns a claim and for whom it is reserved; shared by scheduler, controllers and nodes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import Struct, field

from dralloc.kube.meta_v1 import ApiObject, ObjectMeta, OwnerReference
from dralloc.kube.pod_v1 import (
    FINISHED,
    Pod,
    PodExtendedResourceClaimStatus,
    PodResourceClaim,
    PodResourceClaimStatus,
    PodSchedulingGroup,
)
from dralloc.kube.resource_v1 import ConsumerReference, ResourceClaim
from dralloc.kube.scheduling_v1 import GROUP
from dralloc.kube.scheduling_v1 import GROUP as SCHEDULING
from dralloc.kube.scheduling_v1beta1 import PodGroup
from dralloc.kube.wire import Wire

# Protects an allocated claim from deletion: set before allocation, removed after deallocation.
CLAIM_FINALIZER: Final = "resource.kubernetes.io/delete-protection"
# On a claim made from a template: the pod's entry that it was made for.
POD_CLAIM_NAME: Final = "resource.kubernetes.io/pod-claim-name"
# On a claim that a scheduler made for the extended resources of a pod.
EXTENDED_RESOURCE_CLAIM: Final = "resource.kubernetes.io/extended-resource-claim"


class _ClaimsSpec(Wire):
    resource_claims: tuple[PodResourceClaim, ...] = ()
    node_name: str = ""
    scheduling_group: PodSchedulingGroup | None = None


class _ClaimsStatus(Wire):
    phase: str = ""
    resource_claim_statuses: tuple[PodResourceClaimStatus, ...] = ()
    extended_resource_claim_status: PodExtendedResourceClaimStatus | None = None


class PodClaims(ApiObject):
    """What a pod says about its claims; decoded in a third of the time that the whole pod takes."""

    spec: _ClaimsSpec = field(default_factory=_ClaimsSpec)
    status: _ClaimsStatus = field(default_factory=_ClaimsStatus)

    @property
    def is_finished(self) -> bool:
        return self.status.phase in FINISHED


class ClaimUse(Struct, frozen=True, gc=False):
    """A claim and its name within the pod. A claim that was made for the pod must also be owned by it."""

    entry: str
    claim: str
    is_own: bool


def claims_of(pod: Pod | PodClaims) -> Iterator[ClaimUse]:
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


def entry_without_claim(pod: Pod | PodClaims) -> str | None:
    """The first entry for which no claim has been made yet. An entry that needs none has a status without a name."""
    made = {entry.name for entry in pod.status.resource_claim_statuses}
    waiting = (entry.name for entry in pod.spec.resource_claims if entry.resource_claim_name is None)
    return next((name for name in waiting if name not in made), None)


def controller_of(metadata: ObjectMeta) -> OwnerReference | None:
    # A loop, because every change of a pod or claim asks for it several times.
    for owner in metadata.owner_references:
        if owner.controller:
            return owner
    return None


def is_made_for(claim: ResourceClaim, pod: ApiObject) -> bool:
    """True if the claim was made for exactly this pod."""
    owner = controller_of(claim.metadata)
    return owner is not None and owner.uid == pod.metadata.uid and claim.metadata.namespace == pod.metadata.namespace


def group_name(pod: Pod | PodClaims) -> str:
    """The name of the pod's PodGroup; empty if it has none."""
    group = pod.spec.scheduling_group
    return (group.pod_group_name or "") if group is not None else ""


def is_made_for_group(claim: ResourceClaim, group: str) -> bool:
    """True if the claim was made for the PodGroup of this name. Nodes know no more of groups than their names."""
    owner = controller_of(claim.metadata)
    return (
        owner is not None
        and owner.kind == "PodGroup"
        and owner.api_version.partition("/")[0] == SCHEDULING
        and bool(group)
        and owner.name == group
    )


def may_use(use: ClaimUse, claim: ResourceClaim, pod: Pod, *, for_groups: bool = True) -> bool:
    """True if the claim is not of another owner. `for_groups`: the gate DRAWorkloadResourceClaims."""
    return not use.is_own or is_made_for(claim, pod) or (for_groups and is_made_for_group(claim, group_name(pod)))


def is_pod(reference: ConsumerReference) -> bool:
    return reference.resource == "pods" and not reference.api_group


def is_group(reference: ConsumerReference) -> bool:
    return reference.resource == "podgroups" and reference.api_group == SCHEDULING


def pod_reference(pod: Pod) -> ConsumerReference:
    return ConsumerReference(resource="pods", name=pod.metadata.name, uid=pod.metadata.uid)


def is_held_by_workload(claim: ResourceClaim) -> bool:
    """True if the claim is reserved for the workload in its spec, or for something that is neither a pod nor a PodGroup; its
    pods are not listed then (KEP-5194)."""
    workload = claim.spec.reserved_for
    return any(
        not is_pod(reference) and (not is_group(reference) or reference == workload)
        for reference in claim.status.reserved_for
    )


def is_reserved_for(claim: ResourceClaim, pod: Pod, *, for_workloads: bool = True, for_groups: bool = True) -> bool:
    """True if the claim is reserved for the pod, for any pod (with the gate DRAReservedForWorkloads), or for a PodGroup of the
    name of the pod's (with the gate DRAWorkloadResourceClaims)."""
    allocation = claim.status.allocation
    if for_workloads and allocation is not None and allocation.reserved_for_any_pod:
        return True
    return is_listed(claim, pod) or (for_groups and is_listed_group(claim, group_name(pod)))


def is_listed_group(claim: ResourceClaim, group: str) -> bool:
    """True if `status.reservedFor` has a PodGroup of this name."""
    return bool(group) and any(
        is_group(reference) and reference.name == group for reference in claim.status.reserved_for
    )


def is_listed(claim: ResourceClaim, pod: Pod) -> bool:
    """True if `status.reservedFor` has the pod."""
    return any(reference.uid == pod.metadata.uid for reference in claim.status.reserved_for)


# --- Group claims ---------------------------------------------------------------------------------------------------
# Claims of PodGroups (KEP-5729): which claims of a pod are its group's, and for whom they are reserved.


def group_reference(group: PodGroup) -> ConsumerReference:
    """The consumer that stands for all pods of the group."""
    return ConsumerReference(api_group=GROUP, resource="podgroups", name=group.metadata.name, uid=group.metadata.uid)


def is_shared(entry: PodResourceClaim, group: PodGroup) -> bool:
    """True if the pod's entry means the claim of an entry of its group: name and source are the same."""
    return any(
        (entry.name, entry.resource_claim_name, entry.resource_claim_template_name)
        == (shared.name, shared.resource_claim_name, shared.resource_claim_template_name)
        for shared in group.spec.resource_claims
    )


def shares_claim(pod: Pod, claim: str, group: PodGroup | None) -> bool:
    """True if the pod uses the claim as a member of the group."""
    if group is None or not group.spec.resource_claims:
        return False
    entries = {entry.name: entry for entry in pod.spec.resource_claims}
    return any(
        use.claim == claim and use.entry in entries and is_shared(entries[use.entry], group) for use in claims_of(pod)
    )
