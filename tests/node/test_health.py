"""Device health: reports of drivers, their expiry, and the pod status that shows them."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dralloc.kube.codec import decode, encode
from dralloc.node.checkpoint import ClaimRecord, DriverPart, ReportedDevice
from dralloc.node.drivers import DriverInstance, open_channel
from dralloc.node.health import DEVICES_MAX, NOT_KNOWN, HealthReport, HealthTable, HealthWatch, read_reports
from dralloc.node.pod_sync import cdi_ids, devices_status
from dralloc.node.pod_view import NodePod, ResourceHealth, ResourceStatus
from dralloc.rpc.plugin_services import HEALTH_V1, HEALTH_V1ALPHA1, PluginService
from tests.support.node_cluster import QUICK, NodeCluster, node_cluster, short_directory
from tests.support.scripted_driver import ScriptedDriver
from tests.support.workloads import existing
from tests.support.workloads import pod as pod_document

FRESH = HealthReport("Healthy", "fine", 30.0, fresh_until=30.0)
BAD = HealthReport("Unhealthy", "hot", 30.0, fresh_until=30.0)
KEY = ("pool-a", "gpu-0")


def message(service: PluginService, health: int, text: str = "", timeout_s: int = 0) -> Any:
    messages = service.messages
    device = messages.DeviceIdentifier(pool_name="pool-a", device_name="gpu-0")
    entry = messages.DeviceHealth(
        device=device, health=health, message=text, health_check_timeout_seconds=timeout_s, last_updated_time=1
    )
    return messages.NodeWatchResourcesResponse(devices=[entry])


def test_only_visible_values_count_as_a_change() -> None:
    table = HealthTable()
    assert table.put("d", {KEY: FRESH}, 0.0)
    assert not table.put("d", {KEY: HealthReport("Healthy", "fine", 5.0, fresh_until=5.0)}, 1.0)
    assert table.put("d", {KEY: BAD}, 2.0)
    assert table.get("d", *KEY, 3.0) == BAD
    assert table.get("d", "pool-a", "gpu-9", 3.0) == NOT_KNOWN


def test_reports_expire_unless_refreshed() -> None:
    table = HealthTable()
    table.put("d", {KEY: FRESH}, 0.0)
    assert table.next_expiry() == 30.0
    assert table.expire(29.9) == set()
    assert table.expire(30.0) == {"d"}
    assert table.get("d", *KEY, 30.0) == NOT_KNOWN
    assert table.clear("d") is False


def test_the_number_of_devices_is_limited() -> None:
    table = HealthTable()
    flood = {("p", str(number)): FRESH for number in range(DEVICES_MAX + 10)}
    table.put("d", flood, 0.0)
    assert table.get("d", "p", str(DEVICES_MAX - 1), 0.0) == FRESH
    assert table.get("d", "p", str(DEVICES_MAX), 0.0) == NOT_KNOWN


def test_a_message_is_read_with_its_limits() -> None:
    (report,) = read_reports(message(HEALTH_V1, 2, "x" * 2000), now=100.0, default_timeout_s=30.0).values()
    assert (report.health, len(report.message), report.fresh_until) == ("Unhealthy", 1024, 130.0)
    (report,) = read_reports(message(HEALTH_V1ALPHA1, 1, timeout_s=7), now=100.0, default_timeout_s=30.0).values()
    assert (report.health, report.fresh_until) == ("Healthy", 107.0)
    (report,) = read_reports(message(HEALTH_V1, 9), now=100.0, default_timeout_s=30.0).values()
    assert report.health == "Unknown"


def test_a_device_with_an_impossible_name_is_not_kept() -> None:
    report = message(HEALTH_V1, 1)
    report.devices[0].device.device_name = "x" * 1_000_000
    assert read_reports(report, now=100.0, default_timeout_s=30.0) == {}


def test_a_saved_table_keeps_the_remaining_time() -> None:
    table, again = HealthTable(), HealthTable()
    table.put("d", {KEY: FRESH}, 0.0)
    again.decode(table.encode(10.0), 1000.0)
    assert again.get("d", *KEY, 1019.0).health == "Healthy"
    assert again.get("d", *KEY, 1020.0) == NOT_KNOWN


# --- Whose devices they are ---------------------------------------------------------------------------------------


RECORD = ClaimRecord(
    namespace="default",
    name="claim",
    uid="u",
    drivers={
        "d": DriverPart(
            devices=(
                ReportedDevice(pool="p", device="a", requests=("gpu",), cdi_ids=("x=a", "x=common")),
                ReportedDevice(pool="p", device="b", requests=("nic",), cdi_ids=("x=b", "x=common")),
                ReportedDevice(pool="p", device="any"),
            )
        )
    },
)


def pod_using(*uses: dict[str, str], **status: Any) -> NodePod:
    document = pod_document("p", {"mine": existing("claim")})
    document["spec"]["containers"][0]["resources"] = {"claims": list(uses)}
    return decode(encode({**document, "status": status}), NodePod)


def test_a_container_gets_the_devices_of_its_requests() -> None:
    held = {"claim": RECORD}
    whole = pod_using({"name": "mine"})
    assert cdi_ids(whole, whole.spec.containers[0], held) == ("x=a", "x=common", "x=b")
    part = pod_using({"name": "mine", "request": "nic"})
    assert cdi_ids(part, part.spec.containers[0], held) == ("x=b", "x=common")
    assert cdi_ids(part, part.spec.containers[0], {}) == ()
    nothing = pod_using()
    assert cdi_ids(nothing, nothing.spec.containers[0], held) == ()


def test_extended_resources_are_found_through_the_mapping_of_the_pod() -> None:
    mapping = [{"containerName": "main", "resourceName": "example.com/gpu", "requestName": "gpu"}]
    made = pod_using(extendedResourceClaimStatus={"resourceClaimName": "claim", "requestMappings": mapping})
    assert cdi_ids(made, made.spec.containers[0], {"claim": RECORD}) == ("x=a", "x=common")


def test_health_is_shown_by_claim_and_request_under_the_name_of_the_device() -> None:
    made = pod_using({"name": "mine", "request": "nic"})
    status = devices_status(made, made.spec.containers[0], {"claim": RECORD}, lambda *_: BAD)
    assert status == (
        ResourceStatus(
            name="claim:mine/nic",
            resources=(
                ResourceHealth(resource_id="x=b", health="Unhealthy", message="hot"),
                ResourceHealth(resource_id="d/p/any", health="Unhealthy", message="hot"),
            ),
        ),
    )


# --- Over a stream ------------------------------------------------------------------------------------------------


async def sees(world: NodeCluster, health: str, text: str | None = None) -> None:
    def shows(pod: NodePod) -> bool:
        entries = [
            (resource.health, resource.message)
            for status in pod.status.container_statuses
            for entry in status.allocated_resources_status
            for resource in entry.resources
        ]
        return entries == [(health, text)]

    await world.pod_where("pod", shows)


@pytest.mark.slow
@pytest.mark.parametrize("service", [HEALTH_V1, HEALTH_V1ALPHA1], ids=lambda service: service.name)
def test_health_reaches_the_status_of_the_pod_and_is_lost_with_the_driver(service: PluginService) -> None:
    async def scenario(directory: Path) -> None:
        async with (
            node_cluster(directory, runs_processes=False) as world,
            ScriptedDriver(directory, health=(service,)) as driver,
        ):
            await world.create_claim("claim")
            await world.run_pod("pod", "claim")
            await sees(world, "Unknown")
            await driver.reports.put(message(service, 1))
            await sees(world, "Healthy")
            await driver.reports.put(message(service, 2, "too hot"))
            await sees(world, "Unhealthy", "too hot")
            await driver.reports.put(message(service, 2, "far too hot"))
            await sees(world, "Unhealthy", "far too hot")
            await driver.stop()
            await sees(world, "Unknown")
            await driver.start()
            await driver.reports.put(message(service, 1))
            await sees(world, "Healthy")
            assert (await world.pod_in("Running")).status.container_statuses[0].restart_count == 0

    with short_directory() as directory:
        asyncio.run(scenario(directory))


@pytest.mark.slow
def test_health_becomes_unknown_unless_refreshed() -> None:
    async def scenario(directory: Path) -> None:
        async with (
            node_cluster(directory, runs_processes=False) as world,
            ScriptedDriver(directory, health=(HEALTH_V1,)) as driver,
        ):

            async def refresh() -> None:
                while True:
                    await driver.reports.put(message(HEALTH_V1, 1, timeout_s=1))
                    await asyncio.sleep(0.2)

            await world.create_claim("claim")
            await world.run_pod("pod", "claim")
            refreshing = asyncio.create_task(refresh())
            await sees(world, "Healthy")
            refreshing.cancel()
            await sees(world, "Unknown")

    with short_directory() as directory:
        asyncio.run(scenario(directory))


@pytest.mark.slow
def test_health_comes_from_the_next_instance_when_the_former_one_goes_on_to_report() -> None:
    """As a driver that is slow to end: its stream ends with its connection, and not by itself."""

    async def scenario(directory: Path) -> None:
        async with (
            node_cluster(directory, timings=replace(QUICK, call_s=0.2), runs_processes=False) as world,
            ScriptedDriver(directory, health=(HEALTH_V1,)) as former,
        ):
            await world.create_claim("claim")
            await world.run_pod("pod", "claim")
            await former.reports.put(message(HEALTH_V1, 1))
            await sees(world, "Healthy")
            async with ScriptedDriver(directory, instance="next", health=(HEALTH_V1,)) as following:
                await following.until(lambda: (True, "") in following.registrations)
                former.registration_socket.unlink()
                await following.reports.put(message(HEALTH_V1, 2, "too hot"))
                await sees(world, "Unhealthy", "too hot")

    with short_directory() as directory:
        asyncio.run(scenario(directory))


@pytest.mark.slow
def test_a_driver_that_reports_without_a_pause_causes_few_writes() -> None:
    """The table of a driver with many devices and long messages has 98 MB."""
    reports = 40

    async def scenario(directory: Path) -> set[int]:
        path = directory / "health"
        written: list[int] = []
        seen = asyncio.Event()

        def changed(_: str) -> None:
            written.append(path.stat().st_mtime_ns if path.exists() else 0)
            if len(written) == reports:
                seen.set()

        async with ScriptedDriver(directory, health=(HEALTH_V1,)) as driver:
            channel = open_channel(str(driver.socket))
            instance = DriverInstance(driver.name, str(driver.socket), (), HEALTH_V1, channel)
            watch = HealthWatch(QUICK, lambda _: instance, changed, path)
            for number in range(reports):
                await driver.reports.put(message(HEALTH_V1, 1 + number % 2))
            running = asyncio.create_task(watch.run())
            watch.follow(driver.name)
            await seen.wait()
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await channel.close()
        return set(written)

    with short_directory() as directory:
        assert len(asyncio.run(scenario(directory))) < reports / 4
