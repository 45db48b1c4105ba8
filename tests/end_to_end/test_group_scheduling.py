"""How groups of pods are scheduled, over HTTP. docs/quality/parity.md says what the ids in the test names are."""

from __future__ import annotations

from typing import Any

import pytest

from dralloc.kube.pod_v1 import Pod
from dralloc.kube.scheduling_v1beta1 import PodGroup
from dralloc.testing.builders import claim, device, device_class, request, resource_slice
from tests.support.cluster import pod_scheduled
from tests.support.running_cluster import RunningCluster, in_running_cluster_with
from tests.support.running_groups import GROUPS, OWN, create_node, group_where, member
from tests.support.scheduled_cluster import node
from tests.support.workloads import existing, pod_group

pytestmark = pytest.mark.slow


def reasons(group: PodGroup) -> list[tuple[str, str]]:
    return [(each.status, each.reason) for each in group.status.conditions]


@in_running_cluster_with(GROUPS)
async def test_G12_a_gang_waits_for_its_group_and_for_enough_members(cluster: RunningCluster) -> None:
    """A smaller minCount lets it run, and so does one more member."""
    await create_node(cluster)
    await cluster.create(member("lonely", {}, group="unknown"))
    for name in ("shrinks", "grows"):
        await cluster.create(pod_group(name, min_count=2), member(f"{name}-0", {}, group=name))
    says = 'waiting for pods\'s pod group "unknown" to appear in scheduling queue'
    await cluster.refused("lonely", says)
    for name in ("shrinks-0", "grows-0"):
        await cluster.refused(name, "waiting for minCount pods from a gang to appear in scheduling queue")
    await cluster.client.patch(PodGroup, "shrinks", {"spec": {"schedulingPolicy": {"gang": {"minCount": 1}}}})
    await cluster.create(member("grows-1", {}, group="grows"), pod_group("unknown"))
    for name in ("shrinks-0", "grows-0", "grows-1", "lonely"):
        await cluster.running(name)


def differs(name: str, **spec: Any) -> dict[str, Any]:
    document = member(name, {}, group=name.partition("-")[0])
    return {**document, "spec": {**document["spec"], **spec}}


@in_running_cluster_with(f"{GROUPS},PodGroupPreemptionPolicy=true")
async def test_G13_members_that_contradict_their_group_are_an_error(cluster: RunningCluster) -> None:
    """Priority and preemption policy are those of the group; members that run count, too."""
    await create_node(cluster)
    kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
    await cluster.create({**kind, "metadata": {"name": "high"}, "value": 7})
    await cluster.create({**kind, "metadata": {"name": "calm"}, "value": 0, "preemptionPolicy": "Never"})
    for name in ("priority", "policy", "scheduler"):
        await cluster.create(pod_group(name))
    await cluster.create(differs("priority-0", priorityClassName="high"))
    await cluster.create(differs("policy-0", priorityClassName="calm"))
    # The scheduler that is not there has bound the first one.
    await cluster.create(differs("scheduler-0", schedulerName="other", nodeName="node-a"), differs("scheduler-1"))
    for name, says in (
        ("priority", "pod priority-0 has priority 7, its pod group has 0"),
        ("policy", "pod policy-0 has the preemption policy Never, its pod group has PreemptLowerPriority"),
        ("scheduler", "pods scheduler-0 and scheduler-1 have different schedulers"),
    ):
        group = await group_where(cluster, lambda group: group.status.conditions, name)
        assert reasons(group) == [("False", "SchedulerError")], name
        assert says in group.status.conditions[0].message
    assert (await cluster.refused("priority-0", "priority 7")).reason == "SchedulerError"


@in_running_cluster_with(GROUPS)
async def test_G14_members_that_cannot_be_on_one_node_do_not_share_its_device(cluster: RunningCluster) -> None:
    """The first member fits, and waits with the group; the second says what is wrong. Nothing is allocated."""
    for name in ("node-a", "node-b"):
        await cluster.create(node(name, labels={"name": name}))
    local = resource_slice("gpus", device("gpu-0"), pool="node-a", node_name="node-a")
    await cluster.create(device_class(), local, claim("c", request()), pod_group("g", min_count=2))
    for number, name in enumerate(("node-a", "node-b")):
        document = member(f"p{number}", {"c": existing("c")})
        await cluster.create({**document, "spec": {**document["spec"], "nodeSelector": {"name": name}}})
    said = await cluster.refused("p0", "pod group is unschedulable, minCount (2) cannot be satisfied")
    assert said.reason == "Unschedulable"
    await cluster.refused("p1", "claim default/c is allocated on node node-a, which this node cannot use")
    assert (await cluster.claim("c")).status.allocation is None


