"""The condition and event of an unschedulable pod: current within a minute, and not written more often."""

from __future__ import annotations

import pytest

from dralloc.client.known_resources import resource_for
from dralloc.client.typed_resource import ObjectKey
from dralloc.kube.core_v1 import Node
from dralloc.kube.pod_v1 import Pod
from dralloc.scheduler.report.pod_conditions import (
    SAME_AGAIN_S,
    UNSCHEDULABLE,
    Unscheduled,
    WrittenCondition,
    delay_before_write_s,
)
from tests.support.scheduled_cluster import ScheduledCluster, in_cluster, node, our_pod
from tests.support.workloads import pod, seen


def unscheduled(message: str) -> Unscheduled:
    return Unscheduled(UNSCHEDULABLE, message)


def stored(message: str) -> Pod:
    condition = {"type": "PodScheduled", "status": "False", "reason": UNSCHEDULABLE, "message": message}
    return seen(pod("p"), conditions=[condition])


LAST = WrittenCondition(unscheduled("0/1 nodes are available"), at_s=100)


@pytest.mark.parametrize(
    ("message", "last", "subject", "now_s", "want"),
    [
        pytest.param("anything", None, seen(pod("p")), 100, 0.0, id="first condition"),
        pytest.param("no nodes are available", LAST, seen(pod("p")), 101, 0.0, id="another text"),
        pytest.param("0/2 nodes are available", LAST, seen(pod("p")), 110, 50.0, id="other numbers, soon"),
        pytest.param("0/2 nodes are available", LAST, seen(pod("p")), 200, 0.0, id="other numbers, later"),
        pytest.param("0/1 nodes are available", LAST, seen(pod("p")), 110, None, id="the same, soon"),
        pytest.param(
            "0/1 nodes are available", LAST, stored("0/1 nodes are available"), 200, None, id="the same, stored"
        ),
        pytest.param("0/1 nodes are available", LAST, stored("other"), 200, 0.0, id="the same, overwritten by others"),
    ],
)
def test_when_a_condition_is_written(
    message: str, last: WrittenCondition | None, subject: Pod, now_s: float, want: float | None
) -> None:
    assert delay_before_write_s(unscheduled(message), last, subject, now_s) == want


async def create_unschedulable_pod(cluster: ScheduledCluster) -> None:
    await cluster.create(node("node-0", cpu="1"), our_pod("p", requests={"cpu": "2"}))
    await cluster.settle()
    assert await message(cluster) == "0/1 nodes are available: 1 node: insufficient cpu"


async def message(cluster: ScheduledCluster) -> str:
    return (await cluster.condition("p")).message


async def revision(cluster: ScheduledCluster) -> str:
    return (await cluster.client.get(Pod, "p")).metadata.resource_version


@in_cluster()
async def test_a_message_whose_numbers_change_is_written_once_a_minute_with_current_numbers(
    cluster: ScheduledCluster,
) -> None:
    await create_unschedulable_pod(cluster)
    told = await revision(cluster)
    for number in range(1, 10):
        await cluster.create(node(f"node-{number}", cpu="1"))
        await cluster.settle(1)
    assert await revision(cluster) == told
    await cluster.settle(SAME_AGAIN_S)
    assert await message(cluster) == "0/10 nodes are available: 10 nodes: insufficient cpu"
    told = await revision(cluster)
    await cluster.settle(SAME_AGAIN_S)
    assert await revision(cluster) == told


@in_cluster()
async def test_a_pod_has_one_event_with_the_current_message(cluster: ScheduledCluster) -> None:
    await create_unschedulable_pod(cluster)
    for number in range(1, 5):
        await cluster.settle(SAME_AGAIN_S)
        await cluster.create(node(f"node-{number}", cpu="1"))
    await cluster.settle(SAME_AGAIN_S)
    (event,) = await cluster.events_of("p")
    assert (event.reason, event.count) == ("FailedScheduling", 5)
    assert event.message == await message(cluster) == "0/5 nodes are available: 5 nodes: insufficient cpu"


@in_cluster()
async def test_numbers_that_return_to_the_written_ones_are_not_written_again(cluster: ScheduledCluster) -> None:
    await create_unschedulable_pod(cluster)
    told = await revision(cluster)
    await cluster.create(node("node-1", cpu="1"))
    await cluster.settle(15)
    await cluster.client.calls.delete(resource_for(Node), ObjectKey("", "node-1"))
    await cluster.client.patch(Node, "node-0", {"metadata": {"labels": {"new": "yes"}}})
    await cluster.settle(2 * SAME_AGAIN_S)
    assert await revision(cluster) == told
    assert [event.count for event in await cluster.events_of("p")] == [1]


@in_cluster()
async def test_no_rejection_is_written_after_the_pod_got_its_node(cluster: ScheduledCluster) -> None:
    await create_unschedulable_pod(cluster)
    await cluster.create(node("node-1", cpu="1"))
    await cluster.settle(10)
    await cluster.create(node("large", cpu="2"))
    await cluster.settle(2 * SAME_AGAIN_S)
    assert (await cluster.node_of("p"), (await cluster.condition("p")).status) == ("large", "True")
