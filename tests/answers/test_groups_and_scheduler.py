"""What `explain`, `allocate` and `fit` say about a group of pods, against what the scheduler does with it.

The members of a random group are created first and wait for it. Then the questions are asked, the PodGroup is created, and the answers
must have been true: who gets which node and which devices, what is evicted, and that a smaller `minCount` would have helped.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dralloc.answers.cluster_objects import ClusterObjects
from dralloc.answers.engine import Engine
from dralloc.answers.fit import fit, take_model
from dralloc.answers.group_explanation import GroupExplanation, MemberState, explain_group
from dralloc.answers.live_cluster import read_cluster
from dralloc.answers.placements import PodPlacement
from dralloc.answers.pod_explanation import explain_pod
from dralloc.controllers.controller_set import WITHOUT_NODES
from dralloc.kube.codec import decode, encode
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import DeviceRequest
from dralloc.kube.scheduling_v1beta1 import PodGroup
from dralloc.primitives.features import FeatureGates
from dralloc.scheduler.state.group_members import PodGroupKey
from dralloc.testing import builders as build
from dralloc.testing.cluster import ClusterSettings, InProcessCluster, cluster_in_process
from dralloc.testing.virtual_time import run_virtual
from tests.support.api_server import loop_clock
from tests.support.scheduled_cluster import node
from tests.support.workloads import Document, claim_template, pod, pod_group, template

EXAMPLES = max(1, settings().max_examples // 30)
GATES = FeatureGates.parse(
    "GenericWorkload=true,DRAWorkloadResourceClaims=true,DRAPreemption=true,TopologyAwareWorkloadScheduling=true"
)
SETTLED_S = 10.0
GANGS_MAX = 3
KEY = PodGroupKey("default", "gang")
LARGE = 'device.attributes["gpu.example.com"].size == "large"'
REQUESTS: dict[str, DeviceRequest] = {
    "any": build.request("gpu", device_class="gpu"),
    "two": build.request("gpu", device_class="gpu", count=2),
    "large": build.request("gpu", device_class="gpu", where=LARGE),
    "rather-large": build.first_available(
        "gpu",
        build.alternative("large", device_class="gpu", where=LARGE),
        build.alternative("any", device_class="gpu"),
    ),
}


# The class's extended resource, which a container asks for; no claim is named.
EXTENDED = "example.com/gpu"
ASKED = [*sorted(REQUESTS), EXTENDED]


@dataclass(frozen=True)
class Scenario:
    """Devices of each node (true: large), what each member asks for, and how many pods of low priority were there before."""

    nodes: list[list[bool]]
    members: list[str]
    min_count: int
    shared: str | None
    earlier: int
    is_important: bool
    # Members are on nodes of one zone.
    is_near: bool = False


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    members = draw(st.lists(st.sampled_from(ASKED), min_size=2, max_size=4))
    # Members without claims from templates need not wait for these; a gang that may go without the others would not wait, either.
    is_mixed = EXTENDED in members and len(set(members)) > 1
    return Scenario(
        nodes=draw(st.lists(st.lists(st.booleans(), max_size=3), min_size=1, max_size=3)),
        members=members,
        min_count=len(members) if is_mixed else draw(st.integers(1, len(members))),
        shared=draw(st.sampled_from([None, None, "any"])),
        earlier=draw(st.integers(0, 2)),
        is_important=draw(st.booleans()),
        is_near=draw(st.integers(0, 3)) == 0,
    )


IMPORTANT: Document = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "important"},
    "value": 100,
}


def of_class(document: Document, scenario: Scenario) -> Document:
    if not scenario.is_important:
        return document
    return {**document, "spec": {**document["spec"], "priorityClassName": "important"}}


async def create_cluster(cluster: InProcessCluster, scenario: Scenario) -> None:
    await cluster.client.create(IMPORTANT)
    await cluster.client.create(build.device_class("gpu", extended=EXTENDED))
    for name, wanted in REQUESTS.items():
        await cluster.client.create(claim_template(name, wanted))
    for number, sizes in enumerate(scenario.nodes):
        name = f"node-{number}"
        await cluster.client.create(node(name, labels={"zone": str(number % 2)}))
        gpus = [
            build.device(f"gpu-{n}", attributes={"size": "large" if large else "small"})
            for n, large in enumerate(sizes)
        ]
        await cluster.client.create(
            build.resource_slice(name, *gpus, driver="gpu.example.com", pool=name, node_name=name)
        )
    for number in range(scenario.earlier):
        await cluster.client.create(pod(f"earlier-{number}", {"gpu": template("any")}))
    await asyncio.sleep(SETTLED_S)
    shared = {"shared": template(scenario.shared)} if scenario.shared is not None else {}
    for number, asked in enumerate(scenario.members):
        await cluster.client.create(of_class(member(f"member-{number}", asked, shared), scenario))
    await asyncio.sleep(SETTLED_S)


def member(name: str, asked: str, shared: Document, group: str = KEY.name) -> Document:
    if asked != EXTENDED:
        return pod(name, {"gpu": template(asked), **shared}, group=group)
    made = pod(name, shared, group=group, requests={EXTENDED: "1"})
    made["spec"]["containers"][0]["resources"]["limits"] = {EXTENDED: "1"}
    return made


def group_of(scenario: Scenario, min_count: int) -> Document:
    shared = {"shared": template(scenario.shared)} if scenario.shared is not None else {}
    near: Document = {"schedulingConstraints": {"topology": [{"key": "zone"}]}} if scenario.is_near else {}
    return of_class(pod_group(KEY.name, shared, min_count=min_count, **near), scenario)


async def read_objects(cluster: InProcessCluster) -> ClusterObjects:
    objects = ClusterObjects(GATES, now=loop_clock().now())
    for read in (await read_cluster(cluster.transport, "default")).values():
        for obj in read.objects:
            objects.add(obj)
    return objects


def told(explained: GroupExplanation) -> dict[str, str]:
    """The nodes that members get, by the explanation."""
    return {each.name: each.node for each in explained.members if each.state is MemberState.FITS}


async def happened(cluster: InProcessCluster) -> tuple[dict[str, str], ClusterObjects]:
    await asyncio.sleep(SETTLED_S)
    cluster.components.check()
    objects = await read_objects(cluster)
    pods = objects.all(Pod).values()
    placed = {each.metadata.name: each.spec.node_name for each in pods if each.metadata.name.startswith("member")}
    return {name: node for name, node in placed.items() if node}, objects


def devices(claims: object) -> set[str]:
    results = [
        result
        for claim in claims  # type: ignore[attr-defined]
        if claim.status.allocation is not None
        for result in claim.status.allocation.devices.results
    ]
    return {f"{result.request} {result.pool}/{result.device}" for result in results}


async def check(scenario: Scenario) -> None:
    cluster_settings = ClusterSettings(clock=loop_clock(), gates=GATES, controllers=WITHOUT_NODES)
    async with cluster_in_process(cluster_settings) as cluster:
        await create_cluster(cluster, scenario)
        made = group_of(scenario, scenario.min_count)
        before = await read_objects(cluster)
        before.add(decode(encode(made), PodGroup))
        explained = explain_group(Engine(before, before.now), KEY)
        allocating = Engine(before, before.now)
        members = [each for each in before.all(Pod).values() if each.metadata.name.startswith("member")]
        answers = {each.metadata.name: allocating.place(each) for each in members}
        single = {each.metadata.name: explain_pod(Engine(before, before.now), each) for each in members}
        await cluster.client.create(made)
        placed, after = await happened(cluster)
        text = "\n".join(explained.lines())
        if explained.preemption is not None:
            victims = {each.pod.metadata.name for each in explained.preemption.plan.victims}
            assert {each.metadata.name for each in after.all(Pod).values() if each.is_terminating} == victims, text
            return
        if explained.is_good:
            assert placed == told(explained), text
        else:
            assert placed == {}, text
        assert placed == {name: each.node for name, each in answers.items() if isinstance(each, PodPlacement)}
        assert placed.keys() == {name for name, each in single.items() if each.is_good}
        engine = Engine(after, after.now)
        for name in placed:
            answer, actual = answers[name], after.all(Pod)["default", name]
            assert isinstance(answer, PodPlacement)
            assert devices(answer.claims) == devices(engine.claims_of(actual)), text
        if explained.smaller_min_count:
            await cluster.client.patch(
                PodGroup,
                KEY.name,
                {"spec": {"schedulingPolicy": {"gang": {"minCount": explained.smaller_min_count}}}},
            )
            assert (await happened(cluster))[0] == told(explained), text


@pytest.mark.slow
@given(scenarios())
@settings(max_examples=EXAMPLES)
def test_what_is_said_about_a_group_is_what_happens(scenario: Scenario) -> None:
    run_virtual(check(scenario))


async def follow_fit(sizes: list[list[bool]], asked: str, count: int, min_count: int) -> None:
    """Creates as many gangs as fit, and one more."""
    scenario = Scenario(sizes, [], min_count, shared=None, earlier=0, is_important=False)
    cluster_settings = ClusterSettings(clock=loop_clock(), gates=GATES, controllers=WITHOUT_NODES)
    async with cluster_in_process(cluster_settings) as cluster:
        await create_cluster(cluster, scenario)
        objects, given = await read_objects(cluster), ClusterObjects(GATES)
        given.add(decode(encode(pod_group("g", min_count=min_count)), PodGroup))
        for number in range(count):
            given.add(decode(encode(member(f"p{number}", asked, {}, "g")), Pod))
        model = take_model(given, objects)
        found = fit(Engine(objects, objects.now), model, GANGS_MAX)
        for gang in range(found.count + (not found.is_limited)):
            for number in range(count):
                await cluster.client.create(member(f"g{gang}-p{number}", asked, {}, f"g{gang}"))
            await asyncio.sleep(SETTLED_S)
            await cluster.client.create(pod_group(f"g{gang}", min_count=min_count))
            await asyncio.sleep(SETTLED_S)
        pods = [each for each in (await read_objects(cluster)).all(Pod).values() if each.spec.node_name]
        assert {each.metadata.name.partition("-")[0] for each in pods} == {f"g{gang}" for gang in range(found.count)}
        by_node = Counter(each.spec.node_name for each in pods)
        assert by_node == {node: count for node, count in found.by_node.items() if count}


@pytest.mark.slow
@given(
    st.lists(st.lists(st.booleans(), max_size=4), min_size=1, max_size=3),
    st.sampled_from(ASKED),
    st.integers(2, 3),
    st.integers(1, 3),
)
@settings(max_examples=EXAMPLES)
def test_as_many_gangs_fit_as_is_said(sizes: list[list[bool]], asked: str, count: int, min_count: int) -> None:
    run_virtual(follow_fit(sizes, asked, count, min(count, min_count)))