@in_running_cluster_with(GROUPS)
async def test_G15_members_beyond_minCount_are_placed_where_they_fit(cluster: RunningCluster) -> None:
    """Two of three devices are enough for the gang; the other member says what it lacks, and the condition stays true."""
    await create_node(cluster, devices=2)
    await cluster.create(pod_group("g", min_count=2), *(member(f"p{n}", OWN) for n in range(3)))
    group = await group_where(cluster, lambda group: group.status.conditions)
    assert reasons(group) == [("True", "Scheduled")]
    assert group.status.conditions[0].observed_generation == group.metadata.generation
    waiting = [each for each in await cluster.client.list(Pod) if not each.spec.node_name]
    assert len(waiting) == 1
    await cluster.refused(waiting[0].metadata.name, "all 2 devices are in use")
    # Members that have ended do not make the condition false, nor do those that wait for devices.
    await cluster.create(member("late", OWN))
    await cluster.refused("late", "0/1 nodes are available")
    assert reasons(await cluster.client.get(PodGroup, "g")) == [("True", "Scheduled")]
    running = next(each for each in await cluster.client.list(Pod) if each.spec.node_name)
    await cluster.remove_pod(running.metadata.name)
    await cluster.until(
        Pod, "late", lambda pod: pod is not None and (bool(pod.spec.node_name) or pod_scheduled(pod) is not None)
    )


@in_running_cluster_with(GROUPS)
async def test_G16_pods_of_a_basic_group_are_placed_one_by_one(cluster: RunningCluster) -> None:
    await create_node(cluster, devices=2)
    await cluster.create(pod_group("g"), *(member(f"p{n}", OWN) for n in range(3)))
    await group_where(cluster, lambda group: reasons(group) == [("True", "Scheduled")])
    await cluster.running("p0")
    await cluster.running("p1")
    await cluster.refused("p2", "all 2 devices are in use")
    await cluster.remove_pod("p0")
    await cluster.running("p2")


@in_running_cluster_with(GROUPS)
async def test_G17_a_gang_is_placed_that_the_first_devices_would_not_fit(cluster: RunningCluster) -> None:
    """kubernetes#138765: the first pod takes a device that only the second can use, unless they are searched together."""
    whole = device("a", attributes={"kind": "both"})
    special = device("b", attributes={"kind": "plain"})
    await cluster.create(device_class(), node("node-a"))
    await cluster.create(resource_slice("gpus", whole, special, pool="node-a", node_name="node-a"))
    picky = 'device.attributes["gpu.example.com"].kind == "both"'
    await cluster.create(claim("any", request()), claim("picky", request(where=picky)), pod_group("g", min_count=2))
    await cluster.create(member("p0", {"c": existing("any")}), member("p1", {"c": existing("picky")}))
    for name in ("p0", "p1"):
        await cluster.running(name)
    assert await cluster.devices_of("any") == ["b"]
    assert await cluster.devices_of("picky") == ["a"]


@in_running_cluster_with(GROUPS)
async def test_G25_of_two_gangs_that_need_the_same_devices_one_runs_and_the_other_holds_nothing(
    cluster: RunningCluster,
) -> None:
    """Their members are created in turn, so that each gang could take half."""
    await create_node(cluster, devices=3)
    await cluster.create(*(pod_group(name, min_count=2) for name in ("a", "b")))
    for number in range(2):
        await cluster.create(*(member(f"{name}-{number}", OWN, group=name) for name in ("a", "b")))
    for number in range(2):
        await cluster.running(f"a-{number}")
    await cluster.refused("b-0", "minCount (2) cannot be satisfied: 0 scheduled, 2 remaining")
    held = [each.metadata.name for each in await cluster.claims() if each.status.allocation is not None]
    assert {name.partition("-")[0] for name in held} == {"a"}
    await cluster.remove_pod("a-0")
    for number in range(2):
        await cluster.running(f"b-{number}")
