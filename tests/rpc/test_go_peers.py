"""Drivers and nodes that speak through grpc-go, as those of other vendors and kubelets do: our own meet them on real sockets."""

from __future__ import annotations

import asyncio
import json
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from dralloc.driver import DriverFunctions, capacity, device
from dralloc.driver.conformance.claim_maker import exactly
from dralloc.node.checkpoint import read_checkpoint
from dralloc.testing.builders import allocation, held
from dralloc.testing.driver_bench import driver_bench
from dralloc.testing.node_process import kill
from dralloc.testing.node_world import node_world, short_directory

GO = Path(__file__).parents[2] / ".tools" / "go" / "bin"
SHARE = "11111111-1111-4111-8111-111111111111"
DEADLINE_S = 60.0

pytestmark = [
    pytest.mark.slow,
    pytest.mark.real,
    pytest.mark.skipif(not (GO / "plugin").exists(), reason="scripts/install-system-tools has not built it"),
]


@asynccontextmanager
async def go_driver(directory: Path) -> AsyncIterator[Process]:
    """The driver in Go, as a process; it says what happens."""
    process = await asyncio.create_subprocess_exec(
        *(str(GO / "plugin"), "-share", SHARE),
        *("-endpoint", str(directory / "plugins" / "go.sock")),
        *("-registry", str(directory / "plugins_registry" / "go-reg.sock")),
        stdout=PIPE,
    )
    try:
        yield process
    finally:
        await kill(process)


async def next_words(driver: Process) -> list[str]:
    assert driver.stdout is not None
    async with asyncio.timeout(DEADLINE_S):
        return (await driver.stdout.readline()).decode().split()


def test_a_driver_in_go_registers_and_prepares_shares_for_our_node() -> None:
    async def scenario(directory: Path) -> None:
        async with node_world(directory, runs_processes=False) as world, go_driver(directory) as driver:
            assert await next_words(driver) == ["registered", "true"]
            claim = await world.create_claim("claim", allocation(held("gpu-0", share_id=SHARE)))
            names = ["default", "claim", claim.metadata.uid]
            await world.run_pod("pod", "claim")
            assert await next_words(driver) == ["prepare", *names]
            await world.pod_in("Running")
            (record,) = read_checkpoint(world.directory / "dra_manager_state")
            (prepared,) = record.drivers["gpu.example.com"].devices
            assert (prepared.device, prepared.share_id) == ("gpu-0", SHARE)
            await world.delete_pod("pod")
            assert await next_words(driver) == ["unprepare", *names]
            await world.until_gone()

    with short_directory() as directory:
        asyncio.run(scenario(directory))


@pytest.mark.parametrize("dialing", ["a path, which is then the authority of calls", "a unix target"])
def test_a_node_in_go_registers_our_driver_and_has_it_prepare(dialing: str) -> None:
    driver = DriverFunctions("gpu.example.com")
    memory = capacity("80Gi", default="10Gi")
    driver.devices(lambda: [device("gpu-0", capacity={"memory": memory}, shareable=True)])
    driver.prepare(lambda claim: [share.prepared(env={"GPU": share.name}) for share in claim.devices])

    async def scenario(directory: Path) -> None:
        async with driver_bench(driver.driver(), directory) as bench:
            claim = await bench.claim("training", exactly("gpu", bench.class_name))
            assert claim.status.allocation is not None
            (result,) = claim.status.allocation.devices.results
            kubelet = await asyncio.create_subprocess_exec(
                *(str(GO / "kubelet"), f"-by-scheme={'true' if 'unix' in dialing else 'false'}"),
                *("-registry", str(bench.settings.sockets("gpu.example.com").registration)),
                *("-name", claim.metadata.name, "-uid", claim.metadata.uid),
                stdout=PIPE,
            )
            async with asyncio.timeout(DEADLINE_S):
                said, _ = await kubelet.communicate()
            assert kubelet.returncode == 0
            report = json.loads(said)
            assert report["Info"]["name"] == "gpu.example.com"
            assert report["Info"]["supported_versions"][0] == "v1.DRAPlugin"
            (prepared,) = report["First"]["claims"][claim.metadata.uid]["devices"]
            assert (prepared["device_name"], prepared["share_id"]) == ("gpu-0", result.share_id)
            assert report["Again"] == report["First"], "the same question gets the same answer"
            assert report["Unprepared"]["claims"] == {claim.metadata.uid: {}}
            assert bench.cdi_documents() == {}

    with short_directory() as directory:
        asyncio.run(scenario(directory))
