"""Our node with a driver in Go, and our driver with a kubelet in Go, over real sockets (grpc-go)."""

from __future__ import annotations

import asyncio
import json
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dralloc.cli.main import app
from dralloc.driver import DeviceHealth, DriverFunctions, Health, capacity, device
from dralloc.driver_kit.claim_maker import exactly
from dralloc.node.checkpoint import read_checkpoint
from dralloc.node.pod_view import NodePod
from dralloc.testing.builders import allocation, held
from dralloc.testing.driver_bench import driver_bench
from tests.support.node_cluster import node_cluster, short_directory
from tests.support.node_process import kill

GO = Path(__file__).parents[2] / ".tools" / "go" / "bin"
SHARE = "11111111-1111-4111-8111-111111111111"
DEADLINE_S = 60.0

pytestmark = [
    pytest.mark.slow,
    pytest.mark.real,
    pytest.mark.skipif(not (GO / "plugin").exists(), reason="scripts/install-system-tools has not built it"),
]


@asynccontextmanager
async def go_driver(directory: Path, *options: str) -> AsyncIterator[Process]:
    """The driver in Go as a process; it prints its events."""
    process = await asyncio.create_subprocess_exec(
        *(str(GO / "plugin"), *options),
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


def test_a_driver_in_go_without_our_sdk_passes_the_driver_kit() -> None:
    """All checks, with restarts and faults; so none of them depends on how our SDK works."""
    words = [
        word for name in ("node", "kubeconfig", "registry", "plugins", "cdi") for word in (f"-{name}", f"{{{name}}}")
    ]
    options = ["-o", "json", "--wait-cleanup", "30"]
    result = CliRunner().invoke(app, ["driver-test", *options, "--", str(GO / "driver"), *words])
    assert result.exit_code == 0, result.output
    checks = {check["id"]: check["outcome"] for check in json.loads(result.stdout)["checks"]}
    assert checks.pop("faults.device-lost") == "not tested"
    assert {name for name, outcome in checks.items() if outcome != "passed"} == {
        "partitions.counters",
        "partitions.neighbours",
    }


def test_the_driver_kit_finds_the_fault_of_a_driver_in_go() -> None:
    """It registers and releases as it should, and prepares claims that do not exist."""
    only = [word for name in ("registration", "prepare.unknown", "unprepare.unknown") for word in ("--only", name)]
    sockets = ["-endpoint", "{plugins}/go.sock", "-registry", "{registry}/go-reg.sock"]
    result = CliRunner().invoke(app, ["driver-test", "-o", "json", *only, "--", str(GO / "plugin"), *sockets])
    assert result.exit_code == 1, result.output
    outcomes = {check["id"]: check["outcome"] for check in json.loads(result.stdout)["checks"]}
    assert outcomes.pop("prepare.unknown") == "failed"
    assert set(outcomes.values()) <= {"passed", "passed with remarks"}


def test_a_driver_in_go_registers_and_prepares_shares_for_our_node() -> None:
    async def scenario(directory: Path) -> None:
        async with (
            node_cluster(directory, runs_processes=False) as world,
            go_driver(directory, "-share", SHARE) as driver,
        ):
            assert await next_words(driver) == ["registered", "true"]
            claim = await world.create_claim("claim", allocation(held("gpu-0", share_id=SHARE)))
            names = ["default", "claim", claim.metadata.uid]
            await world.run_pod("pod", "claim")
            assert await next_words(driver) == ["prepare", *names]
            await world.pod_where("pod", lambda pod: ("Unhealthy", "said in Go") in set(health_of(pod)))
            (record,) = read_checkpoint(world.directory / "dra_manager_state")
            (prepared,) = record.drivers["gpu.example.com"].devices
            assert (prepared.device, prepared.share_id) == ("gpu-0", SHARE)
            await world.start_deletion("pod")
            assert await next_words(driver) == ["unprepare", *names]
            await world.until_gone()

    with short_directory() as directory:
        asyncio.run(scenario(directory))


def health_of(pod: NodePod) -> Iterator[tuple[str, str | None]]:
    """The device health in the pod status."""
    for container in pod.status.container_statuses:
        for entry in container.allocated_resources_status:
            for found in entry.resources:
                yield found.health, found.message


def test_a_v1beta1_driver_in_go_prepares_whole_devices_and_is_refused_shares() -> None:
    async def scenario(directory: Path) -> None:
        async with node_cluster(directory, runs_processes=False) as world, go_driver(directory, "-beta") as driver:
            assert await next_words(driver) == ["registered", "true"]
            await world.create_claim("share", allocation(held("gpu-1", share_id=SHARE)))
            await world.run_pod("shares", "share")
            event = await world.event_where(lambda event: event.involved_object.name == "shares")
            assert "v1beta1" in event.message
            claim = await world.create_claim("whole", allocation(held("gpu-0")))
            await world.run_pod("pod", "whole")
            assert await next_words(driver) == ["prepare-beta", "default", "whole", claim.metadata.uid]
            await world.pod_in("Running")
            await world.start_deletion("pod")
            assert await next_words(driver) == ["unprepare-beta", "default", "whole", claim.metadata.uid]
            await world.until_gone()

    with short_directory() as directory:
        asyncio.run(scenario(directory))


@pytest.mark.parametrize("dialing", ["a path, which is then the authority of calls", "a unix target"])
def test_a_kubelet_in_go_registers_our_driver_and_calls_it(dialing: str) -> None:
    driver = DriverFunctions("gpu.example.com")
    memory = capacity("80Gi", default="10Gi")
    driver.devices(lambda: [device("gpu-0", capacity={"memory": memory}, shareable=True)])
    driver.prepare(lambda claim: [share.prepared(env={"GPU": share.name}) for share in claim.devices])
    driver.health(lambda: [DeviceHealth(device="gpu-0", health=Health.UNHEALTHY, message="87 °C")])

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
            (unwell,) = report["Health"]["devices"]
            assert (unwell["device"]["device_name"], unwell["health"], unwell["message"]) == ("gpu-0", 2, "87 °C")
            (prepared,) = report["First"]["claims"][claim.metadata.uid]["devices"]
            assert (prepared["device_name"], prepared["share_id"]) == ("gpu-0", result.share_id)
            assert report["Again"] == report["First"], "the same question gets the same answer"
            assert report["Unprepared"]["claims"] == {claim.metadata.uid: {}}
            assert bench.cdi_documents() == {}

    with short_directory() as directory:
        asyncio.run(scenario(directory))
