"""Persistent volumes in what-if answers: those of the objects, and the claims that a controller would make for a pod."""

from __future__ import annotations

from dralloc.api.meta_v1 import ObjectMeta, OwnerReference
from dralloc.api.pod_v1 import Pod
from dralloc.api.storage_v1 import CSINode
from dralloc.api.volume_claims import volume_claims_of
from dralloc.api.volumes_v1 import (
    CSIDriver,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from dralloc.scheduler.state.volume_state import VolumeState
from dralloc.whatif.cluster_objects import ClusterObjects


def add_volumes(state: VolumeState, objects: ClusterObjects) -> None:
    for volume in objects.all(PersistentVolume).values():
        state.volume_changed(None, volume)
    for claim in objects.all(PersistentVolumeClaim).values():
        state.claim_changed(None, claim)
    for storage_class in objects.all(StorageClass).values():
        state.class_changed(None, storage_class)
    for csi_node in objects.all(CSINode).values():
        state.csi_node_changed(None, csi_node)
    for driver in objects.all(CSIDriver).values():
        state.driver_changed(None, driver)
    for capacity in objects.all(CSIStorageCapacity).values():
        state.capacity_changed(None, capacity)
    for attachment in objects.all(VolumeAttachment).values():
        state.attachment_changed(None, attachment)


def add_ephemeral_claims(state: VolumeState, pod: Pod) -> None:
    """Adds the claims of the pod's ephemeral volumes that do not exist yet."""
    templates = [volume.ephemeral for volume in pod.spec.volumes if volume.ephemeral is not None]
    if not templates:
        return
    uses = (use for use in volume_claims_of(pod) if use.is_ephemeral)
    owner = OwnerReference(api_version="v1", kind="Pod", name=pod.metadata.name, uid=pod.metadata.uid, controller=True)
    for use, source in zip(uses, templates, strict=True):
        template = source.volume_claim_template
        if template is not None and state.stored_claim(use.key) is None:
            metadata = ObjectMeta(namespace=use.key.namespace, name=use.key.name, owner_references=(owner,))
            state.claim_changed(None, PersistentVolumeClaim(metadata=metadata, spec=template.spec))
