"""Persistent volumes and the claims to them: which claims a pod uses, whom a volume belongs to, which volume a claim gets.

Shared by the scheduler, which chooses volumes for claims that wait for a pod, and the controller, which binds all others.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from dralloc.kube.pod_claims import controller_of
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.volumes_v1 import PersistentVolume, PersistentVolumeClaim
from dralloc.primitives.quantity import Quantity

# On a claim whose binding is complete, and on volumes and claims that were not bound by a user.
BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
BOUND_BY_CONTROLLER: Final = "pv.kubernetes.io/bound-by-controller"
# On a claim for which a volume is to be made: the node of its pod.
SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
# Names the storage class in place of the field, which is newer.
BETA_STORAGE_CLASS: Final = "volume.beta.kubernetes.io/storage-class"
NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"
WAIT_FOR_FIRST_CONSUMER: Final = "WaitForFirstConsumer"
READ_WRITE_ONCE_POD: Final = "ReadWriteOncePod"
AVAILABLE: Final = "Available"
STORAGE: Final = "storage"
FILESYSTEM: Final = "Filesystem"


class VolumeClaimKey(Struct, frozen=True, gc=False):
    """A claim to a persistent volume."""

    namespace: str
    name: str

    @classmethod
    def of(cls, claim: PersistentVolumeClaim) -> VolumeClaimKey:
        return cls(claim.metadata.namespace, claim.metadata.name)

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class VolumeClaimUse(Struct, frozen=True, gc=False):
    """A claim that a volume of a pod names, or, if it is ephemeral, that is made for the pod."""

    key: VolumeClaimKey
    is_ephemeral: bool


def volume_claims_of(pod: Pod) -> Iterator[VolumeClaimUse]:
    """In the order of the pod's volumes."""
    namespace = pod.metadata.namespace
    for volume in pod.spec.volumes:
        if volume.persistent_volume_claim is not None:
            yield VolumeClaimUse(VolumeClaimKey(namespace, volume.persistent_volume_claim.claim_name), False)
        elif volume.ephemeral is not None:
            yield VolumeClaimUse(VolumeClaimKey(namespace, f"{pod.metadata.name}-{volume.name}"), True)


def is_claim_of(claim: PersistentVolumeClaim, pod: Pod) -> bool:
    """True if the claim was made for an ephemeral volume of the pod."""
    owner = controller_of(claim.metadata)
    return owner is not None and owner.uid == pod.metadata.uid


def class_of_claim(claim: PersistentVolumeClaim) -> str:
    """The name of the storage class; empty if the claim has none."""
    return claim.metadata.annotations.get(BETA_STORAGE_CLASS, claim.spec.storage_class_name or "")


def class_of_volume(volume: PersistentVolume) -> str:
    return volume.metadata.annotations.get(BETA_STORAGE_CLASS, volume.spec.storage_class_name)


def is_bound(claim: PersistentVolumeClaim) -> bool:
    return bool(claim.spec.volume_name) and BIND_COMPLETED in claim.metadata.annotations


def is_bound_to(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """True if the volume names the claim. A user may name it without its UID."""
    reference = volume.spec.claim_ref
    if reference is None:
        return False
    named = (reference.namespace, reference.name) == (claim.metadata.namespace, claim.metadata.name)
    return named and reference.uid in ("", claim.metadata.uid)


def claim_reference(claim: PersistentVolumeClaim) -> dict[str, str]:
    """What a volume that belongs to the claim says of it."""
    metadata = claim.metadata
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": metadata.namespace,
        "name": metadata.name,
        "uid": metadata.uid,
        "resourceVersion": metadata.resource_version,
    }


def requested_storage(claim: PersistentVolumeClaim) -> Quantity:
    return claim.spec.resources.requests.get(STORAGE, Quantity.ZERO)


def capacity_of(volume: PersistentVolume) -> Quantity:
    return volume.spec.capacity.get(STORAGE, Quantity.ZERO)


def is_possible_for(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """True if the volume can serve the claim, also if a user has chosen it: it is large enough and of the same mode."""
    modes = [each.spec.volume_mode or FILESYSTEM for each in (volume, claim)]
    attributes = [each.spec.volume_attributes_class_name or "" for each in (volume, claim)]
    return (
        capacity_of(volume) >= requested_storage(claim)
        and modes[0] == modes[1]
        and attributes[0] == attributes[1]
        and volume.metadata.deletion_timestamp is None
    )


def may_be_chosen_for(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """True if the volume is free and the claim may get it, whatever node needs it."""
    selector = claim.spec.selector
    return (
        volume.spec.claim_ref is None
        and is_possible_for(volume, claim)
        and volume.status.phase == AVAILABLE
        and (selector is None or selector.selects(volume.metadata.labels))
        and class_of_volume(volume) == class_of_claim(claim)
        and set(claim.spec.access_modes) <= set(volume.spec.access_modes)
    )
