"""Which nodes can use a persistent volume."""

from __future__ import annotations

from dralloc.api.volumes_v1 import PersistentVolume
from dralloc.snapshot.node_selectors import NodeFacts, NodeSelectorError, matches


def is_reachable(volume: PersistentVolume, place: NodeFacts) -> bool:
    """True if the volume's node affinity allows a node with these labels."""
    affinity = volume.spec.node_affinity
    if affinity is None or affinity.required is None:
        return True
    try:
        return matches(affinity.required, place)
    except NodeSelectorError:
        return False
