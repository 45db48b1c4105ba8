"""Drivers change published devices while claims hold them: no share is lost, and waiting pods are retried."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from dralloc.kube.device_parts import capacity
from dralloc.kube.resource_v1 import DeviceRequest, ResourceSlice
from dralloc.testing.builders import claim, device, device_class, request, resource_slice, taint
from dralloc.testing.virtual_time import run_virtual
from tests.support.scheduled_cluster import ScheduledCluster, in_cluster, node, our_pod, scheduled_cluster

MEMORY = {"memory": capacity("8Gi", default="1Gi", minimum="1Gi")}


def gpus(*, first_is_shareable: bool, generation: int) -> ResourceSlice:
    first = device(
        "gpu-0", shareable=first_is_shareable or None, capacity=MEMORY if first_is_shareable else {"memory": "8Gi"}
    )
    second = device("gpu-1", shareable=True, capacity=MEMORY)
    return resource_slice("gpus", first, second, node_name="node-a", generation=generation)


@in_cluster()
async def test_a_device_that_is_no_longer_shareable_is_not_allocated_beside_its_shares(
    cluster: ScheduledCluster,
) -> None:
    await cluster.create(device_class(), node("node-a"), gpus(first_is_shareable=True, generation=1))
    await cluster.create(claim("share", request(capacity={"memory": "1Gi"})), our_pod("share", "share"))
    await cluster.settle()
    assert await cluster.devices_of("share") == ["gpu-0"]
    await cluster.client.apply(gpus(first_is_shareable=False, generation=2), force=True)
    await cluster.create(claim("next", request(capacity={"memory": "1Gi"})), our_pod("next", "next"))
    await cluster.settle()
    assert await cluster.devices_of("next") == ["gpu-1"]
    assert await cluster.node_of("next") == "node-a"


# --- Slices that are withdrawn ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WithdrawalCase:
    id: str
    # Published beside a pool with one usable device.
    stray: ResourceSlice
    request: DeviceRequest


WITHDRAWALS = [
    WithdrawalCase(
        "all devices, one of which cannot be had",
        resource_slice("stray", device("gpu-1", taints=[taint("broken")]), pool="other", node_name="node-a"),
        request(everything=True),
    ),
    WithdrawalCase(
        "a device that was published twice",
        resource_slice("stray", device("gpu-0"), pool="node-a", node_name="node-a"),
        request(),
    ),
]


@pytest.mark.parametrize("case", WITHDRAWALS, ids=lambda case: case.id)
def test_a_pod_is_retried_when_the_slice_that_blocks_it_is_withdrawn(case: WithdrawalCase) -> None:
    async def main() -> None:
        async with scheduled_cluster() as cluster:
            good = resource_slice("good", device("gpu-0"), pool="node-a", node_name="node-a")
            await cluster.create(device_class(), node("node-a"), good, case.stray)
            await cluster.create(claim("c", case.request), our_pod("p", "c"))
            await cluster.settle()
            assert (await cluster.condition("p")).reason == "Unschedulable"
            await cluster.client.delete(ResourceSlice, "stray")
            await cluster.settle()
            assert await cluster.node_of("p") == "node-a"

    run_virtual(main())
