"""The what-if engine: its answers are the scheduling cycle's, on what the pods before left."""

from __future__ import annotations

from datetime import UTC, datetime
from zlib import crc32

import pytest
from msgspec.structs import replace

from dralloc.answers.allocations import allocate_claim, allocate_pod, allocate_waiting
from dralloc.answers.cluster_objects import ASSUMED_NODE, ClusterObjects
from dralloc.answers.engine import Engine
from dralloc.answers.placements import PodPlacement, UnplacedPod
from dralloc.answers.pod_explanation import explain_pod
from dralloc.devices.snapshot import Snapshot
from dralloc.kube.core_v1 import Node, NodeStatus
from dralloc.kube.meta_v1 import ApiObject, ObjectMeta
from dralloc.kube.pod_v1 import Container, Pod, PodResourceClaim, PodSpec, ResourceRequirements
from dralloc.kube.resource_v1 import ConsumerReference
from dralloc.primitives.features import FeatureGates
from dralloc.primitives.quantity import Quantity
from dralloc.scheduler.decide.node_verdicts import NodeJudge, NodeVerdict
from dralloc.scheduler.state.node_state import NodeState
from dralloc.testing.builders import DRIVER, allocation, claim, device, device_class, held, request, resource_slice
from tests.support.scheduled_cluster import gpus

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def node(name: str, cpu: str = "8", **labels: str) -> Node:
    amounts = {"cpu": Quantity.parse(cpu), "memory": Quantity.parse("64Gi"), "pods": Quantity.parse("10")}
    return Node(metadata=ObjectMeta(name=name, labels=labels), status=NodeStatus(allocatable=amounts))


def pod(name: str, *claims: str, cpu: str = "1", on: str = "") -> Pod:
    return Pod(
        metadata=ObjectMeta(name=name, namespace="default"),
        spec=PodSpec(
            node_name=on,
            containers=(Container(name="c", resources=ResourceRequirements(requests={"cpu": Quantity.parse(cpu)})),),
            resource_claims=tuple(PodResourceClaim(name=each, resource_claim_name=each) for each in claims),
        ),
    )


def engine(*items: ApiObject, only_node: str = "") -> Engine:
    objects = ClusterObjects(FeatureGates.defaults())
    for item in items:
        objects.add(item)
    return Engine(objects, NOW, only_node=only_node)


def test_pods_take_cpu_from_the_pods_after_them() -> None:
    """Two pods of 5 cpu do not fit on a node of 8, whatever devices it has."""
    wants = [claim(name, request()) for name in ("one", "two")]
    asked = engine(
        node("n1"), gpus("n1", 2), device_class(), *wants, pod("a", "one", cpu="5"), pod("b", "two", cpu="5")
    )
    answer = allocate_waiting(asked, None)
    assert [str(each.claim.metadata.name) for each in answer.allocated] == ["one"]
    assert [(each.subject, each.message) for each in answer.refusals] == [
        ("pod default/b", "does not fit: 0/1 nodes are available: 1 node: insufficient cpu")
    ]


def test_the_emptiest_node_is_chosen_as_by_the_scheduler() -> None:
    asked = engine(
        *(node(name) for name in ("n1", "n2")),
        *(gpus(name) for name in ("n1", "n2")),
        device_class(),
        claim("wanted", request()),
        pod("busy", cpu="6", on="n1"),
        pod("new", "wanted"),
    )
    placed = asked.place(asked.objects.find(Pod, "pod", "new"))
    assert isinstance(placed, PodPlacement)
    assert (placed.node, [each.metadata.name for each in placed.claims]) == ("n2", ["wanted"])


def test_a_pod_that_has_a_node_keeps_it_and_gets_no_devices() -> None:
    """The scheduler does not look at pods that have a node."""
    running = pod("running", "wanted", cpu="6", on="n1")
    asked = engine(node("n1"), gpus("n1"), device_class(), claim("wanted", request()), running, pod("other", cpu="6"))
    placed = asked.place(running)
    assert isinstance(placed, UnplacedPod)
    assert placed.message.startswith("claim default/wanted has no devices, and a pod that has a node gets none")
    assert isinstance(asked.place(asked.objects.find(Pod, "pod", "other")), UnplacedPod)


def test_a_claim_without_a_pod_is_not_reserved() -> None:
    asked = engine(node("n1"), gpus("n1"), device_class(), claim("wanted", request()))
    [found] = allocate_claim(asked, asked.objects.find(type(claim("x")), "claim", "wanted")).allocated
    assert found.node == "n1"
    assert found.claim.status.reserved_for == ()
    assert found.claim.status.allocation is not None
    assert found.claim.status.allocation.allocation_timestamp is None


def test_only_one_node_is_told_about_where_only_one_is_asked_about() -> None:
    asked = engine(
        *(node(name) for name in ("n1", "n2")),
        gpus("n2"),
        device_class(),
        claim("wanted", request()),
        pod("new", "wanted"),
        only_node="n1",
    )
    [refusal] = allocate_pod(asked, asked.objects.find(Pod, "pod", "new")).refusals
    assert refusal.message == "does not fit: 0/1 nodes are available: 1 node: no devices"


