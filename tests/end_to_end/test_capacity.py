"""Consumable capacity and shared counters over HTTP. docs/quality/parity.md says what the ids in the test names are."""

from __future__ import annotations

import msgspec
import pytest

from dralloc.kube.device_parts import capacity
from dralloc.kube.resource_v1 import Device, ResourceClaim, ResourceSlice
from dralloc.testing.builders import claim, device, device_class, request, resource_slice
from tests.support.running_cluster import RunningCluster, in_running_cluster
from tests.support.scheduled_cluster import node, our_pod

pytestmark = pytest.mark.slow


def shared_gpu(memory: str = "8Gi", *, shareable: bool = True, generation: int = 1) -> ResourceSlice:
    amount = capacity(memory, default="1Gi", minimum="1Gi") if shareable else capacity(memory)
    gpu = device("gpu-0", shareable=shareable or None, capacity={"memory": amount})
    return resource_slice("gpus", gpu, node_name="node-a", pool="node-a", generation=generation)


async def create_user(cluster: RunningCluster, name: str, memory: str | None = None) -> None:
    """Creates a pod and a claim of the same name that requests the memory."""
    asked = request(capacity={"memory": memory} if memory else None)
    await cluster.create(claim(name, asked), our_pod(name, name))


def consumed(stored: ResourceClaim) -> str:
    assert stored.status.allocation is not None
    (result,) = stored.status.allocation.devices.results
    assert result.share_id
    return str(result.consumed_capacity["memory"])


def is_free(stored: ResourceClaim) -> bool:
    return stored.status.allocation is None


@in_running_cluster
async def test_C1_a_pod_that_needs_more_capacity_than_available_runs_after_a_release(
    cluster: RunningCluster,
) -> None:
    await cluster.create(device_class(), node("node-a"), shared_gpu())
    await create_user(cluster, "four", "4Gi")
    await cluster.running("four")
    await create_user(cluster, "eight", "8Gi")
    await cluster.refused("eight", "0/1 nodes are available")
    await create_user(cluster, "another-four", "4Gi")
    await cluster.running("another-four")
    await cluster.delete_pod("four")
    await cluster.claim_where("four", is_free)
    await cluster.delete_pod("another-four")
    await cluster.running("eight")


@in_running_cluster
async def test_C4_requested_capacity_is_rounded_up_and_omitted_capacity_gets_the_default(
    cluster: RunningCluster,
) -> None:
    amount = capacity("10Gi", default="1Gi", minimum="1Gi", step="2Gi")
    gpu = device("gpu-0", shareable=True, capacity={"memory": amount})
    await cluster.create(device_class(), node("node-a"), resource_slice("gpus", gpu, node_name="node-a"))
    for name, asked, given in (("two", "2Gi", "3Gi"), ("nothing", None, "1Gi"), ("little", "1", "1Gi")):
        await create_user(cluster, name, asked)
        await cluster.running(name)
        assert consumed(await cluster.claim(name)) == given


@in_running_cluster
async def test_C12_a_changed_device_stays_as_it_was_for_claims_that_hold_it(cluster: RunningCluster) -> None:
    await cluster.create(device_class(), node("node-a"), shared_gpu(shareable=False))
    await create_user(cluster, "whole")
    await cluster.running("whole")
    # Shareable from now on, but not while a claim holds the whole device.
    await cluster.client.apply(shared_gpu(generation=2), force=True)
    await create_user(cluster, "share", "2Gi")
    await cluster.refused("share")
    await cluster.delete_pod("whole")
    await cluster.running("share")
    assert consumed(await cluster.claim("share")) == "2Gi"
    # Dedicated again: the share stays, and no other claim gets one.
    await cluster.client.apply(shared_gpu(shareable=False, generation=3), force=True)
    await create_user(cluster, "late")
    await cluster.refused("late", "0/1 nodes are available")
    assert (await cluster.running("share")).spec.node_name == "node-a"
    await cluster.delete_pod("share")
    await cluster.running("late")


@in_running_cluster
async def test_C15_a_pod_that_waits_for_capacity_says_what_is_missing_and_runs_after_a_release(
    cluster: RunningCluster,
) -> None:
    await cluster.create(device_class(), node("node-a"), shared_gpu())
    await create_user(cluster, "first", "6Gi")
    await cluster.running("first")
    await create_user(cluster, "second", "5Gi")
    assert (await cluster.refused("second")).reason == "Unschedulable"
    await cluster.end_pod("first")
    await cluster.running("second")
    assert is_free(await cluster.claim("first"))


@in_running_cluster
async def test_T1_a_partition_waits_for_counters_that_another_partition_uses(cluster: RunningCluster) -> None:
    halves = [device(f"gpu-{number}", draws={"memory": {"size": "4Gi"}}) for number in range(2)]
    counters = resource_slice("counters", node_name="node-a", pool="node-a", of=2, counters={"memory": {"size": "6Gi"}})
    await cluster.create(device_class(), node("node-a"), counters)
    await cluster.create(resource_slice("devices", *halves, node_name="node-a", pool="node-a", of=2))
    await create_user(cluster, "first")
    await cluster.running("first")
    await create_user(cluster, "second")
    await cluster.refused("second")
    await cluster.delete_pod("first")
    await cluster.running("second")


@in_running_cluster
async def test_T2_devices_with_their_own_node_selection_are_allocated_there(cluster: RunningCluster) -> None:
    placed = [device(f"gpu-{name}", node_name=name) for name in ("node-a", "node-b")]
    await cluster.create(device_class(), node("node-a"), node("node-b"), node("node-c"))
    await cluster.create(resource_slice("gpus", *placed, per_device=True))
    for name in ("first", "second"):
        await create_user(cluster, name)
    pods = [await cluster.running(name) for name in ("first", "second")]
    assert {pod.spec.node_name for pod in pods} == {"node-a", "node-b"}


@in_running_cluster
async def test_T3_devices_of_one_counter_set_are_allocated_together_only_within_a_group(
    cluster: RunningCluster,
) -> None:
    def part(name: str, group: str) -> Device:
        plain = device(name, draws={"card": {"memory": "1Gi"}})
        grouped = [msgspec.structs.replace(use, compatibility_groups=(group,)) for use in plain.consumes_counters]
        return msgspec.structs.replace(plain, consumes_counters=tuple(grouped))

    await cluster.serve("DRADeviceCompatibilityGroups=true")
    await cluster.schedule("DRADeviceCompatibilityGroups=true")
    parts = [part("mig-0", "mig"), part("vgpu-0", "vgpu"), part("mig-1", "mig")]
    counters = resource_slice("counters", node_name="node-a", pool="node-a", of=2, counters={"card": {"memory": "8Gi"}})
    await cluster.create(device_class(), node("node-a"), counters)
    await cluster.create(resource_slice("devices", *parts, node_name="node-a", pool="node-a", of=2))
    for name, device_name in (("first", "mig-0"), ("second", "mig-1")):
        await create_user(cluster, name)
        await cluster.running(name)
        allocation = (await cluster.claim(name)).status.allocation
        assert allocation is not None
        assert [result.device for result in allocation.devices.results] == [device_name]
    await create_user(cluster, "third")
    await cluster.refused("third", "0/1 nodes are available")
    for name in ("first", "second"):
        await cluster.delete_pod(name)
    await cluster.running("third")
