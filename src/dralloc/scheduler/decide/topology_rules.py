"""Rules that depend on where other pods are: affinity between pods, and topology spread."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from dralloc.api.codec import encode
from dralloc.api.pod_v1 import Pod
from dralloc.scheduler.contract import ClusterView
from dralloc.scheduler.decide.node_fit import NodeMisfit, NodeRequirements
from dralloc.scheduler.decide.pod_affinity import PodAffinityRules
from dralloc.scheduler.decide.topology_spread import TopologySpreadRules
from dralloc.scheduler.state.node_state import NodeState


class TopologyRules:
    """The rules for one pod at one moment."""

    def __init__(self, spread: TopologySpreadRules, affinity: PodAffinityRules) -> None:
        self._spread = spread
        self._affinity = affinity

    @classmethod
    def of(cls, pod: Pod, requirements: NodeRequirements, view: ClusterView) -> TopologyRules | None:
        """None if no rule concerns the pod, which is the common case."""
        stated = pod.spec.affinity
        states_affinity = stated is not None and (stated.pod_affinity or stated.pod_anti_affinity)
        if not (states_affinity or pod.spec.topology_spread_constraints or view.pod_topology.has_terms):
            return None
        spread, affinity = TopologySpreadRules(pod, requirements, view), PodAffinityRules(pod, view)
        return cls(spread, affinity) if spread or affinity else None

    def misfit(self, node: NodeState) -> NodeMisfit | None:
        return self._spread.misfit(node) or self._affinity.misfit(node)

    def scores(self, nodes: Collection[NodeState]) -> Mapping[str, int]:
        """What the rules add to the scores of these nodes, by name."""
        return Counter(self._spread.scores(nodes)) + Counter(self._affinity.scores(nodes))


def topology_rules_key(pod: Pod) -> bytes:
    """Equal for pods that the rules treat alike."""
    spec, metadata = pod.spec, pod.metadata
    return encode((metadata.namespace, metadata.labels, spec.affinity, spec.topology_spread_constraints))
