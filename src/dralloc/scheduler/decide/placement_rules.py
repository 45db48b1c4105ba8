"""Rules that depend on more than the node and the pod: volumes, and where other pods are. They change with every placed pod, so
they are applied to the verdicts of nodes when a pod is decided, and are no part of the verdicts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from dralloc.kube.codec import encode
from dralloc.kube.pod_v1 import Pod
from dralloc.scheduler.contract import ClusterView
from dralloc.scheduler.decide.node_fit import NodeMisfit, NodeRequirements
from dralloc.scheduler.decide.pod_volumes import PodVolumes, volume_events
from dralloc.scheduler.decide.topology_rules import TopologyRules, topology_rules_key
from dralloc.scheduler.decide.volume_rules import VolumeRules
from dralloc.scheduler.state.cluster_events import PODS_MOVED, ClusterEvent
from dralloc.scheduler.state.node_state import NodeState
from dralloc.scheduler.state.volume_state import VolumePlan


class PlacementRules:
    """The rules for one pod at one moment."""

    def __init__(self, pod: Pod, volumes: VolumeRules | None, topology: TopologyRules | None) -> None:
        self._pod = pod
        self._volumes = volumes
        self._topology = topology

    @classmethod
    def of(
        cls, pod: Pod, requirements: NodeRequirements, volumes: PodVolumes | None, view: ClusterView
    ) -> PlacementRules | None:
        """None if no rule concerns the pod, which is the common case."""
        about_volumes = VolumeRules(volumes, view.volumes) if volumes is not None else None
        topology = TopologyRules.of(pod, requirements, view)
        return cls(pod, about_volumes, topology) if about_volumes is not None or topology is not None else None

    def misfit(self, node: NodeState) -> NodeMisfit | None:
        found = self._volumes.misfit(node) if self._volumes is not None else None
        return self._topology.misfit(node) if found is None and self._topology is not None else found

    def scores(self, nodes: Collection[NodeState]) -> Mapping[str, int]:
        """What the rules add to the scores of these nodes, by name."""
        if self._volumes is None:
            return self._topology.scores(nodes) if self._topology is not None else {}
        scores = Counter(self._volumes.scores(nodes))
        scores.update(self._topology.scores(nodes) if self._topology is not None else {})
        return scores

    def volume_plan(self, node: NodeState) -> VolumePlan | None:
        return self._volumes.plan(node) if self._volumes is not None else None

    @property
    def waits_for(self) -> frozenset[ClusterEvent]:
        """The events that may change what the rules allow."""
        moved = frozenset({PODS_MOVED}) if self._topology is not None else frozenset()
        return moved | (volume_events(self._pod) if self._volumes is not None else frozenset())

    def key(self) -> bytes:
        """Equal for pods that the rules treat alike."""
        if self._volumes is None:
            return topology_rules_key(self._pod)
        # Claims of ephemeral volumes have the name of the pod.
        is_own = any(volume.ephemeral is not None for volume in self._pod.spec.volumes)
        volumes = self._pod.spec.volumes, self._pod.metadata.uid if is_own else ""
        return topology_rules_key(self._pod) + encode(volumes)
