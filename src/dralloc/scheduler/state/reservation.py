"""The consumers in a claim's `status.reservedFor`: each pod that uses the claim, their workload (KEP-5194), or their PodGroup
(KEP-5729).

A list may hold several kinds, for example after a feature was off for a while.
"""

from __future__ import annotations

from typing import Final

from dralloc.api.pod_claims import group_reference, is_held_by_workload, is_listed, is_pod, pod_reference
from dralloc.api.pod_v1 import Pod
from dralloc.api.resource_v1 import ConsumerReference, ResourceClaim
from dralloc.api.scheduling_v1beta1 import PodGroup

RESERVATIONS_MAX: Final = 256


def consumer_for(
    claim: ResourceClaim, pod: Pod, *, for_workloads: bool, group: PodGroup | None = None
) -> ConsumerReference | None:
    """The consumer to add to `reservedFor` so that the pod can use the claim; None if the pod can use it already.

    `group` is the PodGroup as whose member the pod uses the claim; its entry stands for all members. It is compared with its UID: an
    entry of an earlier group of the same name is about to be removed.

    The first pod of a claim with `spec.reservedFor` reserves it for that workload. If the claim was allocated without
    `reservedForAnyPod`, which cannot be added later, or if the workload is a pod, which speaks for no other, each pod is listed instead.
    """
    if is_listed(claim, pod) or _serves_any_pod(claim, for_workloads=for_workloads):
        return None
    if group is not None:
        reference = group_reference(group)
        return None if reference in claim.status.reserved_for else reference
    allocation = claim.status.allocation
    is_first = not claim.status.reserved_for and (allocation is None or bool(allocation.reserved_for_any_pod))
    workload = claim.spec.reserved_for
    if for_workloads and workload is not None and not is_pod(workload) and is_first:
        return workload
    return pod_reference(pod)


def _serves_any_pod(claim: ResourceClaim, *, for_workloads: bool) -> bool:
    """True if pods can use the claim without being listed: a workload holds it, and the allocation tells nodes so."""
    allocation = claim.status.allocation
    is_for_any_pod = allocation is not None and bool(allocation.reserved_for_any_pod)
    return for_workloads and is_for_any_pod and is_held_by_workload(claim)
