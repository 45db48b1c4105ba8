"""A node and drivers in a whole cluster: scheduling over HTTP, drivers over their sockets, containers as processes."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dralloc.client.known_resources import resource_for
from dralloc.client.typed_resource import ObjectKey
from dralloc.kube.core_v1 import Event
from dralloc.kube.device_parts import capacity
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import (
    DeviceClaimConfiguration,
    DeviceClassConfiguration,
    OpaqueDeviceConfiguration,
    ResourceClaim,
    ResourceSlice,
)
from dralloc.node.pod_view import NODE_PODS, NodePod
from dralloc.rpc.plugin_services import (
    DRA_SERVICES,
    DRA_V1,
    DRA_V1BETA1,
    HEALTH_V1,
    NODE_PREPARE_RESOURCES,
    PluginService,
)
from dralloc.testing.builders import claim, device, device_class, request, resource_slice
from tests.support.driver_cluster import NODE, DriverCluster, driver_cluster
from tests.support.scripted_driver import ScriptedDriver
from tests.support.workloads import existing, pod

pytestmark = pytest.mark.slow

GPU, NIC = "gpu.example.com", "nic.example.com"
DRIVER = f"""
from dralloc.driver import DriverFunctions, device

driver = DriverFunctions("{GPU}")


@driver.devices
def devices():
    return [device("gpu-0"), device("gpu-1")]


@driver.prepare
def prepare(claim):
    return [share.prepared(env=environment(share)) for share in claim.devices]


def environment(share):
    parameters = {{}}
    for config in share.configs:
        parameters |= config.read(dict)
    # A shell passes on only what could be a variable of its own.
    return {{f"DRA_{{share.request.replace('-', '_')}}": share.name, **parameters}}


driver.run()
"""


def play(scenario: Callable[[DriverCluster], Awaitable[None]], *, runs_processes: bool = False) -> None:
    async def run(directory: Path) -> None:
        async with driver_cluster(directory, runs_processes=runs_processes) as cluster:
            await scenario(cluster)

    # Short, because the path of a socket is limited in length.
    with tempfile.TemporaryDirectory(prefix="d-") as path:
        asyncio.run(run(Path(path)))


async def registered(driver: ScriptedDriver) -> None:
    await driver.until(lambda: (True, "") in driver.registrations)


async def publish(cluster: DriverCluster, *drivers: str, count: int = 4) -> None:
    """Creates a class for each driver, and devices on the node."""
    for name in drivers:
        short = name.partition(".")[0]
        devices = [device(f"{short}-{number}") for number in range(count)]
        await cluster.client.create(resource_slice(short, *devices, driver=name, pool="pool-a", node_name=NODE))
        await cluster.client.create(device_class(short, where=f'device.driver == "{name}"'))


async def create_claims(cluster: DriverCluster, device_class: str, *names: str) -> None:
    for name in names:
        await cluster.client.create(claim(name, request(device_class=device_class)))


async def told(cluster: DriverCluster, text: str) -> Event:
    async with asyncio.timeout(60):
        async for seen in cluster.client.watch(Event):
            if text in seen.object.message:
                return seen.object
    raise AssertionError("the watch ended")


async def written(file: Path) -> str:
    async with asyncio.timeout(60):
        while not file.exists():
            await asyncio.sleep(0.02)
    return file.read_text()


def show(file: Path, *, stay: bool = False) -> list[str]:
    """A command that writes the environment and files of the container's devices to a file."""
    end = "exec sleep 600" if stay else "true"
    return [
        "sh",
        "-c",
        f"env | grep -E '^(DRA|PARAM)_' | sort | tr '\\n' ' ' > {file}.new; mv {file}.new {file}; {end}",
    ]


# --- Preparation ----------------------------------------------------------------------------------------------------


def test_P3_a_pod_waits_while_its_driver_fails_to_prepare_and_runs_afterwards() -> None:
    async def fails(service: PluginService, request: Any, context: Any) -> Any:
        answer = service.messages.NodePrepareResourceResponse(error="not today")
        return service.messages.NodePrepareResourcesResponse(claims={claim.uid: answer for claim in request.claims})

    async def scenario(cluster: DriverCluster) -> None:
        async with ScriptedDriver(cluster.directory, on_prepare=fails) as driver:
            await registered(driver)
            await publish(cluster, GPU)
            await create_claims(cluster, "gpu", "c")
            await cluster.run_pod("p", {"gpu": "c"})
            await told(cluster, "not today")
            assert (await cluster.client.get(Pod, "p")).status.phase == "Pending"
            driver.on_prepare = None
            await cluster.pod_in("p", "Running")
            assert len(driver.calls_of(NODE_PREPARE_RESOURCES)) >= 2

    play(scenario)


