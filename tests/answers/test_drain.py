"""The blast radius of a drain: who is evicted, and what becomes of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from dralloc.answers.cluster_objects import ClusterObjects
from dralloc.answers.drain import BlastRadius, DrainResult, drain_devices, drain_node
from dralloc.answers.scenario import taint_rule
from dralloc.kube.meta_v1 import ApiObject, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, OwnerReference
from dralloc.kube.pod_claims import CLAIM_FINALIZER, POD_CLAIM_NAME, pod_reference
from dralloc.kube.pod_v1 import Pod, PodResourceClaimStatus, PodStatus
from dralloc.kube.resource_v1 import (
    NO_EXECUTE,
    NO_SCHEDULE,
    DeviceTaint,
    DeviceTaintSelector,
    ResourceClaim,
)
from dralloc.primitives.features import FeatureGates
from dralloc.testing.builders import allocation, claim, device_class, held, request, toleration
from tests.answers.test_engine import node
from tests.answers.test_engine import pod as plain_pod
from tests.answers.test_fit import cards, gpus, pod, template

NOW = datetime(2026, 1, 1, tzinfo=UTC)
OWNER = OwnerReference(api_version="apps/v1", kind="ReplicaSet", name="web", uid="web", controller=True)


def owned(made: Pod, kind: str = "ReplicaSet", *, on: str = "n1", priority: int = 0, **metadata: Any) -> Pod:
    """The pod as its controller created it, running on a node."""
    owner = replace(OWNER, kind=kind)
    named = replace(made.metadata, uid=f"uid-{made.metadata.name}", owner_references=(owner,), **metadata)
    return replace(made, metadata=named, spec=replace(made.spec, node_name=on, priority=priority))


def with_claim(running: Pod, gpu: str, **more: Any) -> tuple[Pod, ResourceClaim]:
    """The pod with the claim that was made for it, which has a device of the node."""
    name = f"{running.metadata.name}-gpu"
    entry = PodResourceClaimStatus(name="gpu", resource_claim_name=name)
    made = held_claim(name, gpu, running, **more)
    owner = OwnerReference(api_version="v1", kind="Pod", name=running.metadata.name, uid=running.metadata.uid)
    metadata = replace(
        made.metadata,
        annotations={POD_CLAIM_NAME: "gpu"},
        owner_references=(replace(owner, controller=True),),
    )
    return replace(running, status=PodStatus(resource_claim_statuses=(entry,))), replace(made, metadata=metadata)


def held_claim(name: str, gpu: str, *users: Pod, tolerations: Any = ()) -> ResourceClaim:
    """A claim that has a device of the node n1 and is reserved for these pods."""
    result = replace(held(gpu, pool="n1"), tolerations=tuple(tolerations))
    term = NodeSelectorTerm(match_fields=(NodeSelectorRequirement(key="metadata.name", operator="In", values=("n1",)),))
    usable = replace(allocation(result), node_selector=NodeSelector(node_selector_terms=(term,)))
    found = claim(name, request(), allocation=usable)
    return replace(
        found,
        metadata=replace(found.metadata, namespace="default", finalizers=(CLAIM_FINALIZER,)),
        status=replace(found.status, reserved_for=tuple(map(pod_reference, users))),
    )


def cluster(*items: ApiObject) -> ClusterObjects:
    objects = ClusterObjects(FeatureGates.defaults(), now=NOW)
    for item in (device_class(), template(request()), *items):
        objects.add(item)
    return objects


def told(radius: BlastRadius) -> dict[str, tuple[str, str]]:
    """By pod: what becomes of it, and the node or the reason."""
    return {each.evicted.pod.metadata.name: (each.result.value, each.node or each.message) for each in radius.pods}


NODES = (node("n1"), node("n2"), gpus("n1", *cards(2)), gpus("n2", *cards(1)))


def test_pods_of_a_node_move_while_there_is_room() -> None:
    first, second = (with_claim(owned(pod(name)), f"gpu-{number}") for number, name in enumerate("ab"))
    radius = drain_node(cluster(*NODES, *first, *second), "n1")
    assert told(radius) == {
        "a": ("Placed", "n2"),
        "b": ("Unplaced", "0/2 nodes are available: 1 node: the only device is in use; 1 node: unschedulable"),
    }
    assert not radius.is_harmless


def test_pods_of_higher_priority_move_first() -> None:
    first = with_claim(owned(pod("a")), "gpu-0")
    second = with_claim(owned(pod("b"), priority=1), "gpu-1")
    radius = drain_node(cluster(*NODES, *first, *second), "n1")
    assert {name: result for name, (result, _) in told(radius).items()} == {"a": "Unplaced", "b": "Placed"}


def test_pods_that_wait_already_come_first() -> None:
    radius = drain_node(cluster(*NODES, *with_claim(owned(pod("a")), "gpu-0"), pod("waiting")), "n1")
    assert told(radius)["a"][0] == "Unplaced"


def test_pods_without_a_controller_are_lost() -> None:
    bare = plain_pod("bare", on="n1")
    radius = drain_node(cluster(*NODES, bare), "n1")
    assert told(radius) == {"bare": ("Lost", "no controller creates it again")}
    assert not radius.is_harmless


def test_who_stays_or_has_ended() -> None:
    mirror = owned(plain_pod("mirror"), "Node", annotations={"kubernetes.io/config.mirror": "x"})
    daemon = owned(plain_pod("daemon"), "DaemonSet")
    leaving = owned(plain_pod("leaving"), deletion_timestamp="2026-01-01T00:00:00Z")
    done = replace(owned(plain_pod("done")), status=PodStatus(phase="Succeeded"))
    radius = drain_node(cluster(*NODES, mirror, daemon, leaving, done, owned(plain_pod("other"), on="n2")), "n1")
    assert told(radius) == {
        "mirror": ("Stays", "n1"),
        "daemon": ("Stays", "n1"),
        "leaving": ("Terminating", "is being deleted already"),
    }
    assert radius.is_harmless
    assert [each.message for each in radius.pods if each.result is DrainResult.STAYS] == [
        "mirror pod, which the kubelet runs from a file",
        "pod of DaemonSet web",
    ]


def test_a_shared_claim_moves_only_with_all_its_pods() -> None:
    users = [owned(plain_pod(name, "shared"), on="n1") for name in "ab"]
    shared = held_claim("shared", "gpu-0", *users)
    radius = drain_node(cluster(*NODES, shared, *users), "n1")
    assert told(radius) == {"a": ("Placed", "n2"), "b": ("Placed", "n2")}
    elsewhere = owned(plain_pod("c", "shared"), on="n3")
    shared = held_claim("shared", "gpu-0", *users, elsewhere)
    radius = drain_node(cluster(*NODES, shared, *users, elsewhere), "n1")
    assert {result for result, _ in told(radius).values()} == {"Unplaced"}


def rule(effect: str = NO_EXECUTE, device: str | None = "gpu-0", **taint: Any) -> Any:
    selector = DeviceTaintSelector(driver="gpu.example.com", pool="n1", device=device)
    return taint_rule("repair", DeviceTaint(key="repair", effect=effect, **taint), selector)


def test_a_rule_evicts_the_pods_of_its_devices() -> None:
    first, second = (with_claim(owned(pod(name)), f"gpu-{number}") for number, name in enumerate("ab"))
    radius = drain_devices(cluster(*NODES, *first, *second), [rule()])
    assert told(radius) == {"a": ("Placed", "n2")}
    assert [str(each) for each in radius.devices] == ["gpu.example.com/n1/gpu-0"]
    assert [each.evicted.rules for each in radius.pods] == [{"repair"}]


def test_a_pod_may_stay_on_its_node_with_another_device() -> None:
    radius = drain_devices(cluster(NODES[0], NODES[2], *with_claim(owned(pod("a")), "gpu-0")), [rule()])
    assert told(radius) == {"a": ("Placed", "n1")}


def test_a_rule_for_all_devices_of_a_node() -> None:
    first, second = (with_claim(owned(pod(name)), f"gpu-{number}") for number, name in enumerate("ab"))
    radius = drain_devices(cluster(NODES[0], NODES[2], *first, *second), [rule(device=None)])
    assert {result for result, _ in told(radius).values()} == {"Unplaced"}
    assert "untolerated taint repair:NoExecute" in told(radius)["a"][1]


@pytest.mark.parametrize("effect", [NO_SCHEDULE, "None"])
def test_other_effects_evict_nobody(effect: str) -> None:
    radius = drain_devices(cluster(*NODES, *with_claim(owned(pod("a")), "gpu-0")), [rule(effect)])
    assert (radius.pods, radius.is_harmless) == ((), True)


def test_tolerations_delay_or_prevent_evictions() -> None:
    lasting = with_claim(owned(pod("a")), "gpu-0", tolerations=[toleration("repair")])
    for_a_while = with_claim(
        owned(pod("b")), "gpu-1", tolerations=[replace(toleration("repair"), toleration_seconds=300)]
    )
    radius = drain_devices(cluster(*NODES, *lasting, *for_a_while), [rule(device=None)])
    assert [(each.evicted.pod.metadata.name, each.evicted.at) for each in radius.pods] == [
        ("b", NOW + timedelta(seconds=300))
    ]


def test_without_the_feature_a_rule_does_nothing() -> None:
    objects = cluster(*NODES, *with_claim(owned(pod("a")), "gpu-0"))
    objects.gates = FeatureGates.parse("DRADeviceTaintRules=false")
    assert drain_devices(objects, [rule()]).pods == ()
    assert objects.notes == ["the feature gate DRADeviceTaintRules is off: taint rules have no effect"]
