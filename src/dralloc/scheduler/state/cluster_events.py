"""Cluster events: changes that may let a parked pod be scheduled.

A rejected attempt names the events that could change its outcome. The scheduler passes every event to the queue, which
wakes the pods that named it.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from msgspec import Struct

from dralloc.devices.identity import ClaimId
from dralloc.kube.volume_claims import VolumeClaimKey


class ClusterEvent(Struct, frozen=True, gc=False):
    """A kind of change; `subject` is the changed object where pods wait for a certain one."""

    kind: str
    subject: Hashable = None

    @property
    def of_any_subject(self) -> ClusterEvent:
        """The event that stands for this kind of change to any object."""
        return ClusterEvent(self.kind)


Events = tuple[ClusterEvent, ...]

# A node is new, or its labels, taints or allocatable resources changed.
NODE_CHANGED: Final = ClusterEvent("NodeChanged")
# A pod left its node or shrank.
NODE_RESOURCES_FREED: Final = ClusterEvent("NodeResourcesFreed")
# A pod got a node or left it, or its labels or those of a namespace changed: for pods with rules about other pods.
PODS_MOVED: Final = ClusterEvent("PodsMoved")
# A claim was deallocated.
DEVICES_FREED: Final = ClusterEvent("DevicesFreed")
# A claim was allocated: for pods whose claims may fit only beside others.
DEVICES_TAKEN: Final = ClusterEvent("DevicesTaken")
# A slice or a taint rule was added, changed or removed. Losing a device can help, too: a request for all devices then needs
# fewer, or an invalid pool becomes valid.
DEVICES_CHANGED: Final = ClusterEvent("DevicesChanged")
# A persistent volume, a storage class, a storage driver or its capacity was added or changed, or a volume was detached.
VOLUMES_CHANGED: Final = ClusterEvent("VolumesChanged")


def class_changed(name: str) -> ClusterEvent:
    return ClusterEvent("DeviceClassChanged", name)


def extended_resource_changed(name: str) -> ClusterEvent:
    """Another device class, or none, serves the extended resource."""
    return ClusterEvent("ExtendedResourceChanged", name)


def claim_changed(claim_id: ClaimId) -> ClusterEvent:
    """The claim was created or deleted, or its status changed."""
    return ClusterEvent("ClaimChanged", claim_id)


def claim_allocated(claim_id: ClaimId) -> ClusterEvent:
    """The claim has devices, which it was not known to have. It may have been unknown itself."""
    return ClusterEvent("ClaimAllocated", claim_id)


def volume_claim_changed(key: VolumeClaimKey) -> ClusterEvent:
    """The claim to a persistent volume was created, changed or deleted."""
    return ClusterEvent("VolumeClaimChanged", key)


def pod_changed(key: Hashable) -> ClusterEvent:
    return ClusterEvent("PodChanged", key)


def group_changed(key: Hashable) -> ClusterEvent:
    """The group of pods was created, changed or deleted, or a pod joined it."""
    return ClusterEvent("PodGroupChanged", key)
