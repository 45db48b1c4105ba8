"""Preemption end to end, over HTTP: API server, scheduler, controllers and nodes; no step is simulated by the test."""

from __future__ import annotations

from typing import Any

from dralloc.api.pod_v1 import Pod
from dralloc.testing.builders import claim, device, device_class, request, resource_slice
from tests.support.running_cluster import RunningCluster, in_running_cluster, in_running_cluster_with
from tests.support.scheduled_cluster import node, our_pod
from tests.support.workloads import Document

GATE = "DRAPreemption=true"


async def make_cluster(cluster: RunningCluster, devices: int = 1) -> None:
    gpus = [device(f"gpu-{number}") for number in range(devices)]
    await cluster.create(
        device_class(), node("node-a"), resource_slice("gpus", *gpus, pool="node-a", node_name="node-a")
    )
    for name, value in (("low", 1), ("high", 10)):
        kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
        await cluster.create({**kind, "metadata": {"name": name}, "value": value})


def of_priority(name: str, priority: str, *claims: str, **more: Any) -> Document:
    document = our_pod(name, *claims, **more)
    return {**document, "spec": {**document["spec"], "priorityClassName": priority}}


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
