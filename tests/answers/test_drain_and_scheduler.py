"""What `drain` says is what happens: the same pods go, and a running scheduler gives them the nodes that were named."""

from __future__ import annotations

from random import Random

import pytest

from dralloc.answers.drain import BlastRadius, drain_devices, drain_node
from dralloc.devices.identity import DeviceId
from dralloc.kube.core_v1 import Node
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import DeviceTaintRule
from dralloc.scheduler.settings import SchedulerSettings
from dralloc.testing.builders import claim, request, taint, taint_rule
from dralloc.testing.virtual_time import run_virtual
from tests.answers.test_fit_and_scheduler import RandomCluster, named, objects_of
from tests.support.scheduled_cluster import ScheduledCluster, our_pod, scheduled_cluster
from tests.support.workloads import Document

SEEDS = 15
# Of a kind that the server does not serve: the garbage collector deletes pods of owners that do not exist.
OWNER = {"apiVersion": "example.com/v1", "kind": "Rollout", "name": "web", "uid": "web", "controller": True}


async def start(cluster: ScheduledCluster, seed: int) -> dict[str, Document]:
    """A random cluster with pods that share some of their claims; returns the pods."""
    cluster.start(SchedulerSettings())
    random = RandomCluster(seed)
    await cluster.create(*random.objects(), claim("shared", request()))
    pods: dict[str, Document] = {}
    for number, (own, document) in enumerate(random.pods(at_least=3)):
        name = document["metadata"]["name"]
        if number % 3 == 2:
            document = our_pod(name, "shared", requests={"cpu": "1"})
        else:
            await cluster.create(named(own, name))
        document["metadata"]["ownerReferences"] = [OWNER]
        pods[name] = document
        await cluster.create(document)
        await cluster.settle()
    return pods


async def replace_pods(cluster: ScheduledCluster, pods: dict[str, Document], evicted: list[str]) -> None:
    """What controllers do: the pods end, claims without users are deallocated, and the pods are created again."""
    for name in evicted:
        await cluster.remove_pod(name)
    left = {pod.metadata.uid for pod in await cluster.client.list(Pod)}
    for each in await cluster.claims():
        users = {reference.uid for reference in each.status.reserved_for}
        if users and not users & left:
            await cluster.release(each.metadata.name)
        elif users - left:
            kept = [
                {"resource": "pods", "name": r.name, "uid": r.uid} for r in each.status.reserved_for if r.uid in left
            ]
            patch = {"status": {"reservedFor": kept}}
            await cluster.client.patch(type(each), each.metadata.name, patch, subresource="status")
    # Parked pods are tried again before there are new ones.
    await cluster.settle(15)
    for name in evicted:
        await cluster.create(pods[name])
        await cluster.settle()


async def check(cluster: ScheduledCluster, radius: BlastRadius) -> None:
    """The pods of the blast radius have the nodes that it names."""
    nodes = {pod.metadata.name: pod.spec.node_name for pod in await cluster.client.list(Pod)}
    told = {each.evicted.pod.metadata.name: each.node for each in radius.pods}
    assert {name: nodes[name] for name in told} == told


@pytest.mark.parametrize("seed", range(SEEDS))
def test_the_drain_of_a_node(seed: int) -> None:
    async def main() -> None:
        async with scheduled_cluster(schedulers=0) as cluster:
            pods = await start(cluster, seed)
            name = Random(seed).choice([node.metadata.name for node in await cluster.client.list(Node)])
            there = [pod.metadata.name for pod in await cluster.client.list(Pod) if pod.spec.node_name == name]
            radius = drain_node(await objects_of(cluster), name)
            assert [each.evicted.pod.metadata.name for each in radius.pods] == there
            await cluster.client.patch(Node, name, {"spec": {"unschedulable": True}})
            await replace_pods(cluster, pods, there)
            await check(cluster, radius)

    run_virtual(main())


@pytest.mark.parametrize("seed", range(SEEDS))
def test_the_drain_of_devices(seed: int) -> None:
    async def main() -> None:
        async with scheduled_cluster(schedulers=0) as cluster:
            pods = await start(cluster, seed)
            used: dict[DeviceId, list[str]] = {}
            for each in await cluster.claims():
                results = each.status.allocation.devices.results if each.status.allocation is not None else ()
                for result in results:
                    users = used.setdefault(DeviceId.of(result), [])
                    users += [reference.name for reference in each.status.reserved_for if reference.name not in users]
            if not used:
                return
            device = Random(seed).choice(sorted(used))
            rule: DeviceTaintRule = taint_rule(
                "drain",
                taint("drain", effect="NoExecute"),
                driver=device.driver,
                pool=device.pool,
                device=device.device,
            )
            radius = drain_devices(await objects_of(cluster), [rule])
            evicted = [each.evicted.pod.metadata.name for each in radius.pods]
            assert sorted(evicted) == sorted(used[device])
            await cluster.create(rule)
            await replace_pods(cluster, pods, evicted)
            await check(cluster, radius)

    run_virtual(main())
