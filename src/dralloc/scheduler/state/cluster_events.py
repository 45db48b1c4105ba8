"""What can happen that helps a pod which found no node.

An attempt that ends without a node names those that could change its outcome; the scheduler reports them as they happen.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from msgspec import Struct

from dralloc.devices.identity import ClaimId


class ClusterEvent(Struct, frozen=True, gc=False):
    """Something that may help a parked pod: a kind of change, and of what it was where that matters."""

    kind: str
    subject: Hashable = None

    @property
    def any(self) -> ClusterEvent:
        """The same kind of change, of whatever it was."""
        return ClusterEvent(self.kind)


# A node is new, or offers more or something else.
NODE_CHANGED: Final = ClusterEvent("node offers")
# A pod has gone from a node, and what it took is free.
NODE_RESOURCES_FREED: Final = ClusterEvent("room freed")
# A claim has given back its devices.
DEVICES_FREED: Final = ClusterEvent("devices freed")
# A slice or a taint rule is new, gone, or another. One device less helps where all are asked for, or where a pool was in disorder.
DEVICES_CHANGED: Final = ClusterEvent("devices changed")


def class_changed(name: str) -> ClusterEvent:
    return ClusterEvent("class changed", name)


def claim_changed(claim_id: ClaimId) -> ClusterEvent:
    """It is new, gone, or has another status."""
    return ClusterEvent("claim changed", claim_id)


def pod_changed(key: Hashable) -> ClusterEvent:
    return ClusterEvent("pod changed", key)
