"""Concurrent schedulers never allocate a device twice, with and without the server's device guard.

They prefer the same nodes in the same order, so that they are after the same devices all the time.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import msgspec
import pytest

from dralloc.client.async_client import AsyncClient
from dralloc.client.transport import ClientRequest, ClientResponse, Transport, TransportError
from dralloc.devices.device_usage import counted_results
from dralloc.devices.identity import DeviceId
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import ResourceClaim
from dralloc.primitives.features import FeatureGates
from dralloc.scheduler.scheduler import Scheduler
from dralloc.scheduler.settings import SchedulerSettings
from dralloc.system_clock import SystemClock
from dralloc.testing.builders import claim, device, device_class, request, resource_slice
from dralloc.testing.virtual_time import VirtualClock, run_virtual
from tests.support.api_server import api_in_process, api_over_http
from tests.support.cluster import cluster_on
from tests.support.relay_transport import RelayTransport
from tests.support.scheduled_cluster import ScheduledCluster, gpus, node, our_pod
from tests.support.workloads import existing, pod, pod_group

NODES, DEVICES = 4, 6


@asynccontextmanager
async def running(schedulers: Iterable[Scheduler]) -> AsyncIterator[None]:
    tasks = [asyncio.ensure_future(scheduler.run()) for scheduler in schedulers]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def create_cluster(client: AsyncClient, *, shareable: bool) -> None:
    await client.create(device_class())
    for number in range(NODES):
        name = f"node-{number}"
        devices = [
            device(f"gpu-{index}", shareable=shareable or None, capacity={"memory": "10Gi"})
            for index in range(DEVICES // 3 if shareable else DEVICES)
        ]
        await client.create(node(name))
        await client.create(resource_slice(name, *devices, pool=name, node_name=name))


async def create_pods(client: AsyncClient, schedulers: tuple[str, ...], count: int, *, shareable: bool) -> None:
    for number in range(count):
        name = f"p{number}"
        wanted = request(capacity={"memory": "3Gi"} if shareable else None)
        await client.create(claim(name, wanted))
        await client.create(pod(name, {"gpu": existing(name)}, scheduler=schedulers[number % len(schedulers)]))


async def until_bound(client: AsyncClient, count: int) -> None:
    bound: set[str] = set()
    async for event in client.watch(Pod):
        if event.object.spec.node_name:
            bound.add(event.object.metadata.name)
        if len(bound) >= count:
            return


async def assert_nothing_is_given_twice(client: AsyncClient) -> None:
    holders: Counter[DeviceId] = Counter()
    consumed: defaultdict[DeviceId, int] = defaultdict(int)
    for found in await client.list(ResourceClaim):
        for result in counted_results(found):
            held = DeviceId.of(result)
            if result.share_id is None:
                holders[held] += 1
            else:
                consumed[held] += result.consumed_capacity["memory"].value
    assert all(count == 1 for count in holders.values())
    assert all(amount <= 10 << 30 for amount in consumed.values())


async def assert_pods_are_where_their_devices_are(client: AsyncClient) -> int:
    claims = {found.metadata.name: found for found in await client.list(ResourceClaim)}
    bound = [found for found in await client.list(Pod) if found.spec.node_name]
    for found in bound:
        status = claims[found.metadata.name].status
        assert status.allocation is not None
        assert {result.pool for result in status.allocation.devices.results} == {found.spec.node_name}
        assert [entry.uid for entry in status.reserved_for] == [found.metadata.uid]
    return len(bound)


CASES: list[dict[str, Any]] = [
    {"guards_devices": guards, "shareable": shareable} for guards in (True, False) for shareable in (True, False)
]


def case_id(case: dict[str, Any]) -> str:
    server = "guarding" if case["guards_devices"] else "stock"
    return f"{server} server, {'shared' if case['shareable'] else 'whole'} devices"


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_two_schedulers_with_pods_of_their_own_race_for_devices_over_http(case: dict[str, Any]) -> None:
    async def main() -> None:
        async with api_over_http(guards_devices=case["guards_devices"]) as client:
            await create_cluster(client, shareable=case["shareable"])
            names = ("ours", "theirs")
            schedulers = [
                Scheduler(client.calls, SystemClock(), SchedulerSettings(names=frozenset({name}))) for name in names
            ]
            async with running(schedulers), asyncio.timeout(60):
                await create_pods(client, names, NODES * DEVICES, shareable=case["shareable"])
                await until_bound(client, NODES * DEVICES)
            await assert_nothing_is_given_twice(client)
            assert await assert_pods_are_where_their_devices_are(client) == NODES * DEVICES

    asyncio.run(main())


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_two_schedulers_race_for_the_same_pods(case: dict[str, Any]) -> None:
    """Without leader election, every pod is bound once, and neither scheduler undoes the other's writes."""

    async def main() -> None:
        clock = VirtualClock(asyncio.get_running_loop())
        async with api_in_process(clock=clock, guards_devices=case["guards_devices"]) as client:
            await create_cluster(client, shareable=case["shareable"])
            schedulers = [Scheduler(client.calls, clock) for _ in range(2)]
            async with running(schedulers):
                await create_pods(client, ("dralloc",), NODES * DEVICES, shareable=case["shareable"])
                await asyncio.sleep(60)
                await assert_nothing_is_given_twice(client)
                assert await assert_pods_are_where_their_devices_are(client) == NODES * DEVICES

    run_virtual(main())