def test_P8_a_force_deleted_pod_is_unprepared_before_its_successor_starts() -> None:
    async def fails(service: PluginService, request: Any, context: Any) -> Any:
        raise RuntimeError("busy")

    async def scenario(cluster: DriverCluster) -> None:
        async with ScriptedDriver(cluster.directory, on_unprepare=fails) as driver:
            await publish(cluster, GPU)
            await create_claims(cluster, "gpu", "c")
            await cluster.run_pod("p", {"gpu": "c"})
            await cluster.pod_in("p", "Running")
            (first,) = driver.prepared
            await cluster.client.calls.delete(resource_for(Pod), ObjectKey("default", "p"), grace_period_s=0)
            await cluster.until(Pod, "p", lambda seen: seen is None)
            await cluster.client.delete(ResourceClaim, "c")
            await cluster.until(ResourceClaim, "c", lambda seen: seen is None)
            await create_claims(cluster, "gpu", "c")
            await cluster.run_pod("p", {"gpu": "c"})
            await told(cluster, "old ResourceClaim with same name c")
            driver.on_unprepare = None
            await cluster.pod_in("p", "Running")
            assert len(driver.prepared - {first}) == 1
            await driver.until(lambda: first not in driver.prepared)

    play(scenario)


def test_P6_a_claim_that_no_container_uses_is_prepared_and_none_is_prepared_twice() -> None:
    """Also P27: the second pod uses the claim of the first and one of its own."""

    async def scenario(cluster: DriverCluster) -> None:
        async with ScriptedDriver(cluster.directory) as driver:
            await publish(cluster, GPU)
            await create_claims(cluster, "gpu", "old", "new")
            unused = pod("unused", {"gpu": existing("old")}, scheduler="dralloc")
            del unused["spec"]["containers"][0]["resources"]
            await cluster.client.create(unused)
            await cluster.pod_in("unused", "Running")
            old = (await cluster.client.get(ResourceClaim, "old")).metadata.uid
            assert driver.prepared == {old}
            await cluster.run_pod("both", {"gpu": "old", "other": "new"})
            await cluster.pod_in("both", "Running")
            new = (await cluster.client.get(ResourceClaim, "new")).metadata.uid
            assert [call.claims for call in driver.calls_of(NODE_PREPARE_RESOURCES)] == [(old,), (new,)]

    play(scenario)


def test_P30_two_drivers_prepare_four_claims_of_one_pod_in_any_version() -> None:
    async def runs(cluster: DriverCluster, version: str, services: Sequence[PluginService]) -> None:
        async with (
            ScriptedDriver(cluster.directory, name=GPU, services=services) as gpu,
            ScriptedDriver(cluster.directory, name=NIC, services=services) as nic,
        ):
            claims = {"gpu": (f"{version}-a", f"{version}-b"), "nic": (f"{version}-c", f"{version}-d")}
            for name, wanted in claims.items():
                await create_claims(cluster, name, *wanted)
            await cluster.run_pod(version, {name[-1]: name for wanted in claims.values() for name in wanted})
            await cluster.pod_in(version, "Running")
            for driver, wanted in zip((gpu, nic), claims.values(), strict=True):
                stored = [await cluster.client.get(ResourceClaim, name) for name in wanted]
                assert driver.prepared == {item.metadata.uid for item in stored}
                assert {call.service for call in driver.calls} <= {service.advertised for service in services}
            await cluster.delete_pod(version)

    async def scenario(cluster: DriverCluster) -> None:
        await publish(cluster, GPU, NIC)
        for version, services in (("v1beta1", (DRA_V1BETA1,)), ("v1", (DRA_V1,)), ("both", DRA_SERVICES)):
            await runs(cluster, version, services)

    play(scenario)


