"""Moves that make room for a pod that no node can take: the plan of `dralloc defrag` for the simulated cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from dralloc.answers.cluster_objects import ClusterObjects, StatedScheduler
from dralloc.answers.defrag import DefragQuestion, plan_defrag
from dralloc.devices.identity import ClaimId
from dralloc.kube.core_v1 import Node
from dralloc.kube.meta_v1 import ApiObject
from dralloc.kube.pod_claims import CLAIM_FINALIZER
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import ResourceClaim
from dralloc.scheduler.configuration import SchedulerConfiguration
from dralloc.scheduler.contract import ClusterView
from dralloc.scheduler.decide.strategy_choice import StrategySettings
from dralloc.study.cluster import Cluster
from dralloc.study.pod_factory import ArrivingPod
from dralloc.study.trace import Trace

PodName = tuple[str, str]


@dataclass(frozen=True, slots=True)
class RoomPlan:
    """The node for the pod, and the new nodes of the pods that are moved for it."""

    node: str
    moves: Mapping[PodName, str]


@dataclass(frozen=True, slots=True)
class RoomPlanner:
    """Finds plans of at most `moves_max` moves. Any pod of the trace may be moved: its controller would make it again."""

    cluster: Cluster
    trace: Trace
    moves_max: int
    strategies: StrategySettings

    def plan(self, view: ClusterView, placed: Iterable[tuple[ArrivingPod, str]], pod: ArrivingPod) -> RoomPlan | None:
        question = DefragQuestion(targets=[pod.pod], moves_max=self.moves_max, bare_pods=True)
        plan = plan_defrag(self._objects(view, placed, pod), question)
        if plan.message or not plan.placed:
            return None
        moves = {name_of(each.pod): each.node for move in plan.moves for each in move.pods}
        return RoomPlan(plan.placed[0].node, moves)

    def _objects(
        self, view: ClusterView, placed: Iterable[tuple[ArrivingPod, str]], pod: ArrivingPod
    ) -> ClusterObjects:
        """The cluster as it is now, as objects."""
        base = self.cluster.objects
        pods: dict[PodName, ApiObject] = {**base.all(Pod), name_of(pod.pod): pod.pod}
        claims: dict[PodName, ApiObject] = dict(base.all(ResourceClaim))
        _add_claims(claims, view, pod)
        for each, node in placed:
            pods[name_of(each.pod)] = replace(each.pod, spec=replace(each.pod.spec, node_name=node))
            _add_claims(claims, view, each)
        objects = dict(base.objects)
        nodes: dict[PodName, ApiObject] = {
            ("", each.metadata.name): each for each in self.cluster.nodes_for(self.trace)
        }
        objects |= {Node: nodes, Pod: pods, ResourceClaim: claims}
        stated = StatedScheduler(SchedulerConfiguration(strategies=self.strategies))
        return ClusterObjects(base.gates, place=base.place, objects=objects, now=base.now, stated=stated)


def _add_claims(claims: dict[PodName, ApiObject], view: ClusterView, pod: ArrivingPod) -> None:
    """As stored: a claim with devices has the finalizer that the scheduler writes, without which it is not released."""
    for claim in (*pod.claims, *pod.shared):
        known = view.find_claim(ClaimId.of(claim)) or claim
        if known.status.allocation is not None:
            known = replace(known, metadata=replace(known.metadata, finalizers=(CLAIM_FINALIZER,)))
        claims[claim.metadata.namespace, claim.metadata.name] = known


def name_of(pod: Pod) -> PodName:
    return pod.metadata.namespace, pod.metadata.name
