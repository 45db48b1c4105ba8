"""Authorization: every authenticated user may do everything, except nodes.

A node's identity (`system:node:NAME`, in the group `system:nodes`) is stored on a machine of the cluster, so it is restricted to its own
slices and to the device status of claims that are allocated on it.
"""

from __future__ import annotations

from collections.abc import Callable

from dralloc.access.users import User, node_of
from dralloc.api.authorization import Permission, permit_everything
from dralloc.api.resource_v1 import ResourceSlice
from dralloc.apiserver.http.statuses import forbidden


def permits_of(user: User) -> Callable[[Permission], bool]:
    """The permissions for claim status that the user has."""
    node = node_of(user)
    if node is None:
        return permit_everything
    return lambda permission: permission.subresource == "driver" and permission.node == node


def check_slice_owner(user: User, slice_: ResourceSlice) -> None:
    """Refuse a node that creates or deletes a slice of another node."""
    node = node_of(user)
    if node is not None and slice_.spec.node_name != node:
        raise forbidden(
            "resource.k8s.io",
            "resourceslices",
            slice_.metadata.name,
            f"node {node} can only create and delete its own slices",
        )
