"""What a group of pods asks of the scheduler now: a gang to place, or something to wait for. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from dralloc.kube.pod_v1 import Pod
from dralloc.kube.scheduling_v1 import PREEMPT_LOWER
from dralloc.kube.scheduling_v1beta1 import PodGroup
from dralloc.primitives.features import FeatureGates
from dralloc.scheduler.decide.gang_cycle import GangRequest
from dralloc.scheduler.state.cluster_state import ClusterState
from dralloc.scheduler.state.group_members import PodGroupKey, asked_min_count


@dataclass(frozen=True, slots=True)
class GroupNotReady:
    """The group cannot be tried yet. `is_error`: its pods contradict it."""

    message: str
    pods: tuple[Pod, ...]
    is_error: bool = False


class GroupRequests:
    def __init__(self, cluster: ClusterState, gates: FeatureGates) -> None:
        self._cluster = cluster
        self._has_topology = "TopologyAwareWorkloadScheduling" in gates

    def request(self, key: PodGroupKey, members: Collection[Pod], pods: tuple[Pod, ...]) -> GangRequest | GroupNotReady:
        """What the members without a node, `pods`, ask for."""
        group = self._cluster.pod_groups.get((key.namespace, key.name)) if not key.is_of_owner else None
        if group is None and not key.is_of_owner:
            return GroupNotReady(f'waiting for pods\'s pod group "{key.name}" to appear in scheduling queue', pods)
        placed = [pod for pod in members if pod.spec.node_name and not pod.is_terminating]
        min_count = (
            group.min_count if group is not None else max((asked_min_count(pod) or 1 for pod in pods), default=1)
        )
        if len(pods) + len(placed) < min_count:
            return GroupNotReady("waiting for minCount pods from a gang to appear in scheduling queue", pods)
        if group is not None and (fault := _contradiction(group, (*placed, *pods))):
            return GroupNotReady(fault, pods, is_error=True)
        topology_key = group.topology_key or None if group is not None and self._has_topology else None
        return GangRequest(
            pods,
            min_count,
            scheduled=len(placed),
            topology_key=topology_key,
            topology_value=self._value_of(topology_key, placed),
            consumer=group.metadata.uid if group is not None else key.owner_uid,
        )

    def _value_of(self, key: str | None, placed: Sequence[Pod]) -> str | None:
        """The label of the nodes that members have already."""
        if key is None:
            return None
        nodes = (self._cluster.nodes.get(pod.spec.node_name) for pod in placed)
        values = (node.offer.labels.get(key) for node in nodes if node is not None)
        return next((value for value in values if value is not None), None)


def _contradiction(group: PodGroup, members: Sequence[Pod]) -> str:
    """Members must have one scheduler, and the priority and preemption policy of their group, as in Kubernetes."""
    priority, policy = group.spec.priority, group.spec.preemption_policy
    first = members[0]
    for pod in members:
        name, spec = pod.metadata.name, pod.spec
        if spec.scheduler_name != first.spec.scheduler_name:
            return f"pods {first.metadata.name} and {name} have different schedulers"
        if priority is not None and (spec.priority or 0) != priority:
            return f"pod {name} has priority {spec.priority or 0}, its pod group has {priority}"
        if policy is not None and _policy(pod) != policy:
            return f"pod {name} has the preemption policy {_policy(pod)}, its pod group has {policy}"
        if policy is None and _policy(pod) != _policy(first):
            return f"pods {first.metadata.name} and {name} have different preemption policies"
    return ""


def _policy(pod: Pod) -> str:
    return pod.spec.preemption_policy or PREEMPT_LOWER
