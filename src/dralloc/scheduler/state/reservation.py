"""Whom an allocated claim is reserved for: each pod that uses it, or the workload they belong to (KEP-5194).

Lists that hold pods and workloads alike, as they come about when the feature was off for a while, are fine everywhere.
"""

from __future__ import annotations

from typing import Final

from dralloc.api.pod_claims import is_held_by_workload, pod_reference
from dralloc.api.pod_v1 import Pod
from dralloc.api.resource_v1 import ConsumerReference, ResourceClaim

RESERVATIONS_MAX: Final = 256


def serves_any_pod(claim: ResourceClaim, *, for_workloads: bool) -> bool:
    """Whether pods can use the claim without being listed: a workload holds it, and nodes have been told."""
    allocation = claim.status.allocation
    is_told = allocation is not None and bool(allocation.reserved_for_any_pod)
    return for_workloads and is_told and is_held_by_workload(claim)


def consumer_for(claim: ResourceClaim, pod: Pod, *, for_workloads: bool) -> ConsumerReference | None:
    """Whom to add to the claim's list so that the pod can use it; None where nobody needs to be added.

    The first pod of a claim that is meant for a workload reserves it for that workload. Where the claim has been allocated
    without telling nodes so, which cannot be changed any more, each pod is listed.
    """
    if any(reference.uid == pod.metadata.uid for reference in claim.status.reserved_for):
        return None
    if serves_any_pod(claim, for_workloads=for_workloads):
        return None
    allocation = claim.status.allocation
    is_first = not claim.status.reserved_for and (allocation is None or bool(allocation.reserved_for_any_pod))
    if for_workloads and claim.spec.reserved_for is not None and is_first:
        return claim.spec.reserved_for
    return pod_reference(pod)
