"""Node scores: which of the nodes that can take a pod is best.

Four scores from 0 to 100, added up with Kubernetes' weights. Taints, node affinity and device alternatives mean something
only in comparison with other nodes (`RawScores`) and are normalized once the nodes are known; the score of the strategy, `least_allocated` by default, is absolute.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from dralloc.kube.node_taints import is_tolerated
from dralloc.kube.pod_v1 import PreferredSchedulingTerm, Toleration
from dralloc.scheduler.decide.node_fit import NodeRequirements, preference_matches
from dralloc.scheduler.state.node_state import NodeOffer, NodeState
from dralloc.scheduler.state.pod_resources import PodResources

SCORE_MAX: Final = 100
TAINTS_WEIGHT: Final = 3
AFFINITY_WEIGHT: Final = 2
DEVICES_WEIGHT: Final = 2


class RawScores(NamedTuple):
    """A node's scores before normalization: untolerated PreferNoSchedule taints (fewer are better), affinity, devices."""

    taints: int = 0
    affinity: int = 0
    devices: int = 0


def raw_scores(requirements: NodeRequirements, offer: NodeOffer) -> RawScores:
    """The scores of a node without its devices."""
    return RawScores(
        taints=_untolerated_taints(offer, requirements.tolerations) if offer.taints else 0,
        affinity=_affinity(offer, requirements.preferred) if requirements.preferred else 0,
    )


def _untolerated_taints(offer: NodeOffer, tolerations: tuple[Toleration, ...]) -> int:
    return sum(taint.effect == "PreferNoSchedule" and not is_tolerated(taint, tolerations) for taint in offer.taints)


def _affinity(offer: NodeOffer, preferred: tuple[PreferredSchedulingTerm, ...]) -> int:
    return sum(term.weight for term in preferred if preference_matches(term.preference, offer))


def normalized(scores: Collection[RawScores], scale: int = 1) -> Mapping[RawScores, int]:
    """Each raw score's weighted sum after normalization, times `scale`.

    Device scores are normalized between the worst and the best node (KEP-4816), so that a first alternative gets the full
    score however close the second is. Where all are equal, each gets the best score.
    """
    taints_max = max((raw.taints for raw in scores), default=0)
    affinity_max = max((raw.affinity for raw in scores), default=0)
    devices_min = min((raw.devices for raw in scores), default=0)
    devices_max = max((raw.devices for raw in scores), default=0)
    return {
        raw: scale
        * (
            TAINTS_WEIGHT * (SCORE_MAX - _portion(raw.taints, taints_max, 0))
            + AFFINITY_WEIGHT * _portion(raw.affinity, affinity_max, 0)
            + DEVICES_WEIGHT * _portion(raw.devices - devices_min, devices_max - devices_min, SCORE_MAX)
        )
        for raw in scores
    }


def _portion(amount: int, most: int, of_nothing: int) -> int:
    return amount * SCORE_MAX // most if most else of_nothing


def least_allocated(resources: PodResources, node: NodeState) -> int:
    """The average portion of cpu and memory that stays free on the node with the pod."""
    counted = node.unweighted
    if not counted:
        return 0
    total = 0
    for name, (free, allocatable) in counted.items():
        left = free - resources.weights[name]
        if left > 0:
            total += left * SCORE_MAX // allocatable
    return total // len(counted)
