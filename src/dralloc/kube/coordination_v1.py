"""`coordination.k8s.io/v1`: leases for leader election."""

from __future__ import annotations

from typing import ClassVar, Final

from msgspec import field

from dralloc.kube.core_v1 import Node
from dralloc.kube.meta_v1 import ApiObject
from dralloc.kube.wire import Int32, Time, Wire

GROUP: Final = "coordination.k8s.io"


class LeaseSpec(Wire):
    """Its times have microseconds."""

    UNREAD: ClassVar = ("preferredHolder", "strategy")

    holder_identity: str | None = None
    lease_duration_seconds: Int32 | None = None
    acquire_time: Time | None = None
    renew_time: Time | None = None
    lease_transitions: Int32 | None = None


class Lease(ApiObject):
    spec: LeaseSpec = field(default_factory=lambda: LeaseSpec())


# --- Node leases ----------------------------------------------------------------------------------------------------
# The leases with which nodes show that they are alive.


# The namespace of these leases.
NODE_LEASES: Final = "kube-node-lease"
# An annotation of simulated nodes: the name of the one lease that all nodes of a process share.
SHARED_LEASE: Final = "fake.dralloc.io/lease"


def lease_name(node: Node) -> str:
    """A node's lease has the name of the node, unless nodes share one."""
    return node.metadata.annotations.get(SHARED_LEASE, node.metadata.name)
