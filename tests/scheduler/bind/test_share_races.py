"""Concurrent schedulers on devices with strategies and remainders: the first share decides, whichever scheduler gives it."""

from __future__ import annotations

import asyncio
from collections import defaultdict

import pytest

from dralloc.client.async_client import AsyncClient
from dralloc.devices.device_usage import counted_results
from dralloc.devices.identity import DeviceId
from dralloc.kube.device_parts import capacity
from dralloc.kube.resource_v1 import Device, DeviceRequestAllocationResult, ResourceClaim
from dralloc.primitives.features import FeatureGates
from dralloc.scheduler.scheduler import Scheduler
from dralloc.scheduler.settings import SchedulerSettings
from dralloc.system_clock import SystemClock
from dralloc.testing.builders import claim, device, device_class, request, resource_slice
from tests.scheduler.bind.test_races import assert_pods_are_where_their_devices_are, running, until_bound
from tests.support.api_server import api_over_http
from tests.support.scheduled_cluster import node
from tests.support.workloads import existing, pod

GATES = FeatureGates.parse("DRACapacityStrategies=true,DRACapacityRemainder=true")
NODES, DEVICES, PODS = 2, 12, 24
STRATEGIES = ("ConsumedOrNever", "BlockOrShare")


def card(number: int) -> Device:
    strategy = STRATEGIES[number % 2]
    bandwidth = capacity("10", default="2", strategy=strategy)
    return device(
        f"{strategy.lower()}-{number:02}",
        shareable=True,
        capacity={"bandwidth": bandwidth, "memory": capacity("8", default="1")},
        remainder="GiveToLast" if number % 3 == 0 else None,
    )


async def create_cluster(client: AsyncClient) -> None:
    await client.create(device_class())
    for number in range(NODES):
        name = f"node-{number}"
        await client.create(node(name))
        await client.create(resource_slice(name, *map(card, range(DEVICES)), pool=name, node_name=name))


async def create_pods(client: AsyncClient, schedulers: tuple[str, ...]) -> None:
    for number in range(PODS):
        name = f"p{number}"
        wanted = request(capacity={"bandwidth": "3"} if number % 3 else None)
        await client.create(claim(name, wanted))
        await client.create(pod(name, {"nic": existing(name)}, scheduler=schedulers[number % len(schedulers)]))


async def assert_shares_agree(client: AsyncClient) -> None:
    """Sums are within the capacity, and the shares of a device obey its strategy."""
    shares: defaultdict[DeviceId, list[DeviceRequestAllocationResult]] = defaultdict(list)
    for found in await client.list(ResourceClaim):
        for result in counted_results(found):
            shares[DeviceId.of(result)].append(result)
    for device_id, results in shares.items():
        amounts = [
            result.consumed_capacity["bandwidth"].value for result in results if "bandwidth" in result.consumed_capacity
        ]
        assert sum(amounts) <= 10
        assert sum(result.consumed_capacity["memory"].value for result in results) <= 8
        if device_id.device.startswith("consumedornever"):
            assert len(amounts) in (0, len(results)), f"{device_id} is divided"
        else:
            assert min(amounts) > 0
            assert len(amounts) == len(results)


@pytest.mark.slow
@pytest.mark.parametrize("guards_devices", [True, False], ids=["guarding server", "stock server"])
def test_two_schedulers_race_for_first_shares_over_http(guards_devices: bool) -> None:
    async def main() -> None:
        async with api_over_http(guards_devices=guards_devices, gates=GATES) as client:
            await create_cluster(client)
            names = ("ours", "theirs")
            schedulers = [
                Scheduler(client.calls, SystemClock(), SchedulerSettings(names=frozenset({name}), gates=GATES))
                for name in names
            ]
            async with running(schedulers), asyncio.timeout(60):
                await create_pods(client, names)
                await until_bound(client, PODS)
            await assert_shares_agree(client)
            assert await assert_pods_are_where_their_devices_are(client) == PODS

    asyncio.run(main())
