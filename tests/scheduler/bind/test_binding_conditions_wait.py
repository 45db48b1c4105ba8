"""Binding conditions in a whole scheduler: a pod is bound when they are met, and retried elsewhere when they fail."""

from __future__ import annotations

from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import ResourceClaim
from dralloc.scheduler.settings import SchedulerSettings
from dralloc.testing.builders import claim, device, device_class, request, resource_slice
from dralloc.testing.virtual_time import run_virtual
from tests.support.scheduled_cluster import ScheduledCluster, in_cluster, node, our_pod, scheduled_cluster


async def create_cluster(cluster: ScheduledCluster, *nodes: str, shareable: bool = False) -> None:
    await cluster.create(device_class())
    for name in nodes:
        attached = device(
            "nic",
            binding_conditions=["attached"],
            shareable=shareable or None,
            capacity={"bandwidth": "10G"},
        )
        await cluster.create(node(name), resource_slice(name, attached, pool=name, node_name=name))


async def tell(cluster: ScheduledCluster, name: str, condition: str) -> None:
    """Writes conditions for each device and share of the claim, like a driver."""
    allocation = (await cluster.claim(name)).status.allocation
    assert allocation is not None
    told = {
        "type": condition,
        "status": "True",
        "reason": "Told",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    devices = [
        {
            "driver": result.driver,
            "pool": result.pool,
            "device": result.device,
            "shareID": result.share_id,
            "conditions": [told],
        }
        for result in allocation.devices.results
    ]
    await cluster.client.patch(ResourceClaim, name, {"status": {"devices": devices}}, subresource="status")


@in_cluster()
async def test_a_pod_is_bound_when_its_binding_conditions_are_met(cluster: ScheduledCluster) -> None:
    await create_cluster(cluster, "node-a")
    await cluster.create(claim("c", request()), our_pod("p", "c"))
    await cluster.settle(30)
    allocation = (await cluster.claim("c")).status.allocation
    assert allocation is not None
    assert allocation.allocation_timestamp is not None
    assert await cluster.node_of("p") == ""
    assert "BindingConditionsPending" in [event.reason for event in await cluster.events_of("p")]
    await tell(cluster, "c", "attached")
    await cluster.settle()
    assert await cluster.node_of("p") == "node-a"


@in_cluster()
async def test_all_pods_of_a_claim_are_bound_as_soon_as_its_binding_conditions_are_met(
    cluster: ScheduledCluster,
) -> None:
    await create_cluster(cluster, "node-a")
    await cluster.create(claim("c", request()), our_pod("p", "c"), our_pod("q", "c"))
    await cluster.settle(100)
    await tell(cluster, "c", "attached")
    await cluster.settle(0.1)
    assert [await cluster.node_of(name) for name in ("p", "q")] == ["node-a"] * 2


@in_cluster()
async def test_shares_of_one_device_become_ready_separately(cluster: ScheduledCluster) -> None:
    await create_cluster(cluster, "node-a", shareable=True)
    for name in ("one", "two"):
        await cluster.create(claim(name, request(capacity={"bandwidth": "2G"})), our_pod(name, name))
    await cluster.settle(30)
    await tell(cluster, "two", "attached")
    await cluster.settle(30)
    assert [await cluster.node_of(name) for name in ("one", "two")] == ["", "node-a"]
    await tell(cluster, "one", "attached")
    await cluster.settle()
    assert await cluster.node_of("one") == "node-a"


@in_cluster()
async def test_devices_that_fail_are_deallocated_and_the_pod_is_retried(cluster: ScheduledCluster) -> None:
    await create_cluster(cluster, "node-a")
    await cluster.create(claim("c", request()), our_pod("p", "c"))
    await cluster.settle()
    before = (await cluster.claim("c")).status.allocation
    await tell(cluster, "c", "failed")
    await cluster.settle(0.5 + 1.0)
    condition = await cluster.condition("p")
    assert condition.reason == "SchedulerError"
    assert "failed is true" in condition.message
    await cluster.settle(10)
    after = (await cluster.claim("c")).status
    assert (after.allocation != before, after.devices) == (True, ())
    await tell(cluster, "c", "attached")
    await cluster.settle()
    assert await cluster.node_of("p") == "node-a"


@in_cluster()
async def test_devices_that_miss_the_deadline_are_deallocated(cluster: ScheduledCluster) -> None:
    await create_cluster(cluster, "node-a")
    await cluster.create(claim("c", request()), our_pod("p", "c"))
    await cluster.settle(599)
    first = (await cluster.claim("c")).status.allocation
    await cluster.settle(30)
    second = (await cluster.claim("c")).status.allocation
    assert first is not None
    assert second is not None
    assert second.allocation_timestamp != first.allocation_timestamp
    text = cluster.schedulers[0].counters.text()
    assert (
        'scheduler_dra_bindingconditions_allocations_total{profile="dralloc",driver="gpu.example.com",status="timeout"} 1'
        in text
    )


def test_pods_that_wait_for_binding_conditions_do_not_block_other_pods() -> None:
    """There are more such pods than write slots; all are bound once their devices are ready."""
    names = [f"p{number}" for number in range(5)]

    async def main() -> None:
        async with scheduled_cluster(schedulers=0) as cluster:
            cluster.start(SchedulerSettings(bindings_max=2))
            await cluster.create(device_class(), node("node-a"))
            attached = [device(name, binding_conditions=["attached"]) for name in names]
            await cluster.create(resource_slice("nics", *attached, pool="node-a", node_name="node-a"))
            for name in names:
                await cluster.create(claim(name, request()), our_pod(name, name))
            await cluster.settle()
            assert [len(await cluster.devices_of(name)) for name in names] == [1] * 5
            await cluster.create(our_pod("plain"))
            await cluster.settle()
            assert await cluster.node_of("plain") == "node-a"
            await tell(cluster, "p0", "failed")
            for name in names[1:]:
                await tell(cluster, name, "attached")
            await cluster.settle()
            assert [await cluster.node_of(name) for name in names] == ["", *["node-a"] * 4]
            await cluster.settle(10)
            await tell(cluster, "p0", "attached")
            await cluster.create(our_pod("another"))
            await cluster.settle()
            assert [await cluster.node_of(name) for name in ("p0", "another")] == ["node-a"] * 2

    run_virtual(main())


@in_cluster()
async def test_a_device_without_binding_conditions_is_preferred(cluster: ScheduledCluster) -> None:
    await create_cluster(cluster, "node-a")
    await cluster.create(resource_slice("ready", device("ready"), pool="b", node_name="node-a"))
    await cluster.create(claim("c", request()), our_pod("p", "c"))
    await cluster.settle()
    assert await cluster.devices_of("c") == ["ready"]
    assert (await cluster.client.get(Pod, "p")).spec.node_name == "node-a"
