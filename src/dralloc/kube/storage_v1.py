"""`storage.k8s.io/v1`: the storage drivers of a node."""

from __future__ import annotations

from typing import ClassVar, Final

from msgspec import field

from dralloc.kube.meta_v1 import ApiObject
from dralloc.kube.wire import Int32, Wire, printed

GROUP: Final = "storage.k8s.io"


class VolumeNodeResources(Wire):
    """How many volumes of a driver the node can have; None if there is no limit."""

    count: Int32 | None = None


class CSINodeDriver(Wire):
    UNREAD: ClassVar = ("nodeID", "topologyKeys")

    name: str = printed("")
    allocatable: VolumeNodeResources | None = None


class CSINodeSpec(Wire):
    drivers: tuple[CSINodeDriver, ...] = ()


class CSINode(ApiObject):
    UNREAD: ClassVar = ("status",)

    spec: CSINodeSpec = field(default_factory=lambda: CSINodeSpec())
