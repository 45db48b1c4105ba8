"""`storage.k8s.io/v1`: the storage drivers of a node. They are stored; nothing here uses them."""

from __future__ import annotations

from typing import ClassVar, Final

from dralloc.api.meta_v1 import ApiObject

GROUP: Final = "storage.k8s.io"


class CSINode(ApiObject):
    UNREAD: ClassVar = ("spec", "status")
