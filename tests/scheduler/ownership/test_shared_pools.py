"""Schedulers that share pools by leases, on a server that does not guard devices, in virtual time.

The history of the server decides: whenever a claim is allocated devices of a driver, the lease of the driver is held by that claim's scheduler.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import pytest

from dralloc.client.api_calls import ApiCalls
from dralloc.client.async_client import AsyncClient
from dralloc.client.known_resources import resource_for
from dralloc.client.typed_resource import ObjectKey
from dralloc.kube.coordination_v1 import Lease
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import ResourceClaim
from dralloc.scheduler.ownership.lease_rules import PoolLeaseSettings
from dralloc.scheduler.scheduler import Scheduler
from dralloc.scheduler.settings import SchedulerSettings
from dralloc.scheduler.state.group_members import MIN_COUNT_ANNOTATION
from dralloc.testing.builders import claim, device, device_class, request, resource_slice
from dralloc.testing.virtual_time import VirtualClock, run_virtual
from tests.scheduler.bind.test_races import assert_nothing_is_given_twice
from tests.simulator.network import Faults
from tests.support.api_server import api_in_process
from tests.support.faulty_transport import FaultyTransport
from tests.support.random_seeds import seeds
from tests.support.scheduled_cluster import node
from tests.support.workloads import Document, existing, job, pod

NAMESPACE = "default"
GPU, NIC = "gpu.example.com", "nic.example.com"
NAMES = ("a", "b", "c")


class SharingSchedulers:
    """Schedulers with pods of their own, and a history of who held which driver and allocated what."""

    def __init__(self, client: AsyncClient, seed: int) -> None:
        self.client = client
        self.random = Random(seed)
        self.faults = Faults()
        self._running: dict[str, tuple[asyncio.Task[None], FaultyTransport]] = {}
        self._started = 0
        # Revision, driver and holder; revision, claim and drivers.
        self.holders: list[tuple[int, str, str]] = []
        self.allocations: list[tuple[int, str, frozenset[str]]] = []

    def start(self, name: str) -> None:
        self._started += 1
        transport = FaultyTransport(self.client.calls._transport, Random(self.random.random()), self.faults)
        leases = PoolLeaseSettings(namespace=NAMESPACE, identity=f"{name}-{self._started}")
        settings = SchedulerSettings(names=frozenset({name}), pool_leases=leases)
        clock = VirtualClock(asyncio.get_running_loop())
        scheduler = Scheduler(ApiCalls(transport, field_manager="", field_validation="Ignore"), clock, settings)
        self._running[name] = asyncio.ensure_future(scheduler.run()), transport

    async def stop(self, name: str, *, crash: bool) -> None:
        """End a scheduler; in a crash it can send nothing any more."""
        task, transport = self._running.pop(name)
        if crash:
            transport.faults = Faults(lose_request=1.0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def stop_all(self) -> None:
        for name in list(self._running):
            await self.stop(name, crash=False)

    async def create_gang(self, scheduler: str, *classes: str, size: int) -> list[str]:
        """Pods of a job that are placed together or not at all."""
        made = await self.client.create(job(f"{scheduler}-job"))
        owner = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": made.metadata.name,
            "uid": made.metadata.uid,
            "controller": True,
        }
        metadata = {"annotations": {MIN_COUNT_ANNOTATION: str(size)}, "ownerReferences": [owner]}
        return [await self.create_pod(scheduler, *classes, metadata=metadata) for _ in range(size)]

    async def create_pod(self, scheduler: str, *classes: str, metadata: Document | None = None) -> str:
        self._started += 1
        name = f"{scheduler}-pod-{self._started}"
        requests = [request(f"r{number}", device_class=each) for number, each in enumerate(classes)]
        await self.client.create(claim(name, *requests))
        made = pod(name, {"devices": existing(name)}, scheduler=scheduler)
        made["metadata"] |= metadata or {}
        await self.client.create(made)
        return name

    async def remove_pod(self, name: str) -> None:
        """Delete the pod, and deallocate its claim as a controller does."""
        await self.client.calls.delete(resource_for(Pod), ObjectKey("default", name), grace_period_s=0)
        status = {"allocation": None, "reservedFor": None}
        await self.client.patch(ResourceClaim, name, {"status": status}, subresource="status")

    async def unbound(self) -> list[str]:
        return [each.metadata.name for each in await self.client.list(Pod) if not each.spec.node_name]

    async def record_leases(self) -> None:
        async for event in self.client.watch(Lease):
            lease = event.object
            driver = lease.metadata.name.removeprefix("dralloc-pools-")
            self.holders.append((int(lease.metadata.resource_version), driver, lease.spec.holder_identity or ""))

    async def record_claims(self) -> None:
        allocated: set[str] = set()
        async for event in self.client.watch(ResourceClaim):
            name, allocation = event.object.metadata.name, event.object.status.allocation
            if allocation is None or event.type == "DELETED":
                allocated.discard(name)
            elif name not in allocated:
                allocated.add(name)
                drivers = frozenset(result.driver for result in allocation.devices.results)
                self.allocations.append((int(event.object.metadata.resource_version), name, drivers))

    def assert_only_holders_allocate(self) -> None:
        for revision, name, drivers in self.allocations:
            for driver in drivers:
                earlier = [entry for entry in self.holders if entry[0] < revision and entry[1] == driver]
                assert earlier, f"{name} was allocated devices of {driver}, which no scheduler held"
                assert earlier[-1][2].partition("-")[0] == name.partition("-")[0], (name, driver, earlier[-1])


@asynccontextmanager
async def sharing(seed: int = 0, devices: int = 8) -> AsyncIterator[SharingSchedulers]:
    clock = VirtualClock(asyncio.get_running_loop())
    async with api_in_process(clock=clock, guards_devices=False) as client:
        for driver, name in ((GPU, "gpu"), (NIC, "nic")):
            await client.create(device_class(name, f'device.driver == "{driver}"'))
            for number in range(2):
                listed = [device(f"{name}-{index}") for index in range(devices // 2)]
                at = f"node-{number}"
                await client.create(resource_slice(f"{name}-{at}", *listed, driver=driver, pool=at, node_name=at))
        for number in range(2):
            await client.create(node(f"node-{number}", cpu="1000"))
        made = SharingSchedulers(client, seed)
        watching = [asyncio.ensure_future(each) for each in (made.record_leases(), made.record_claims())]
        try:
            yield made
            await assert_nothing_is_given_twice(client)
            made.assert_only_holders_allocate()
        finally:
            await made.stop_all()
            for task in watching:
                task.cancel()
            await asyncio.gather(*watching, return_exceptions=True)


def test_a_single_scheduler_has_all_drivers_at_once() -> None:
    async def main() -> None:
        async with sharing() as world:
            world.start("a")
            for _ in range(4):
                await world.create_pod("a", "gpu", "nic")
            await asyncio.sleep(1)
            assert await world.unbound() == []

    run_virtual(main())


def test_pods_of_both_schedulers_run_and_each_driver_has_one_owner() -> None:
    async def main() -> None:
        async with sharing() as world:
            for name in ("a", "b"):
                world.start(name)
            for _ in range(4):
                await world.create_pod("a", "gpu", "nic")
                await world.create_pod("b", "nic", "gpu")
            await asyncio.sleep(60)
            assert await world.unbound() == []
            assert {holder.partition("-")[0] for _, _, holder in world.holders if holder} == {"a", "b"}

    run_virtual(main())


def test_a_pod_says_which_scheduler_has_the_devices() -> None:
    async def main() -> None:
        async with sharing() as world:
            world.start("a")
            await asyncio.sleep(1)
            world.start("b")
            await asyncio.sleep(1)
            name = await world.create_pod("b", "gpu")
            await asyncio.sleep(0.5)
            conditions = (await world.client.get(Pod, name)).status.conditions
            assert f"{GPU} by a-1" in "; ".join(each.message for each in conditions)
            await asyncio.sleep(30)
            assert await world.unbound() == []

    run_virtual(main())


def test_gangs_ask_for_drivers_and_keep_them_while_they_are_written() -> None:
    async def main() -> None:
        async with sharing() as world:
            world.start("a")
            await world.create_gang("a", "gpu", size=3)
            await asyncio.sleep(1)
            world.start("b")
            await asyncio.sleep(1)
            names = await world.create_gang("b", "gpu", "nic", size=4)
            await world.create_pod("a", "nic")
            await asyncio.sleep(0.5)
            conditions = (await world.client.get(Pod, names[0])).status.conditions
            assert f"{GPU} by a-1" in "; ".join(each.message for each in conditions)
            await asyncio.sleep(60)
            assert await world.unbound() == []

    run_virtual(main())


@pytest.mark.parametrize("crash", [True, False])
def test_another_scheduler_takes_over(crash: bool) -> None:
    async def main() -> None:
        async with sharing() as world:
            world.start("a")
            await world.create_pod("a", "gpu")
            await asyncio.sleep(1)
            world.start("b")
            await asyncio.sleep(3)
            await world.stop("a", crash=crash)
            await world.create_pod("b", "gpu", "nic")
            await asyncio.sleep(30 if crash else 5)
            assert await world.unbound() == []

    run_virtual(main())


def test_a_pod_that_never_fits_does_not_keep_drivers_moving() -> None:
    async def main() -> None:
        async with sharing(devices=2) as world:
            for name in ("a", "b"):
                world.start(name)
            await world.create_pod("a", "gpu")
            await world.create_pod("a", "gpu")
            await asyncio.sleep(5)
            await world.create_pod("b", "gpu")
            await asyncio.sleep(60)
            before = len({(driver, holder) for _, driver, holder in world.holders}), len(await world.unbound())
            moves = sum(1 for entry in _changes(world.holders))
            await asyncio.sleep(600)
            assert (
                len({(driver, holder) for _, driver, holder in world.holders}),
                len(await world.unbound()),
            ) == before
            assert sum(1 for entry in _changes(world.holders)) - moves <= 4

    run_virtual(main())


def _changes(holders: list[tuple[int, str, str]]) -> list[tuple[str, str]]:
    """The changes of holders, by driver."""
    last: dict[str, str] = {}
    changes = []
    for _, driver, holder in holders:
        if last.get(driver) != holder:
            last[driver] = holder
            changes.append((driver, holder))
    return changes


@pytest.mark.slow
@pytest.mark.fuzz
@pytest.mark.parametrize("seed", seeds(8))
def test_two_schedulers_never_allocate_from_the_same_pool(seed: int) -> None:
    """Random pods, crashes, restarts and lost messages; at the end every pod has its devices."""

    async def main() -> None:
        async with sharing(seed, devices=40) as world:
            random = world.random
            world.faults = Faults(lose_request=0.05, lose_answer=0.05, break_stream=0.01, slow=0.1, delay_max_s=2.0)
            running = set(NAMES)
            for name in NAMES:
                world.start(name)
            pods: list[str] = []
            for _ in range(60):
                match random.choice(("create", "create", "create", "remove", "stop", "start")):
                    case "create" if len(pods) < 18:
                        classes = random.choice((("gpu",), ("nic",), ("gpu", "nic")))
                        pods.append(await world.create_pod(random.choice(NAMES), *classes))
                    case "remove":
                        bound = [name for name in pods if name not in await world.unbound()]
                        if bound:
                            pods.remove(name := random.choice(bound))
                            await world.remove_pod(name)
                    case "stop" if running:
                        running.remove(name := random.choice(sorted(running)))
                        await world.stop(name, crash=random.random() < 0.7)
                    case "start" if len(running) < len(NAMES):
                        running.add(name := random.choice(sorted(set(NAMES) - running)))
                        world.start(name)
                await asyncio.sleep(random.uniform(0, 5))
            world.faults = Faults()
            for name in NAMES:
                if name in running:
                    await world.stop(name, crash=True)
                world.start(name)
            await asyncio.sleep(300)
            assert await world.unbound() == []

    run_virtual(main())
