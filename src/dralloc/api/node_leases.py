"""The leases with which nodes show that they are alive."""

from __future__ import annotations

from typing import Final

from dralloc.api.core_v1 import Node

# The namespace of these leases.
NODE_LEASES: Final = "kube-node-lease"
# An annotation of simulated nodes: the name of the one lease that all nodes of a process share.
SHARED_LEASE: Final = "fake.dralloc.io/lease"


def lease_name(node: Node) -> str:
    """A node's lease has the name of the node, unless nodes share one."""
    return node.metadata.annotations.get(SHARED_LEASE, node.metadata.name)