class TakesDevicesFirst(RelayTransport):
    """Another scheduler allocates the same device just before ours, whose answer is lost."""

    def __init__(self, sound: Transport) -> None:
        super().__init__(sound)
        self._is_first = True

    async def send(self, sent: ClientRequest) -> ClientResponse:
        if not (self._is_first and sent.method == "PATCH" and sent.path.endswith("/ours/status")):
            return await self._inner.send(sent)
        self._is_first = False
        taken = {"status": {"allocation": msgspec.json.decode(sent.body)["status"]["allocation"]}}
        await AsyncClient(self._inner).patch(ResourceClaim, "theirs", taken, subresource="status")
        await self._inner.send(sent)
        raise TransportError("lost")


@pytest.mark.parametrize("is_started_again", [False, True])
def test_a_claim_that_lost_its_devices_is_released_if_the_answer_to_its_write_was_lost(is_started_again: bool) -> None:
    async def main() -> None:
        kind = partial(ScheduledCluster, wrap=TakesDevicesFirst)
        async with cluster_on(kind, guards_devices=False) as cluster:
            cluster.start(SchedulerSettings())
            claims = [claim(name, request()) for name in ("ours", "theirs")]
            await cluster.create(node("node-a"), device_class(), gpus("node-a", 2), *claims, our_pod("p", "ours"))
            if is_started_again:
                await cluster.until(ResourceClaim, "ours", lambda found: bool(found and found.status.allocation))
                await cluster.restart()
            await cluster.settle(60)
            assert await cluster.node_of("p") == "node-a"
            assert await cluster.devices_of("ours") != await cluster.devices_of("theirs")

    run_virtual(main())


@pytest.mark.parametrize("is_started_again", [False, True])
def test_the_claim_of_a_gang_that_lost_its_devices_is_released(is_started_again: bool) -> None:
    """It is reserved for the group."""
    names = "GenericWorkload=true,DRAWorkloadResourceClaims=true"
    gates = FeatureGates.parse(names)

    async def main() -> None:
        kind = partial(ScheduledCluster, wrap=TakesDevicesFirst)
        async with cluster_on(kind, guards_devices=False, gates=gates) as cluster:
            cluster.start(SchedulerSettings(gates=gates))
            claims = [claim(name, request()) for name in ("ours", "theirs")]
            await cluster.create(node("node-a"), device_class(), gpus("node-a", 2), *claims)
            gang = pod_group("gang", {"ours": existing("ours")}, min_count=2)
            await cluster.create(gang, *(our_pod(name, "ours", group="gang") for name in ("one", "two")))
            if is_started_again:
                await cluster.until(ResourceClaim, "ours", lambda found: bool(found and found.status.allocation))
                await cluster.restart(names)
            await cluster.settle(60)
            assert {await cluster.node_of(name) for name in ("one", "two")} == {"node-a"}
            assert await cluster.devices_of("ours") != await cluster.devices_of("theirs")

    run_virtual(main())
