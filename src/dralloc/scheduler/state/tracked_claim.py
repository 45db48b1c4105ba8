"""One claim as the scheduler knows it: the stored object plus decisions that are not stored yet."""

from __future__ import annotations

from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from dralloc.kube.meta_v1 import ApiObject
from dralloc.kube.pod_claims import group_reference, is_held_by_workload, is_listed, is_pod, pod_reference
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import AllocationResult, ConsumerReference, ResourceClaim
from dralloc.kube.scheduling_v1beta1 import PodGroup


class TrackedClaim(Struct):
    stored: ResourceClaim
    # The revision of the write that allocated the claim; 0 if the claim was allocated before we first saw it.
    allocated_revision: int = 0
    # True for the claim of extended resources that a decision makes, until the API shows it.
    is_unstored: bool = False
    # The collision check has shown that no other claim holds the same devices.
    is_proven: bool = False
    _assumed_allocation: AllocationResult | None = None
    # By the UID of the pod that the consumer was added for.
    _assumed_consumers: dict[str, ConsumerReference] = field(default_factory=dict)
    _effective: ResourceClaim | None = None

    def is_same(self, claim: ResourceClaim) -> bool:
        """False if the claim was deleted and another one created under its name."""
        known = self.stored.metadata
        if self.is_unstored:
            return known.owner_references == claim.metadata.owner_references
        return known.uid == claim.metadata.uid

    @property
    def effective(self) -> ResourceClaim:
        """The claim with all decisions applied; the stored object itself if there are none."""
        if self._effective is None:
            self._effective = self._apply_decisions()
        return self._effective

    def is_unwritten(self, pod_uid: str) -> bool:
        """True if a decision that the pod depends on is not stored yet."""
        has_decision = self._assumed_allocation is not None or pod_uid in self._assumed_consumers
        return has_decision and self.effective is not self.stored

    def assume(
        self, pod: Pod, allocation: AllocationResult, *, for_workloads: bool, group: PodGroup | None = None
    ) -> None:
        """Decides that the pod uses the claim, as a member of the group if one is given, and that the claim gets the allocation if
        it has none."""
        effective = self.effective
        # Each member depends on the group's entry until it is stored.
        known = effective if group is None else self.stored
        consumer = consumer_for(known, pod, for_workloads=for_workloads, group=group)
        if effective.status.allocation is None:
            is_for_any_pod = consumer is not None and group is None and not is_pod(consumer)
            self._assumed_allocation = replace(allocation, reserved_for_any_pod=is_for_any_pod or None)
        if consumer is not None:
            self._assumed_consumers[pod.metadata.uid] = consumer
        self._effective = None

    def forget(self, pod_uid: str) -> bool:
        """Drops the decisions made for the pod; returns whether an assumed allocation was dropped.

        An assumed allocation is kept while another pod that is not written yet depends on it.
        """
        self._assumed_consumers.pop(pod_uid, None)
        self._effective = None
        if self._assumed_allocation is None or self._assumed_consumers:
            return False
        self._assumed_allocation = None
        return True

    def store(self, claim: ResourceClaim) -> None:
        """Replaces the stored object by a newer one; decisions that it contains are no longer assumed."""
        if claim.status.allocation is not None:
            self._assumed_allocation = None
            if self.stored.status.allocation is None:
                self.allocated_revision, self.is_proven = revision_of(claim), False
        listed = {reference.uid for reference in claim.status.reserved_for}
        self._assumed_consumers = {
            uid: consumer for uid, consumer in self._assumed_consumers.items() if consumer.uid not in listed
        }
        self.stored, self.is_unstored = claim, False
        self._effective = None

    def _apply_decisions(self) -> ResourceClaim:
        if self._assumed_allocation is None and not self._assumed_consumers:
            return self.stored
        status = self.stored.status
        allocation = status.allocation or self._assumed_allocation
        listed = {reference.uid for reference in status.reserved_for}
        added = {consumer.uid: consumer for consumer in self._assumed_consumers.values() if consumer.uid not in listed}
        if not added and allocation is status.allocation:
            return self.stored
        status = replace(status, allocation=allocation, reserved_for=(*status.reserved_for, *added.values()))
        return replace(self.stored, status=status)


def revision_of(item: ApiObject) -> int:
    """The object's revision as a number that grows with each write; 0 if the server's revisions are not numbers."""
    text = item.metadata.resource_version
    return int(text) if text.isdecimal() else 0


# --- Reservation ----------------------------------------------------------------------------------------------------
# The consumers in a claim's `status.reservedFor`: each pod that uses the claim, their workload (KEP-5194), or their
# PodGroup (KEP-5729).
#
# A list may hold several kinds, for example after a feature was off for a while.


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