def test_C2_the_node_passes_every_share_of_a_device_to_its_driver() -> None:
    async def scenario(cluster: DriverCluster) -> None:
        memory = capacity("8Gi", default="1Gi", minimum="1Gi")
        shared = device("gpu-0", shareable=True, capacity={"memory": memory})
        await cluster.client.create(resource_slice("gpu", shared, driver=GPU, pool="pool-a", node_name=NODE))
        await cluster.client.create(device_class("gpu"))
        wanted = request("r", device_class="gpu", capacity={"memory": "2Gi"})
        for name, requests in (("one", (wanted,)), ("two", (wanted, msgspec.structs.replace(wanted, name="again")))):
            await cluster.client.create(claim(name, *requests))

        def shares(prepared: Any) -> list[dict[str, Any]]:
            results = allocated[prepared.name].devices.results
            return [
                {
                    "pool_name": "pool-a",
                    "device_name": "gpu-0",
                    "request_names": [result.request],
                    "share_id": result.share_id,
                    "cdi_device_ids": [f"example.com/gpu={prepared.name}"],
                }
                for result in results
            ]

        allocated: dict[str, Any] = {}

        async def prepare(service: PluginService, request: Any, context: Any) -> Any:
            for each in request.claims:
                allocated[each.name] = (await cluster.client.get(ResourceClaim, each.name)).status.allocation
            return driver.prepared_response(service, request)

        async with ScriptedDriver(cluster.directory, services=(DRA_V1,), devices=shares, on_prepare=prepare) as driver:
            for name in ("one", "two"):
                await cluster.run_pod(name, {"gpu": name})
                await cluster.pod_in(name, "Running")
            ids = [result.share_id for one in allocated.values() for result in one.devices.results]
            assert len(set(ids)) == len(ids) == 3
            for name in ("one", "two"):
                await cluster.delete_pod(name)
            await driver.until(lambda: not driver.prepared)

    play(scenario)


def test_S4_device_health_is_in_the_pod_status_and_unknown_without_the_driver() -> None:
    def report(health: int, text: str) -> Any:
        messages = HEALTH_V1.messages
        which = messages.DeviceIdentifier(pool_name="pool-a", device_name="gpu-0")
        entry = messages.DeviceHealth(device=which, health=health, message=text, last_updated_time=1)
        return messages.NodeWatchResourcesResponse(devices=[entry])

    def health_of(seen: NodePod) -> list[tuple[str, str]]:
        return [
            (found.health, found.message or "")
            for status in seen.status.container_statuses
            for entry in status.allocated_resources_status
            for found in entry.resources
        ]

    async def scenario(cluster: DriverCluster) -> None:
        calls = cluster.client.calls

        async def shown(health: str, text: str = "") -> None:
            async with asyncio.timeout(60):
                pods, revision = await calls.list_all(NODE_PODS)
                if [health_of(seen) for seen in pods] == [[(health, text)]]:
                    return
                async for event in calls.watch(NODE_PODS, resource_version=revision, timeout_s=120):
                    if event.type != "BOOKMARK" and health_of(event.object) == [(health, text)]:
                        return

        async with ScriptedDriver(cluster.directory, health=(HEALTH_V1,)) as driver:
            await publish(cluster, GPU, count=1)
            await create_claims(cluster, "gpu", "c")
            await cluster.run_pod("p", {"gpu": "c"})
            await cluster.pod_in("p", "Running")
            for health, name, text in ((1, "Healthy", ""), (2, "Unhealthy", "hot"), (2, "Unhealthy", "too hot")):
                await driver.reports.put(report(health, text))
                await shown(name, text)
            await driver.stop()
            await shown("Unknown")
            await driver.start()
            await driver.reports.put(report(1, ""))
            await shown("Healthy")

    play(scenario)


# --- Driver and containers as processes -------------------------------------------------------------------------------


def parameters(driver: str, **values: str) -> OpaqueDeviceConfiguration:
    return OpaqueDeviceConfiguration(driver=driver, parameters=msgspec.Raw(msgspec.json.encode(values)))


async def start_driver(cluster: DriverCluster, pod_uid: str = "") -> Any:
    program = cluster.directory / "driver.py"
    program.write_text(DRIVER)
    return await cluster.start_driver(program, POD_UID=pod_uid)


async def start_gpu_class(cluster: DriverCluster) -> None:
    for_class = DeviceClassConfiguration(opaque=parameters(GPU, PARAM_CLASS="x", PARAM_BOTH="class"))
    await cluster.client.create(device_class("gpu", config=[for_class]))


