"""Questions for explanations, with the scheduler's verdicts on nodes that accept any pod."""

from __future__ import annotations

from collections.abc import Mapping

from dralloc.allocator.features import Features
from dralloc.allocator.requests import compile_demand
from dralloc.api import core_v1
from dralloc.api.meta_v1 import ObjectMeta
from dralloc.api.pod_v1 import Container, PodSpec
from dralloc.api.resource_v1 import DeviceClass, ResourceClaim
from dralloc.scheduler.decide.node_fit import NodeRequirements
from dralloc.scheduler.decide.node_verdicts import Fits, NodeJudge
from dralloc.scheduler.decide.pod_requirements import PodRequirements
from dralloc.scheduler.state.node_state import NodeOffer, NodeState
from dralloc.snapshot.cluster import Snapshot
from dralloc.snapshot.node_selectors import NodeFacts
from dralloc.whatif.engine import with_room
from dralloc.whatif.explanation.report import Question


def question_of(
    claims: tuple[ResourceClaim, ...],
    classes: Mapping[str, DeviceClass],
    features: Features,
    snapshot: Snapshot,
    nodes: tuple[NodeFacts, ...],
) -> Question:
    requirements = PodRequirements(
        NodeRequirements.of(PodSpec(containers=(Container(name="c"),))),
        demand=compile_demand(claims, classes, features) if claims else None,
    )
    judge = NodeJudge(requirements)
    verdicts = {node.name: judge.verdict(_state_of(node), snapshot) for node in nodes}
    scores = {name: verdict.raw.devices for name, verdict in verdicts.items() if isinstance(verdict, Fits)}
    return Question(
        claims=claims,
        classes=classes,
        features=features,
        snapshot=snapshot,
        nodes=nodes,
        verdicts=verdicts,
        chosen=max(scores, key=lambda name: scores[name], default=""),
    )


def _state_of(node: NodeFacts) -> NodeState:
    metadata = ObjectMeta(name=node.name, labels=dict(node.labels))
    status = core_v1.NodeStatus(declared_features=tuple(node.declared_features))
    return NodeState(NodeOffer.of(with_room(core_v1.Node(metadata=metadata, status=status))))
