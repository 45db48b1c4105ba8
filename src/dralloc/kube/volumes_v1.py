"""What the scheduler reads of persistent volumes, of the claims to them, and of the storage that makes them.

The server stores these kinds without reading them (`stored_kinds`).
"""

from __future__ import annotations

from typing import Any

from msgspec import field

from dralloc.kube.core_v1 import ObjectReference
from dralloc.kube.meta_v1 import ApiObject, LabelSelector, NodeSelector, ObjectMeta
from dralloc.kube.wire import Wire
from dralloc.primitives.quantity import Quantity


class CSIPersistentVolumeSource(Wire):
    driver: str = ""
    volume_handle: str = ""


class VolumeNodeAffinity(Wire):
    required: NodeSelector | None = None


class PersistentVolumeSpec(Wire):
    capacity: dict[str, Quantity] = field(default_factory=dict)
    access_modes: tuple[str, ...] = ()
    claim_ref: ObjectReference | None = None
    csi: CSIPersistentVolumeSource | None = None
    # Sources of plugins that CSI drivers have replaced.
    aws_elastic_block_store: dict[str, Any] | None = None
    azure_disk: dict[str, Any] | None = None
    cinder: dict[str, Any] | None = None
    gce_persistent_disk: dict[str, Any] | None = None
    portworx_volume: dict[str, Any] | None = None
    node_affinity: VolumeNodeAffinity | None = None
    persistent_volume_reclaim_policy: str = ""
    storage_class_name: str = ""
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None


class PersistentVolumeStatus(Wire):
    phase: str = ""


class PersistentVolume(ApiObject):
    spec: PersistentVolumeSpec = field(default_factory=lambda: PersistentVolumeSpec())
    status: PersistentVolumeStatus = field(default_factory=lambda: PersistentVolumeStatus())


class VolumeResourceRequirements(Wire):
    limits: dict[str, Quantity] = field(default_factory=dict)
    requests: dict[str, Quantity] = field(default_factory=dict)


class PersistentVolumeClaimSpec(Wire):
    access_modes: tuple[str, ...] = ()
    selector: LabelSelector | None = None
    resources: VolumeResourceRequirements = field(default_factory=lambda: VolumeResourceRequirements())
    volume_name: str = ""
    storage_class_name: str | None = None
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None
    data_source: dict[str, Any] | None = None
    data_source_ref: dict[str, Any] | None = None


class PersistentVolumeClaimStatus(Wire):
    phase: str = ""


class PersistentVolumeClaim(ApiObject):
    spec: PersistentVolumeClaimSpec = field(default_factory=lambda: PersistentVolumeClaimSpec())
    status: PersistentVolumeClaimStatus = field(default_factory=lambda: PersistentVolumeClaimStatus())


class PersistentVolumeClaimTemplate(Wire):
    metadata: ObjectMeta = field(default_factory=lambda: ObjectMeta())
    spec: PersistentVolumeClaimSpec = field(default_factory=lambda: PersistentVolumeClaimSpec())


class TopologySelectorLabelRequirement(Wire):
    key: str = ""
    values: tuple[str, ...] = ()


class TopologySelectorTerm(Wire):
    match_label_expressions: tuple[TopologySelectorLabelRequirement, ...] = ()


class StorageClass(ApiObject):
    provisioner: str = ""
    volume_binding_mode: str | None = None
    allowed_topologies: tuple[TopologySelectorTerm, ...] = ()


class CSIDriverSpec(Wire):
    storage_capacity: bool | None = None
    prevent_pod_scheduling_if_missing: bool | None = None


class CSIDriver(ApiObject):
    spec: CSIDriverSpec = field(default_factory=lambda: CSIDriverSpec())


class CSIStorageCapacity(ApiObject):
    storage_class_name: str = ""
    node_topology: LabelSelector | None = None
    capacity: Quantity | None = None
    maximum_volume_size: Quantity | None = None


class VolumeAttachmentSource(Wire):
    persistent_volume_name: str | None = None


class VolumeAttachmentSpec(Wire):
    attacher: str = ""
    node_name: str = ""
    source: VolumeAttachmentSource = field(default_factory=lambda: VolumeAttachmentSource())


class VolumeAttachment(ApiObject):
    spec: VolumeAttachmentSpec = field(default_factory=lambda: VolumeAttachmentSpec())
