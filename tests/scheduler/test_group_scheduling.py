"""Equivalence groups in a whole scheduler: an event costs few attempts, with the outcome of trying every member."""

from __future__ import annotations

import re

from dralloc.kube.pod_claims import pod_reference
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import ResourceClaim
from dralloc.testing.builders import claim, device, device_class, request, resource_slice
from tests.support.scheduled_cluster import ScheduledCluster, in_cluster, node, our_pod

PODS = 30
NAMES = [f"p{number:02}" for number in range(PODS)]
# Until all conditions are written: members' conditions follow the representative's, each at most once a minute.
TOLD_S = 100.0


async def create_pods_that_wait(cluster: ScheduledCluster) -> None:
    """One device, held by the first pod; every other pod has a claim of its own."""
    await cluster.create(device_class(), node("node-a"))
    await cluster.create(resource_slice("a", device("gpu-0"), pool="node-a", node_name="node-a"))
    await cluster.create(claim("first", request()), our_pod("first", "first"))
    await cluster.settle()
    for name in NAMES:
        await cluster.create(claim(name, request()), our_pod(name, name))
    await cluster.settle(15)
    assert await waiting(cluster) == NAMES


async def waiting(cluster: ScheduledCluster) -> list[str]:
    return [name for name in NAMES if not await cluster.node_of(name)]


async def free_one_device(cluster: ScheduledCluster) -> None:
    await cluster.remove_pod("first")
    await cluster.release("first")


def unschedulable(cluster: ScheduledCluster) -> float:
    return cluster.schedulers[0].counters.attempts.value("unschedulable", "dralloc")


@in_cluster()
async def test_a_freed_device_costs_few_attempts_and_goes_to_the_oldest_pod(cluster: ScheduledCluster) -> None:
    await create_pods_that_wait(cluster)
    before = unschedulable(cluster)
    await free_one_device(cluster)
    await cluster.settle(15)
    assert await waiting(cluster) == NAMES[1:]
    assert unschedulable(cluster) - before <= 3


@in_cluster()
async def test_an_event_that_helps_no_member_costs_few_attempts_and_updates_all_conditions(
    cluster: ScheduledCluster,
) -> None:
    await create_pods_that_wait(cluster)
    before = unschedulable(cluster)
    await cluster.create(node("node-b"))
    await cluster.settle(TOLD_S)
    assert unschedulable(cluster) - before <= 3
    said = [(await cluster.condition(name)).message for name in NAMES]
    assert all(message.startswith("0/2 nodes are available") for message in said), said
    events = [event for name in NAMES for event in await cluster.events_of(name)]
    assert [(event.count, event.message) for event in events] == [(2, message) for message in said]


@in_cluster()
async def test_conditions_of_members_that_were_not_tried_name_their_own_claims(cluster: ScheduledCluster) -> None:
    await cluster.create(device_class(), node("node-a"))
    await cluster.create(resource_slice("a", device("gpu-0"), pool="node-a", node_name="node-a"))
    for name in NAMES[:4]:
        await cluster.create(claim(f"{name}-1", request()), claim(f"{name}-2", request()))
        await cluster.create(our_pod(name, f"{name}-1", f"{name}-2"))
    await cluster.settle()
    await cluster.create(node("node-b"))
    await cluster.settle(TOLD_S)
    for name in NAMES[:4]:
        message = (await cluster.condition(name)).message
        assert message.startswith("0/2 nodes are available")
        assert {found[:3] for found in re.findall(r"p\d\d-\d", message)} == {name}, message


@in_cluster()
async def test_all_members_are_scheduled_if_there_is_enough_for_all(cluster: ScheduledCluster) -> None:
    await create_pods_that_wait(cluster)
    devices = [device(f"gpu-{number}") for number in range(PODS)]
    await cluster.create(node("node-b"), resource_slice("b", *devices, pool="node-b", node_name="node-b"))
    await cluster.settle()
    assert await waiting(cluster) == []


@in_cluster()
async def test_a_pod_with_a_reservation_is_not_in_a_group_with_pods_without_one(cluster: ScheduledCluster) -> None:
    """Only the listed pod may deallocate the claim. The reservation was left by a scheduler that crashed."""
    await cluster.create(device_class(), node("node-a", cpu="1"))
    for name in ("node-a", "node-b"):
        await cluster.create(resource_slice(name, device("gpu-0"), pool=name, node_name=name))
    await cluster.create(claim("c", request()), our_pod("before", "c"))
    await cluster.settle()
    await cluster.remove_pod("before")
    holder = our_pod("holder", "c", requests={"cpu": "1"})
    holder["spec"]["schedulingGates"] = [{"name": "example.com/wait"}]
    await cluster.create(our_pod("filler", requests={"cpu": "1"}), holder)
    await cluster.settle()
    await cluster.create(our_pod("older", "c", requests={"cpu": "1"}))
    listed = {"reservedFor": [pod_reference(await cluster.client.get(Pod, "holder"))]}
    await cluster.client.patch(ResourceClaim, "c", {"status": listed}, subresource="status")
    await cluster.settle()
    await cluster.client.patch(Pod, "holder", {"spec": {"schedulingGates": None}})
    await cluster.settle(15)
    assert [await cluster.node_of(name) for name in ("older", "holder")] == ["", ""]
    await cluster.create(node("node-b"))
    await cluster.settle(15)
    assert [await cluster.node_of(name) for name in ("older", "holder")] == ["node-b", "node-b"]
