"""Preemption end to end, over HTTP: API server, scheduler, controllers and nodes; no step is simulated by the test."""

from __future__ import annotations

from typing import Any

from dralloc.kube.pod_v1 import Pod
from dralloc.kube.scheduling_v1beta1 import PodGroup
from dralloc.testing.builders import claim, device, device_class, request, resource_slice
from tests.support.running_cluster import RunningCluster, in_running_cluster, in_running_cluster_with
from tests.support.scheduled_cluster import node, of_priority
from tests.support.workloads import Document, pod_group

GATE = "DRAPreemption=true"


async def make_cluster(cluster: RunningCluster, devices: int = 1) -> None:
    gpus = [device(f"gpu-{number}") for number in range(devices)]
    await cluster.create(
        device_class(), node("node-a"), resource_slice("gpus", *gpus, pool="node-a", node_name="node-a")
    )
    for name, value in (("low", 1), ("high", 10)):
        kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
        await cluster.create({**kind, "metadata": {"name": name}, "value": value})


async def run(cluster: RunningCluster, name: str, priority: str, **more: Any) -> None:
    await cluster.create(claim(f"claim-of-{name}", request()), of_priority(name, priority, f"claim-of-{name}", **more))


@in_running_cluster_with(GATE)
async def test_a_pod_gets_the_device_of_a_pod_with_lower_priority(cluster: RunningCluster) -> None:
    await make_cluster(cluster)
    await run(cluster, "weak", "low")
    await cluster.running("weak")
    await run(cluster, "strong", "high")
    await cluster.running("strong")
    assert not await cluster.exists(Pod, "weak")
    assert await cluster.devices_of("claim-of-strong") == ["gpu-0"]
    assert await cluster.devices_of("claim-of-weak") == []
    told = [event.message for event in await cluster.events_of("weak") if event.reason == "Preempted"]
    assert told == ["Preempted by pod default/strong on node node-a"]


@in_running_cluster
async def test_the_gate_of_preemption_is_switched_on(cluster: RunningCluster) -> None:
    await make_cluster(cluster)
    await run(cluster, "weak", "low")
    await cluster.running("weak")
    await run(cluster, "strong", "high")
    condition = await cluster.refused("strong")
    assert "preemption" not in condition.message
    await cluster.schedule(GATE)
    await cluster.running("strong")
    assert not await cluster.exists(Pod, "weak")


@in_running_cluster_with(GATE)
async def test_victims_are_few_and_budgets_are_respected(cluster: RunningCluster) -> None:
    await make_cluster(cluster, devices=3)
    budget = {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "kept"}}}
    kind = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget"}
    await cluster.create({**kind, "metadata": {"name": "budget"}, "spec": budget})
    for name in ("kept", "one", "two"):
        await run(cluster, name, "low", labels={"app": name})
        await cluster.running(name)
    await run(cluster, "strong", "high")
    await cluster.running("strong")
    assert await cluster.exists(Pod, "kept")
    assert [await cluster.exists(Pod, name) for name in ("one", "two")].count(True) == 1


GANGS = f"{GATE},GenericWorkload=true"


def member(name: str, priority: str, group: str, *claims: str) -> Document:
    document = of_priority(name, priority, *claims)
    # So that it can be looked at when it has ended.
    metadata = {**document["metadata"], "finalizers": ["example.com/keep"]}
    return {**document, "metadata": metadata, "spec": {**document["spec"], "schedulingGroup": {"podGroupName": group}}}


@in_running_cluster_with(GANGS)
async def test_a_gang_evicts_a_whole_gang_and_both_are_told(cluster: RunningCluster) -> None:
    """The weak gang is evicted as a whole, though one device would do; its condition says why, its pods' events for whom."""
    await make_cluster(cluster, devices=3)
    await cluster.create(
        pod_group("weak", min_count=2, disruptionMode={"all": {}}, priorityClassName="low"),
        pod_group("strong", min_count=2, priorityClassName="high"),
    )
    for name, priority in (("weak", "low"), ("strong", "high")):
        for number in range(2):
            await cluster.create(claim(f"{name}-{number}", request()))
            await cluster.create(member(f"{name}-{number}", priority, name, f"{name}-{number}"))
        if name == "weak":
            for number in range(2):
                await cluster.running(f"weak-{number}")
    for number in range(2):
        ended = await cluster.until(Pod, f"weak-{number}", lambda pod: pod is not None and pod.is_terminating)
        assert ended is not None
        (told,) = [each for each in ended.status.conditions if each.type == "DisruptionTarget"]
        assert told.reason == "PreemptionByScheduler"
    group = await cluster.client.get(PodGroup, "weak")
    assert ("DisruptionTarget", "PreemptionByScheduler") in [
        (each.type, each.reason) for each in group.status.conditions
    ]
    nominated = await cluster.until(
        Pod, "strong-0", lambda pod: pod is not None and pod.status.nominated_node_name != ""
    )
    assert nominated is not None
    assert nominated.status.nominated_node_name == "node-a"
    for number in range(2):
        await cluster.client.patch(Pod, f"weak-{number}", {"metadata": {"finalizers": None}})
    for number in range(2):
        await cluster.running(f"strong-{number}")
    messages = [each.message for each in await cluster.events_of("weak-0") if each.reason == "Preempted"]
    assert messages == ["Preempted by pod group default/strong on node node-a"]
    metrics = cluster.scheduler_metrics.text()
    for line in (
        'scheduler_workload_preemption_attempts_total{result="Success"}',
        'scheduler_preemption_workload_disruptions_count{preemptor="podgroup"}',
        'scheduler_podgroup_schedule_attempts_total{result="waiting_on_preemption",profile="dralloc"}',
        'scheduler_podgroup_schedule_attempts_total{result="scheduled",profile="dralloc"} 2',
    ):
        assert line in metrics


@in_running_cluster_with(GANGS)
async def test_a_policy_of_never_and_the_gate_off_again_evict_nobody(cluster: RunningCluster) -> None:
    await make_cluster(cluster)
    kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
    await cluster.create({**kind, "metadata": {"name": "polite"}, "value": 10, "preemptionPolicy": "Never"})
    await run(cluster, "weak", "low")
    await cluster.running("weak")
    await run(cluster, "calm", "polite")
    await cluster.refused("calm", "its preemptionPolicy is Never")
    await cluster.schedule("GenericWorkload=true")
    await run(cluster, "strong", "high")
    await cluster.refused("strong")
    assert (await cluster.pod("weak")).status.phase == "Running"
