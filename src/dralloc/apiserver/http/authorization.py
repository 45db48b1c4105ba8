"""Who may do what. There are no roles: whoever is known may do everything, except nodes.

A node's identity (`system:node:NAME`, in the group `system:nodes`) lies on every machine of a cluster, so it is
held to what a node is for: its own slices, and what drivers say about devices that were given out on it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from dralloc.api.authorization import Permission, permit_everything
from dralloc.api.resource_v1 import ResourceSlice
from dralloc.apiserver.http.authentication import User
from dralloc.apiserver.http.statuses import forbidden

NODES: Final = "system:nodes"
NODE_PREFIX: Final = "system:node:"


def node_of(user: User) -> str | None:
    """The node that the user is the identity of."""
    is_node = NODES in user.groups and user.name.startswith(NODE_PREFIX)
    return user.name.removeprefix(NODE_PREFIX) if is_node else None


def permits_of(user: User) -> Callable[[Permission], bool]:
    """Which of the rights that a claim's status asks for the user has."""
    node = node_of(user)
    if node is None:
        return permit_everything
    return lambda permission: permission.subresource == "driver" and permission.node == node


def check_slice_owner(user: User, slice_: ResourceSlice) -> None:
    """A node creates and deletes slices of its own only."""
    node = node_of(user)
    if node is not None and slice_.spec.node_name != node:
        raise forbidden(
            "resource.k8s.io",
            "resourceslices",
            slice_.metadata.name,
            f"the node {node} may only create and delete slices of its own",
        )
