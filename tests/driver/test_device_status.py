"""Writing `status.devices` of claims."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest
from msgspec.structs import replace

from dralloc.client.informer import HistoryChanged
from dralloc.driver import AllocatedClaim, Device, Driver, PreparedDevice, device
from dralloc.driver.checkpoint import Checkpoint, PreparationRecord
from dralloc.driver.claims import DeviceKey
from dralloc.driver.device_status import StatusWriter, plan_device_status
from dralloc.driver_kit.claim_maker import exactly
from dralloc.kube.core_v1 import Node
from dralloc.kube.meta_v1 import Condition, ObjectMeta
from dralloc.kube.resource_v1 import AllocatedDeviceStatus, NetworkDeviceData, ResourceClaim
from dralloc.primitives.features import FeatureGates
from dralloc.testing.builders import DRIVER, allocation, claim, held, request
from dralloc.testing.driver_bench import NODE, DriverBench, bench_on, bench_settings, driver_bench
from dralloc.testing.virtual_time import run_virtual
from tests.support.restorable_cluster import restorable_cluster

NOW, EARLIER = "2026-01-02T00:00:00Z", "2026-01-01T00:00:00Z"
SHARE_A, SHARE_B = "00000000-0000-4000-8000-00000000000a", "00000000-0000-4000-8000-00000000000b"


def ready(status: str = "True", time: str | None = None) -> Condition:
    return Condition(type="Ready", status=status, reason="Set", last_transition_time=time)


def said(name: str, *conditions: Condition, share: str | None = None, driver: str = DRIVER) -> AllocatedDeviceStatus:
    return AllocatedDeviceStatus(
        driver=driver, pool="pool-a", device=name, share_id=share, conditions=conditions or None
    )


def claim_with(*entries: AllocatedDeviceStatus) -> ResourceClaim:
    results = (held("gpu-0", share_id=SHARE_A), held("gpu-0", share_id=SHARE_B), held("nic", driver="nic.example.com"))
    made = claim("c", request(), allocation=allocation(*results))
    return replace(made, status=replace(made.status, devices=entries))


@dataclass(frozen=True)
class Case:
    id: str
    said: tuple[AllocatedDeviceStatus, ...]
    want: tuple[AllocatedDeviceStatus, ...] | None
    before: tuple[AllocatedDeviceStatus, ...] = ()


NIC = said("nic", ready(time=EARLIER), driver="nic.example.com")
CASES = [
    Case(id="nothing to say", said=(), want=None, before=(NIC,)),
    Case(
        id="a condition begins now",
        said=(said("gpu-0", ready(), share=SHARE_A),),
        want=(said("gpu-0", ready(time=NOW), share=SHARE_A),),
    ),
    Case(
        id="said before",
        said=(said("gpu-0", ready(), share=SHARE_A),),
        before=(said("gpu-0", ready(time=EARLIER), share=SHARE_A),),
        want=None,
    ),
    Case(
        id="a condition changes now",
        said=(said("gpu-0", ready("False"), share=SHARE_A),),
        before=(said("gpu-0", ready(time=EARLIER), share=SHARE_A),),
        want=(said("gpu-0", ready("False", NOW), share=SHARE_A),),
    ),
    Case(
        id="others keep what they said, and their places",
        said=(said("gpu-0", ready(), share=SHARE_B),),
        before=(NIC, said("gpu-0", ready(time=EARLIER), share=SHARE_A)),
        want=(NIC, said("gpu-0", ready(time=EARLIER), share=SHARE_A), said("gpu-0", ready(time=NOW), share=SHARE_B)),
    ),
    Case(id="a share that the claim does not have", said=(said("gpu-0", ready(), share=None),), want=None),
    Case(id="a device that the claim does not have", said=(said("gpu-9", ready()),), want=None),
    Case(
        id="the driver knows the time itself",
        said=(said("gpu-0", ready(time=EARLIER), share=SHARE_A),),
        want=(said("gpu-0", ready(time=EARLIER), share=SHARE_A),),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_plan_device_status(case: Case) -> None:
    planned = plan_device_status(claim_with(*case.before), case.said, NOW)
    assert planned == case.want
    if planned is not None:
        assert plan_device_status(claim_with(*planned), case.said, NOW) is None


# --- On a server --------------------------------------------------------------------------------------------------


class NetworkDriver(Driver):
    name = "nic.example.com"

    def devices(self) -> Iterable[Device]:
        return [device("eth1", shareable=True)]

    def prepare(self, claim: AllocatedClaim) -> Iterable[PreparedDevice]:
        return [
            found.prepared(
                network=NetworkDeviceData(interface_name="nq0", hardware_address="02:00:00:00:00:01"),
                conditions=[ready()],
                data={"queue": 7},
            )
            for found in claim.devices
        ]


async def status_of(bench: DriverBench, name: str) -> tuple[AllocatedDeviceStatus, ...]:
    """The device status, once it is written."""
    async for event in bench.client.watch(ResourceClaim):
        if event.object.metadata.name == name and event.object.status.devices:
            return event.object.status.devices
    raise AssertionError("the watch ended")


def test_the_claim_status_has_addresses_and_conditions_of_shares(directory: Path) -> None:
    async def run() -> None:
        async with driver_bench(NetworkDriver(), directory) as bench:
            claims = [await bench.claim(name, exactly("nic", bench.class_name)) for name in ("a", "b")]
            await bench.caller.prepare(map(bench.name_of, claims))
            for claim in claims:
                (entry,) = await asyncio.wait_for(status_of(bench, claim.metadata.name), 60)
                assert claim.status.allocation is not None
                assert entry.share_id == claim.status.allocation.devices.results[0].share_id
                assert entry.network_data == NetworkDeviceData(
                    interface_name="nq0", hardware_address="02:00:00:00:00:01"
                )
                assert [(found.type, found.status) for found in entry.conditions or ()] == [("Ready", "True")]
                assert bytes(entry.data) == b'{"queue":7}'

    asyncio.run(run())


def test_a_driver_can_update_the_status_later(directory: Path) -> None:
    async def run() -> None:
        async with driver_bench(NetworkDriver(), directory) as bench:
            name = bench.name_of(await bench.claim("a", exactly("nic", bench.class_name)))
            before = await bench.caller.prepare([name])
            await asyncio.wait_for(status_of(bench, "a"), 60)
            (prepared,) = await bench.plugin.prepared_claims()
            network = NetworkDeviceData(interface_name="nq0", ips=("10.0.0.7/24",))
            news = prepared.devices[0].prepared(network=network, env={"IGNORED": "containers run already"}, state=1)
            await bench.plugin.report(prepared, [news])
            async for event in bench.client.watch(ResourceClaim):
                (entry,) = event.object.status.devices
                if entry.network_data == network:
                    break
            assert await bench.caller.prepare([name]) == before
            (prepared,) = await bench.plugin.prepared_claims()
            assert prepared.prepared[0].state == 1

    asyncio.run(run())


def test_a_driver_ends_after_a_restore_and_the_next_one_writes_what_the_backup_does_not_have(directory: Path) -> None:
    async def run() -> None:
        async with restorable_cluster(only=("quota",)) as (cluster, server):
            await cluster.create(Node(metadata=ObjectMeta(name=NODE)))
            settings = bench_settings(directory)
            async with bench_on(server, NetworkDriver(), settings) as bench:
                claim = await bench.claim("a", exactly("nic", bench.class_name))
                backup = await server.back_up()
                await bench.caller.prepare([bench.name_of(claim)])
                before = await asyncio.wait_for(status_of(bench, "a"), 60)
                await server.restore(backup)
                assert not (await cluster.claim("a")).status.devices
                assert bench.plugin.work is not None
                with pytest.raises(HistoryChanged):
                    await asyncio.wait_for(bench.plugin.work, 60)
            async with bench_on(server, NetworkDriver(), settings) as bench:
                (after,) = await asyncio.wait_for(status_of(bench, "a"), 60)
                assert after.network_data == before[0].network_data

    asyncio.run(run())


def test_a_claim_that_gets_its_devices_back_gets_its_status_back(directory: Path) -> None:
    """A backup has the claim as it was before it was allocated, and a scheduler makes the same choice again."""

    async def run() -> None:
        async with restorable_cluster(only=("quota",)) as (cluster, _):
            await cluster.create(claim("c", request()))
            checkpoint, chosen = Checkpoint(directory), allocation(held("gpu-0"))
            before = await cluster.claim("c")
            record = PreparationRecord(
                claim=replace(before, status=replace(before.status, allocation=chosen)),
                is_prepared=True,
                devices=(PreparedDevice(key=DeviceKey("pool-a", "gpu-0"), requests=(), conditions=(ready(),)),),
            )
            checkpoint.write(record)
            problems: list[Exception] = []
            writer = StatusWriter(cluster.calls(), DRIVER, checkpoint, clock=cluster.clock, on_problem=problems.append)
            cluster.components.start("status", writer.run)
            await cluster.settle(10)
            await cluster.allocate("c", (), chosen)
            await cluster.settle(60)
            assert [entry.device for entry in (await cluster.claim("c")).status.devices] == ["gpu-0"]
            assert problems == []

    run_virtual(run())


def test_a_failed_status_write_does_not_fail_the_preparation(directory: Path) -> None:
    async def run() -> None:
        gates = FeatureGates.parse(
            "DRAResourceClaimDeviceStatus=false,DRADeviceBindingConditions=false,DRAResourceClaimGranularStatusAuthorization=false"
        )
        async with driver_bench(NetworkDriver(), directory, gates=gates) as bench:
            name = bench.name_of(await bench.claim("a", exactly("nic", bench.class_name)))
            assert (await bench.caller.prepare([name]))[name.uid].error == ""

    asyncio.run(run())
