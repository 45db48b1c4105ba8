"""What is said about groups of pods: members, what is missing, what would help; new nodes for a gang."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from dralloc.answers.allocations import allocate_waiting
from dralloc.answers.cluster_objects import ClusterObjects
from dralloc.answers.engine import Engine
from dralloc.answers.group_explanation import GroupExplanation, explain_group
from dralloc.answers.planner import CandidateShape, add_classes, plan_pods
from dralloc.answers.pod_explanation import explain_pod
from dralloc.kube.codec import decode, encode
from dralloc.kube.core_v1 import Node
from dralloc.kube.pod_claims import CLAIM_FINALIZER, pod_reference
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import ResourceClaimTemplate
from dralloc.kube.scheduling_v1 import PriorityClass
from dralloc.kube.scheduling_v1beta1 import PodGroup
from dralloc.primitives.features import FeatureGates
from dralloc.scheduler.state.group_members import MIN_COUNT_ANNOTATION, PodGroupKey
from dralloc.testing import builders as build
from tests.support.scheduled_cluster import node
from tests.support.workloads import Document, claim_template, existing, pod, pod_group, seen, template

GPU = build.request("gpu", device_class="gpu")
KEY = PodGroupKey("default", "gang")


def cluster(*devices: int, gates: str = "") -> ClusterObjects:
    """A cluster whose nodes have so many devices each."""
    objects = ClusterObjects(FeatureGates.parse(gates))
    objects.add(build.device_class("gpu"))
    add(objects, ResourceClaimTemplate, claim_template("one", GPU))
    for number, count in enumerate(devices):
        name = f"node-{number}"
        add(objects, Node, node(name))
        gpus = [build.device(f"gpu-{n}") for n in range(count)]
        objects.add(build.resource_slice(name, *gpus, driver="gpu.example.com", pool=name, node_name=name))
    return objects


def add(objects: ClusterObjects, kind: Any, *documents: Document) -> None:
    for document in documents:
        objects.add(decode(encode(document), kind))


def add_gang(objects: ClusterObjects, count: int, min_count: int, **group: Any) -> None:
    add(objects, PodGroup, pod_group(KEY.name, min_count=min_count, **group))
    add(objects, Pod, *(pod(f"p{n}", {"gpu": template("one")}, group=KEY.name) for n in range(count)))


def explained(objects: ClusterObjects) -> GroupExplanation:
    return explain_group(Engine(objects, objects.now), KEY)


def states(found: GroupExplanation) -> list[str]:
    return [f"{each.name} {each.state} {each.node}".strip() for each in found.members]


def test_members_get_nodes_and_devices_together() -> None:
    objects = cluster(1, 1)
    add_gang(objects, count=2, min_count=2)
    found = explained(objects)
    assert found.is_good
    assert found.message == "pod group default/gang fits: 2 pods would get nodes together"
    assert sorted(each.node for each in found.members) == ["node-0", "node-1"]
    assert found.members[0].devices[0].endswith("gpu-0 for p0-gpu gpu")


def test_the_largest_part_and_what_is_missing_for_the_rest() -> None:
    objects = cluster(1, 1)
    add_gang(objects, count=3, min_count=3)
    found = explained(objects)
    assert not found.is_good
    assert found.message.startswith("pod group default/gang does not fit: minCount (3) cannot be satisfied")
    assert [each.state for each in found.members] == ["Fits", "Fits", "Missing"]
    assert found.smaller_min_count == 2
    assert "set spec.schedulingPolicy.gang.minCount to 2" in "\n".join(found.lines())
    assert any(remedy.change.text.startswith("add 1 device") for remedy in found.remedies)
    assert found.values()["missing"]["verdict"] == "DoesNotFit"


def test_a_change_that_helps_one_member_but_not_the_gang_is_no_remedy() -> None:
    objects = cluster(1)
    add_gang(objects, count=3, min_count=3)
    assert explained(objects).remedies == ()


def test_members_wait_for_each_other() -> None:
    objects = cluster(2)
    add_gang(objects, count=1, min_count=2)
    found = explained(objects)
    assert not found.is_good
    assert states(found) == ["p0 Waiting"]
    assert found.message.endswith("waiting for minCount pods from a gang to appear in scheduling queue")
    member = explain_pod(Engine(objects, objects.now), objects.all(Pod)["default", "p0"])
    assert [each.stage for each in member.blockers] == ["PodGroup"]


def test_members_that_have_nodes_count() -> None:
    objects = cluster(1, 1)
    add_gang(objects, count=3, min_count=2)
    running = seen(pod("p0", {}, group=KEY.name, node="node-0"), phase="Running")
    objects.add(running)
    assert states(explained(objects))[0] == "p0 Placed node-0"


def test_pods_that_would_be_evicted_for_a_gang() -> None:
    objects = cluster(1, 1, gates="DRAPreemption=true")
    result = build.held("gpu-0", driver="gpu.example.com", pool="node-0", request="gpu")
    low = seen(pod("low", {"gpu": existing("c")}, node="node-0"), phase="Running")
    held = build.claim("c", GPU, allocation=build.allocation(result))
    metadata = replace(held.metadata, finalizers=(CLAIM_FINALIZER,))
    objects.add(replace(held, metadata=metadata, status=replace(held.status, reserved_for=(pod_reference(low),))))
    objects.add(low)
    add(objects, PodGroup, pod_group(KEY.name, min_count=2, priority=5))
    for number in range(2):
        member = pod(f"p{number}", {"gpu": template("one")}, group=KEY.name)
        add(objects, Pod, {**member, "spec": {**member["spec"], "priority": 5}})
    found = explained(objects)
    assert found.preemption is not None
    assert found.preemption.summary == "would preempt default/low"
    assert [each["pod"] for each in found.values()["preemption"]["victims"]] == ["default/low"]
    member_told = explain_pod(Engine(objects, objects.now), objects.all(Pod)["default", "p0"])
    assert "It would preempt default/low" in list(member_told.lines())


def test_a_claim_that_members_share_is_made_once() -> None:
    objects = cluster(1)
    shared = {"shared": template("one")}
    add(objects, PodGroup, pod_group(KEY.name, shared, min_count=3))
    add(objects, Pod, *(pod(f"p{n}", shared, group=KEY.name) for n in range(3)))
    found = explained(objects)
    assert found.is_good
    assert {each.devices for each in found.members} == {("gpu.example.com/node-0/gpu-0 for gang-shared gpu",)}
    allocated = allocate_waiting(Engine(objects, objects.now), None).allocated
    assert [each.claim.metadata.name for each in allocated] == ["gang-shared"]


def test_a_gang_gets_the_fewest_new_nodes_together() -> None:
    for pods, nodes in ((1, 1), (9, 2), (16, 2), (17, 3)):
        objects = cluster()
        shape = CandidateShape.parse("gpu=3")
        add_classes(objects, [shape])
        gpu = build.request("gpu", device_class="gpu.example.com")
        add(objects, ResourceClaimTemplate, claim_template("one", gpu))
        add_gang(objects, count=pods, min_count=pods)
        engine = Engine(objects, objects.now, nodes=())
        plan = plan_pods(engine, objects.all(Pod).values(), shape, objects.now)
        assert (len(plan.placements), len(plan.nodes)) == (pods, nodes)


def test_a_gang_that_does_not_fit_on_new_nodes_gets_none() -> None:
    objects = cluster()
    shape = CandidateShape.parse("gpu=1")
    add_classes(objects, [shape])
    add_gang(objects, count=9, min_count=9)
    plan = plan_pods(Engine(objects, objects.now, nodes=()), objects.all(Pod).values(), shape, objects.now)
    assert (plan.placements, plan.nodes, len(plan.unplaced)) == ((), (), 9)


def test_a_gang_of_an_owner() -> None:
    """The pods of a job with the annotation are a gang without a PodGroup."""
    objects = cluster(1)
    for number in range(2):
        made = pod(f"p{number}", {"gpu": template("one")})
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "job-uid", "controller": True}
        made["metadata"] |= {"annotations": {MIN_COUNT_ANNOTATION: "2"}, "ownerReferences": [owner]}
        add(objects, Pod, made)
    member = explain_pod(Engine(objects, objects.now), objects.all(Pod)["default", "p0"])
    assert member.message.startswith("pod default/p0 cannot be scheduled: gang of default/train does not fit")
    assert len(allocate_waiting(Engine(objects, objects.now), None).refusals) == 2


def test_members_that_contradict_their_group_are_named_as_the_scheduler_does() -> None:
    """A manifest does not state the priority that admission gives the group."""
    objects = cluster(2)
    add(objects, PriorityClass, {"metadata": {"name": "high"}, "value": 7})
    add_gang(objects, 2, 2)
    odd = pod("odd", {}, group=KEY.name)
    add(objects, Pod, {**odd, "spec": {**odd["spec"], "priorityClassName": "high"}})
    found = explained(objects)
    assert not found.is_good
    assert "pod odd has priority 7, its pod group has 0" in "\n".join(found.lines())
