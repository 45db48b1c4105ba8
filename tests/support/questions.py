"""Questions for explanations: a pod on a cluster of some objects, with the scheduler's verdicts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime

import msgspec

from dralloc.answers.cluster_objects import ClusterObjects
from dralloc.answers.engine import Engine
from dralloc.answers.explanation.remedies import Remedy
from dralloc.answers.explanation.report import Question
from dralloc.answers.explanation.text import plain_remedy
from dralloc.answers.object_changes import ObjectChange, apply_changes
from dralloc.devices.allocator.features import Features
from dralloc.devices.node_selectors import NodeFacts
from dralloc.kube import core_v1
from dralloc.kube.meta_v1 import ObjectMeta
from dralloc.kube.pod_v1 import Container, Pod, PodResourceClaim, PodSpec
from dralloc.kube.resource_v1 import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice
from dralloc.primitives.features import FeatureGates
from dralloc.scheduler.contract import Decision, Placement

NOW = datetime(2026, 1, 1, tzinfo=UTC)
_GATES = {
    "admin_access": "DRAAdminAccess",
    "prioritized_list": "DRAPrioritizedList",
    "consumable_capacity": "DRAConsumableCapacity",
    "fractional_ranges": "DRAFractionalCapacityRange",
    "partitionable_devices": "DRAPartitionableDevices",
    "compatibility_groups": "DRADeviceCompatibilityGroups",
    "device_taints": "DRADeviceTaints",
    "taint_rules": "DRADeviceTaintRules",
    "binding_conditions": "DRADeviceBindingConditions",
    "list_attributes": "DRAListTypeAttributes",
    "optional_node_operations": "DRAOptionalNodeOperations",
}


def question_of(
    *,
    claims: tuple[ResourceClaim, ...],
    slices: Iterable[ResourceSlice],
    nodes: tuple[NodeFacts, ...],
    classes: Mapping[str, DeviceClass],
    features: Features | None = None,
    allocated: Iterable[ResourceClaim] = (),
    rules: Iterable[DeviceTaintRule] = (),
) -> Question:
    """What becomes of a pod that uses these claims and requests nothing else."""
    objects = ClusterObjects(gates_of(features or Features()))
    for obj in (*map(_node, nodes), *slices, *classes.values(), *allocated, *rules, *claims):
        objects.add(obj)
    pod = Pod(
        metadata=ObjectMeta(name="pod", namespace="default", uid="pod"),
        spec=PodSpec(
            containers=(Container(name="c"),),
            resource_claims=tuple(
                PodResourceClaim(name=each.metadata.name, resource_claim_name=each.metadata.name) for each in claims
            ),
        ),
    )
    engine = Engine(objects, NOW)
    if not nodes:
        return Question(engine=engine, pod=pod, nodes=(), verdicts={})
    decision = engine.decide(pod)
    return replace(Question.about(engine, pod), chosen=decision.node if isinstance(decision, Placement) else "")


def follow(question: Question, remedy: Remedy) -> Decision:
    """The decision about the pod in a cluster made from scratch, to which the remedy's JSON was applied."""
    changes = msgspec.convert(json.loads(json.dumps(plain_remedy(remedy)))["changes"], list[ObjectChange])
    objects, _ = apply_changes(question.engine.objects, changes)
    engine = Engine(objects, NOW)
    return engine.decide(engine.complete(question.pod))


def gates_of(features: Features) -> FeatureGates:
    names = [gate for feature, gate in _GATES.items() if getattr(features, feature)]
    return FeatureGates.only(("DynamicResourceAllocation", "DRAResourceClaimDeviceStatus", *names))


def _node(node: NodeFacts) -> core_v1.Node:
    metadata = ObjectMeta(name=node.name, labels=dict(node.labels))
    return core_v1.Node(metadata=metadata, status=core_v1.NodeStatus(declared_features=tuple(node.declared_features)))
