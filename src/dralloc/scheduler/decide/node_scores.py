"""Which of the nodes that can take a pod is best.

Four scores, each from 0 to 100, added up with Kubernetes' weights. Three of them mean something only beside the other
nodes' (`Raw`), so they are compared once the nodes are known; how empty a node is (`emptiness`) stands by itself.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from dralloc.api.pod_v1 import PreferredSchedulingTerm, Toleration
from dralloc.scheduler.decide.node_fit import Wishes, is_tolerated, preference_matches
from dralloc.scheduler.state.node_state import NodeState
from dralloc.scheduler.state.pod_resources import Needs

BEST: Final = 100
TAINTS_WEIGHT: Final = 3
AFFINITY_WEIGHT: Final = 2
DEVICES_WEIGHT: Final = 2


class Raw(NamedTuple):
    """A node's scores before they are compared: fewer taints are better, more affinity, earlier alternatives."""

    taints: int = 0
    affinity: int = 0
    devices: int = 0


def raw_scores(wishes: Wishes, node: NodeState, devices: int) -> Raw:
    return Raw(
        taints=_unwelcome_taints(node, wishes.tolerations) if node.offer.taints else 0,
        affinity=_affinity(node, wishes.preferred) if wishes.preferred else 0,
        devices=devices,
    )


def _unwelcome_taints(node: NodeState, tolerations: tuple[Toleration, ...]) -> int:
    return sum(
        taint.effect == "PreferNoSchedule" and not is_tolerated(taint, tolerations) for taint in node.offer.taints
    )


def _affinity(node: NodeState, preferred: tuple[PreferredSchedulingTerm, ...]) -> int:
    return sum(term.weight for term in preferred if preference_matches(term.preference, node))


def compared(raws: Collection[Raw]) -> Mapping[Raw, int]:
    """What each of the scores is worth beside the others, weighted and added up.

    Alternatives are compared between the worst and the best node (KEP-4816), so that the first choice counts in full
    however close the second comes. Where all are equal, each is best.
    """
    most_taints = max((raw.taints for raw in raws), default=0)
    most_affinity = max((raw.affinity for raw in raws), default=0)
    least_devices = min((raw.devices for raw in raws), default=0)
    most_devices = max((raw.devices for raw in raws), default=0)
    return {
        raw: TAINTS_WEIGHT * (BEST - _part(raw.taints, most_taints, 0))
        + AFFINITY_WEIGHT * _part(raw.affinity, most_affinity, 0)
        + DEVICES_WEIGHT * _part(raw.devices - least_devices, most_devices - least_devices, BEST)
        for raw in raws
    }


def _part(amount: int, most: int, of_nothing: int) -> int:
    return amount * BEST // most if most else of_nothing


def emptiness(needs: Needs, node: NodeState) -> int:
    """How much of its cpu and memory the node has left once the pod is there, on average."""
    parts: list[int] = []
    for name, nanos in needs.weights.items():
        allocatable = node.offer.allocatable.get(name, 0)
        if allocatable:
            left = allocatable - node.load.weights.get(name, 0) - nanos
            parts.append(max(left, 0) * BEST // allocatable)
    return sum(parts) // len(parts) if parts else 0