def test_P7_devices_and_parameters_reach_their_containers() -> None:
    """Also P10 (init containers) and P18 (parameters of class and claim)."""

    async def scenario(cluster: DriverCluster) -> None:
        await start_gpu_class(cluster)
        await start_driver(cluster)
        for_claim = DeviceClaimConfiguration(requests=("b",), opaque=parameters(GPU, PARAM_B="y", PARAM_BOTH="claim"))
        requests = [request(name, device_class="gpu") for name in ("a", "b")]
        await cluster.client.create(claim("c", *requests, config=[for_claim]))
        document = pod("p", {"gpu": existing("c")}, scheduler="dralloc")
        uses: dict[str, list[dict[str, str]]] = {
            "init": [{"name": "gpu"}],
            "both": [{"name": "gpu"}],
            "only-a": [{"name": "gpu", "request": "a"}],
            "only-b": [{"name": "gpu", "request": "b"}],
            "none": [],
        }
        init, *containers = [
            {"name": name, "image": "i", "command": show(cluster.directory / name), "resources": {"claims": claims}}
            for name, claims in uses.items()
        ]
        document["spec"] |= {"initContainers": [init], "containers": containers}
        await cluster.client.create(document)
        await cluster.pod_in("p", "Succeeded")
        of_a, of_b = "DRA_a=gpu-0", "DRA_b=gpu-1"
        assert {name: await written(cluster.directory / name) for name in uses} == {
            "init": f"{of_a} {of_b} PARAM_B=y PARAM_BOTH=claim PARAM_CLASS=x ",
            "both": f"{of_a} {of_b} PARAM_B=y PARAM_BOTH=claim PARAM_CLASS=x ",
            "only-a": f"{of_a} PARAM_BOTH=class PARAM_CLASS=x ",
            "only-b": f"{of_b} PARAM_B=y PARAM_BOTH=claim PARAM_CLASS=x ",
            "none": "",
        }

    play(scenario, runs_processes=True)


def test_KEP_5004_devices_of_extended_resources_reach_the_containers_that_ask_for_them() -> None:
    """An init container uses the device of a container that starts later; one that asks for nothing gets none."""

    async def scenario(cluster: DriverCluster) -> None:
        await cluster.client.create(device_class("gpu", where=f'device.driver == "{GPU}"', extended="example.com/gpu"))
        await start_driver(cluster)
        one = {"example.com/gpu": "1"}
        init, *containers = [
            {
                "name": name,
                "image": "i",
                "command": show(cluster.directory / name),
                "resources": {"requests": asked, "limits": asked},
            }
            for name, asked in {"init": one, "first": one, "second": one, "none": {}}.items()
        ]
        document = pod("p", scheduler="dralloc")
        document["spec"] |= {"initContainers": [init], "containers": containers}
        await cluster.client.create(document)
        await cluster.pod_in("p", "Succeeded")
        first, second = "DRA_container_1_request_0=gpu-0 ", "DRA_container_2_request_0=gpu-1 "
        assert {name: await written(cluster.directory / name) for name in ("init", "first", "second", "none")} == {
            "init": first,
            "first": first,
            "second": second,
            "none": "",
        }

    play(scenario, runs_processes=True)


def test_P16_a_driver_is_updated_and_its_slices_stay() -> None:
    """Also P9 (a node's slice), P14 (deleted slices are published again) and P17 (rolling update)."""

    async def scenario(cluster: DriverCluster) -> None:
        async def only_slice() -> ResourceSlice:
            (found,) = await cluster.published()
            return found

        async def runs(name: str) -> None:
            await create_claims(cluster, "gpu", name)
            await cluster.run_pod(name, {"gpu": name})
            await cluster.pod_in(name, "Running")
            await cluster.delete_pod(name)

        await start_gpu_class(cluster)
        old = await start_driver(cluster, "1")
        first = await only_slice()
        (owner,) = first.metadata.owner_references
        assert (owner.kind, owner.name) == ("Node", NODE)
        assert (first.spec.node_name, first.spec.pool.name, first.spec.pool.resource_slice_count) == (NODE, NODE, 1)
        new = await start_driver(cluster, "2")
        await runs("together")
        await old.stop()
        await runs("with-the-new-one")
        assert await only_slice() == first
        await new.stop()
        await start_driver(cluster, "3")
        await runs("with-the-next-one")
        assert await only_slice() == first

        await cluster.client.delete(ResourceSlice, first.metadata.name)
        async with asyncio.timeout(60):
            while not (again := await cluster.client.list(ResourceSlice)):
                await asyncio.sleep(0.05)
        assert [item.spec.devices for item in again] == [first.spec.devices]

    play(scenario)