def test_without_nodes_and_names_one_node_is_assumed() -> None:
    published = resource_slice("everywhere", device("gpu-0"))
    everywhere = replace(published, spec=replace(published.spec, node_name=None, all_nodes=True))
    asked = engine(everywhere, device_class(), claim("wanted", request()), pod("new", "wanted", cpu="1000"))
    placed = asked.place(asked.objects.find(Pod, "pod", "new"))
    assert isinstance(placed, PodPlacement)
    assert placed.node == ASSUMED_NODE


def test_a_claim_that_no_pod_uses_does_not_tie_a_pod_to_a_full_node() -> None:
    """The scheduler deallocates such a claim, and allocates it again where the pod fits."""
    first = engine(node("n1"), gpus("n1"), device_class(), claim("shared", request()), pod("first", "shared"))
    placed = first.place(first.objects.find(Pod, "pod", "first"))
    assert isinstance(placed, PodPlacement)
    [ours] = placed.claims
    asked = engine(
        *(node(name) for name in ("n1", "n2")),
        *(gpus(name) for name in ("n1", "n2")),
        device_class(),
        ours,
        pod("busy", cpu="8", on="n1"),
        pod("new", "shared"),
    )
    again = asked.place(asked.objects.find(Pod, "pod", "new"))
    assert isinstance(again, PodPlacement), again
    assert again.node == "n2"


def stored(item: ApiObject, **metadata: str) -> ApiObject:
    return replace(item, metadata=replace(item.metadata, uid=f"uid-{item.metadata.name}", **metadata))


def test_a_selector_that_fails_on_another_node_fails_the_pod() -> None:
    """As in the scheduler, an error on one node ends the attempt, whichever nodes fit."""
    good = resource_slice("good", device("gpu-0", attributes={"model": "a"}), pool="n1")
    bad = resource_slice("bad", device("gpu-0"), pool="n2")
    picky = request(where=f'device.attributes["{DRIVER}"].model == "a"')
    asked = engine(
        *(node(name) for name in ("n1", "n2")),
        replace(good, spec=replace(good.spec, node_name="n1", all_nodes=None)),
        replace(bad, spec=replace(bad.spec, node_name="n2", all_nodes=None)),
        device_class(),
        claim("wanted", picky),
        pod("new", "wanted"),
    )
    [refusal] = allocate_waiting(asked, None).refusals
    assert refusal.message.startswith("cannot be allocated: ")
    assert explain_pod(asked, asked.objects.find(Pod, "pod", "new")).verdict == "Error"


def test_a_device_that_is_not_shared_any_more_while_shares_exist_is_not_given_out() -> None:
    shared = claim("old", request(), allocation=allocation(held("gpu-0", pool="n1", share_id="a")))
    asked = engine(node("n1"), gpus("n1"), device_class(), shared, claim("wanted", request()), pod("new", "wanted"))
    assert allocate_waiting(asked, None).allocated == []
    assert not explain_pod(asked, asked.objects.find(Pod, "pod", "new")).is_good


def test_a_pod_that_is_refused_for_one_claim_gets_no_devices_for_the_other() -> None:
    full = claim("full", request(), allocation=allocation(held("gpu-0", pool="n1")))
    listed = tuple(ConsumerReference(resource="pods", name=f"p{each}", uid=f"u{each}") for each in range(256))
    full = replace(full, status=replace(full.status, reserved_for=listed))
    asked = engine(node("n1"), gpus("n1", 2), device_class(), full, claim("own", request()), pod("new", "full", "own"))
    answer = allocate_waiting(asked, None)
    assert (answer.allocated, len(answer.refusals)) == ([], 1)


def test_a_node_of_a_server_without_allocatable_has_room_for_nothing() -> None:
    bare = Node(metadata=ObjectMeta(name="n1"))
    things = (gpus("n1"), device_class(), claim("wanted", request()), pod("new", "wanted"))
    assert allocate_waiting(engine(bare, *things), None).refusals == []
    [refusal] = allocate_waiting(engine(stored(bare), *things), None).refusals
    assert refusal.message.startswith("does not fit: 0/1 nodes are available: 1 node: ")


def test_equally_good_nodes_have_the_order_of_the_scheduler() -> None:
    names = [f"n{number}" for number in range(20)]
    asked = engine(*map(node, names), pod("new"))
    placed = asked.place(asked.objects.find(Pod, "pod", "new"))
    assert isinstance(placed, PodPlacement)
    assert placed.node == min(names, key=lambda name: crc32(f"dralloc/{name}".encode()))


def test_a_pod_costs_the_same_beside_thousands_that_run() -> None:
    """The cost of a decision follows what changed since the last one, not the size of the cluster."""
    names = [f"n{number}" for number in range(50)]
    running = [pod(f"run-{number}", on=names[number % 50], cpu="100m") for number in range(300)]
    pods = [pod(f"new-{number}", f"wanted-{number}", cpu="100m") for number in range(100)]
    wants = [claim(f"wanted-{number}", request()) for number in range(100)]
    asked = engine(
        *(node(name, cpu="64") for name in names),
        *(gpus(name, 4) for name in names),
        device_class(),
        *wants,
        *running,
        *pods,
    )
    judged: list[str] = []
    original = NodeJudge.verdict

    def counted(self: NodeJudge, node: NodeState, snapshot: Snapshot) -> NodeVerdict:
        judged.append(node.name)
        return original(self, node, snapshot)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(NodeJudge, "verdict", counted)
        answer = allocate_waiting(asked, None)
    assert len(answer.allocated) == 100
    assert len(judged) <= 50 + 3 * 100
