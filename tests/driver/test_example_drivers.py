"""The example drivers as processes in a whole cluster, with the claims of their manifests."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
import yaml

from dralloc.api.batch_v1 import Job
from dralloc.api.core_v1 import Event
from dralloc.api.pod_v1 import Pod
from dralloc.api.resource_v1 import DeviceRequestAllocationResult, ResourceClaim, ResourceSlice
from dralloc.client.typed_resource import ObjectKey
from dralloc.node.agent import CHECKPOINT
from dralloc.node.checkpoint import read_checkpoint
from dralloc.node.pod_view import NODE_PODS
from dralloc.node.process_runtime import find_marked
from dralloc.node.simulated_runtime import PREFIX
from dralloc.scheduler.settings import NAME
from tests.support.driver_cluster import DriverCluster, driver_cluster
from tests.support.ports import free_port
from tests.support.workloads import existing, job

EXAMPLES = Path(__file__).parents[2] / "examples" / "drivers"
pytestmark = pytest.mark.slow


def documents(example: str, file: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((EXAMPLES / example / "manifests" / file).read_text()))


def claim_document(example: str, name: str, rename: str = "") -> dict[str, Any]:
    (found,) = [
        document
        for document in documents(example, "claims.yaml")
        if document["kind"] == "ResourceClaim" and document["metadata"]["name"] == name
    ]
    return {**found, "metadata": {**found["metadata"], "name": rename or name}}


@asynccontextmanager
async def cluster_with(
    directory: Path, example: str, gates: str = "", **environment: str
) -> AsyncIterator[DriverCluster]:
    async with driver_cluster(directory, gates=gates) as cluster:
        for document in documents(example, "classes.yaml"):
            await cluster.client.create(document)
        await cluster.start_driver(EXAMPLES / example / "driver.py", **environment)
        yield cluster


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(scenario)


def show_environment(prefix: str, file: Path) -> tuple[str, ...]:
    """A container that prints its environment and keeps running."""
    return ("sh", "-c", f"env | grep ^{prefix} | sort > {file}.new; mv {file}.new {file}; exec sleep 600")


async def written(file: Path) -> dict[str, str]:
    """The printed environment."""
    async with asyncio.timeout(60):
        while not file.exists():
            await asyncio.sleep(0.02)
    return dict(line.split("=", 1) for line in file.read_text().splitlines())


def rewrite(file: Path, text: str) -> None:
    """Replace a file that a driver reads, atomically."""
    other = file.with_name(f"{file.name}.new")
    other.write_text(text)
    other.replace(file)


async def results_of(cluster: DriverCluster, claim: str) -> tuple[DeviceRequestAllocationResult, ...]:
    allocation = (await cluster.client.get(ResourceClaim, claim)).status.allocation
    assert allocation is not None
    return allocation.devices.results


async def health_of(cluster: DriverCluster, pod: str, wanted: set[str]) -> None:
    """Wait until the pod's status shows this health."""
    seen: set[str] = set()
    async with asyncio.timeout(60):
        while seen != wanted:
            await asyncio.sleep(0.1)
            status = (await cluster.client.calls.get(NODE_PODS, ObjectKey("default", pod))).status
            seen = {
                device.health
                for container in status.container_statuses
                for entry in container.allocated_resources_status
                for device in entry.resources
            }


def fields(value: str) -> dict[str, str]:
    return dict(part.split("=", 1) for part in value.split(","))


# --- gpu-memory ---------------------------------------------------------------------------------------------------


@pytest.fixture
def cards(directory: Path) -> Path:
    return Path(shutil.copy(EXAMPLES / "gpu-memory" / "cards.json", directory / "cards.json"))


def test_pods_share_cards_and_release_them(directory: Path, cards: Path) -> None:
    async def scenario() -> None:
        async with cluster_with(directory, "gpu-memory", GPU_MEMORY_CARDS=str(cards)) as cluster:
            for number in range(5):
                await cluster.client.create(claim_document("gpu-memory", "training", f"t{number}"))
            got = []
            for number in range(4):
                file = directory / f"p{number}"
                await cluster.run_pod(f"p{number}", {"gpu": f"t{number}"}, *show_environment("GPU_SHARE", file))
                ((name, value),) = (await written(file)).items()
                (result,) = await results_of(cluster, f"t{number}")
                assert result.share_id is not None
                assert name == f"GPU_SHARE_{result.share_id[:8].upper()}"
                got.append((result.device, result.request, int(fields(value)["memory"]) >> 30))
            large, small = ("gpu/large", 60), ("gpu/small", 20)
            assert got == [("gpu-0", *large), ("gpu-1", *large), ("gpu-0", *small), ("gpu-1", *small)]
            # All memory is allocated: the next pod waits for a release.
            await cluster.run_pod("p4", {"gpu": "t4"}, "sleep", "600")
            await cluster.delete_pod("p0")
            await cluster.pod_in("p4", "Running")
            (result,) = await results_of(cluster, "t4")
            assert (result.device, result.request) == ("gpu-0", "gpu/large")
            for number in range(1, 5):
                await cluster.delete_pod(f"p{number}")
                await cluster.claim_is_free(f"t{number}")
            assert list(cluster.cdi_dir.glob("*.json")) == []

    run(scenario())


async def being_prepared(cluster: DriverCluster, claim: str) -> None:
    """Wait until the node checkpoint has the claim, which precedes the call to the driver."""
    uid = (await cluster.client.get(ResourceClaim, claim)).metadata.uid
    async with asyncio.timeout(60):
        while uid not in {record.uid for record in read_checkpoint(cluster.directory / CHECKPOINT)}:
            await asyncio.sleep(0.02)


def test_a_driver_killed_during_a_call_keeps_its_claims(directory: Path, cards: Path) -> None:
    async def scenario() -> None:
        async with driver_cluster(directory) as cluster:
            for document in documents("gpu-memory", "classes.yaml"):
                await cluster.client.create(document)
            driver = await cluster.start_driver(EXAMPLES / "gpu-memory" / "driver.py", GPU_MEMORY_CARDS=str(cards))
            names = ("before", "during", "after")
            for name in names:
                await cluster.client.create(claim_document("gpu-memory", "inference", name))

            async def run_pod(name: str) -> None:
                await cluster.run_pod(name, {"gpu": name}, *show_environment("GPU_SHARE", directory / name))

            await run_pod("before")
            await written(directory / "before")
            driver.freeze()
            await run_pod("during")
            await being_prepared(cluster, "during")
            await driver.restart()
            await run_pod("after")
            for name in ("during", "after"):
                (value,) = (await written(directory / name)).values()
                assert fields(value)["priority"] == "high", "the claim's parameters reached the driver"
            for name in names:
                await cluster.delete_pod(name)
                await cluster.claim_is_free(name)
            assert list(cluster.cdi_dir.glob("*.json")) == []

    run(scenario())


def test_a_killed_node_keeps_its_claims(directory: Path, cards: Path) -> None:
    """Kills the node during a preparation, and again while pods run, of which one is deleted meanwhile."""

    async def scenario() -> None:
        async with driver_cluster(directory, node_is_a_process=True) as cluster:
            for document in documents("gpu-memory", "classes.yaml"):
                await cluster.client.create(document)
            driver = await cluster.start_driver(EXAMPLES / "gpu-memory" / "driver.py", GPU_MEMORY_CARDS=str(cards))
            for name in ("first", "second", "third"):
                await cluster.client.create(claim_document("gpu-memory", "inference", name))

            async def run_pod(name: str) -> None:
                await cluster.run_pod(name, {"gpu": name}, *show_environment("GPU_SHARE", directory / name))

            async def processes() -> dict[str, int]:
                names = {found.metadata.uid: found.metadata.name for found in await cluster.client.list(Pod)}
                return {names[uid]: pid for (uid, _), pid in find_marked(str(cluster.directory))}

            await run_pod("first")
            await written(directory / "first")
            driver.freeze()
            await run_pod("second")
            await being_prepared(cluster, "second")
            await cluster.kill_node()
            # The driver completes the call although the node is killed.
            driver.thaw()
            await cluster.start_node()
            ((name, _),) = (await written(directory / "second")).items()
            (share,) = await results_of(cluster, "second")
            assert share.share_id is not None
            assert name == f"GPU_SHARE_{share.share_id[:8].upper()}"
            for pod in ("first", "second"):
                await cluster.pod_in(pod, "Running")
            running = await processes()
            assert running.keys() == {"first", "second"}
            await cluster.kill_node()
            assert await processes() == running, "containers outlive the agent"
            await cluster.client.delete(Pod, "first")
            await run_pod("third")
            await cluster.start_node()
            await cluster.until(Pod, "first", lambda seen: seen is None)
            await cluster.claim_is_free("first")
            await written(directory / "third")
            second = await cluster.client.calls.get(NODE_PODS, ObjectKey("default", "second"))
            assert [status.restart_count for status in second.status.container_statuses] == [0]
            assert (await processes())["second"] == running["second"], "it was taken up and not started again"
            for name in ("second", "third"):
                await cluster.delete_pod(name)
                await cluster.claim_is_free(name)
            assert await processes() == {}
            assert list(cluster.cdi_dir.glob("*.json")) == []
            assert read_checkpoint(cluster.directory / CHECKPOINT) == ()

    run(scenario())


def test_invalid_parameters_are_reported_in_an_event_of_the_pod(directory: Path, cards: Path) -> None:
    async def scenario() -> None:
        async with cluster_with(directory, "gpu-memory", GPU_MEMORY_CARDS=str(cards)) as cluster:
            document = claim_document("gpu-memory", "inference")
            document["spec"]["devices"]["config"][0]["opaque"]["parameters"] = {"priority": "urgent"}
            await cluster.client.create(document)
            await cluster.run_pod("p", {"gpu": "inference"}, "true")
            # Devices may be published before the driver registers; then the first event says that it is not registered.
            async with asyncio.timeout(60):
                async for event in cluster.client.watch(Event):
                    if "invalid parameters of the claim" in event.object.message:
                        break
            assert event.object.reason == "FailedPrepareDynamicResources"
            await cluster.delete_pod("p")

    run(scenario())


def test_a_broken_card_is_tainted(directory: Path, cards: Path) -> None:
    async def scenario() -> None:
        async with cluster_with(directory, "gpu-memory", GPU_MEMORY_CARDS=str(cards)) as cluster:
            broken = json.loads(cards.read_text())
            broken[0]["is_healthy"] = False
            rewrite(cards, json.dumps(broken))
            async with asyncio.timeout(60):
                async for event in cluster.client.watch(ResourceSlice):
                    marks = {
                        found.name: [mark.key for mark in found.taints] for found in event.object.spec.devices or ()
                    }
                    if marks == {"gpu-0": ["gpu.example.com/broken"], "gpu-1": []}:
                        break

    run(scenario())


# --- cpu-cores ----------------------------------------------------------------------------------------------------


def test_claims_get_cores_of_their_own(directory: Path) -> None:
    for number, cores in enumerate(("0-3", "4-7")):
        node = directory / "sys" / "node" / f"node{number}"
        node.mkdir(parents=True)
        (node / "cpulist").write_text(f"{cores}\n")
    online = directory / "sys" / "cpu" / "online"
    online.parent.mkdir()
    online.write_text("0-7\n")

    async def scenario() -> None:
        environment = {"CPU_CORES_SYSFS": str(directory / "sys"), "CPU_CORES_RESERVED": "0,4"}
        async with cluster_with(directory, "cpu-cores", **environment) as cluster:

            async def cores_of(pod: str, claim: str) -> list[str]:
                await cluster.client.create(claim_document("cpu-cores", claim, pod))
                await cluster.run_pod(pod, {"cores": pod}, *show_environment("CPU_CORES", directory / pod))
                return sorted((await written(directory / pod)).values())

            assert await cores_of("first", "two-cores") == ["1,2"]
            assert await cores_of("spread", "spread") == ["3", "5"], "one on each NUMA node"
            assert await cores_of("second", "two-cores") == ["6,7"]
            await cluster.delete_pod("first")
            await cluster.claim_is_free("first")
            assert await cores_of("third", "two-cores") == ["1,2"], "what was given back is given out again"
            rewrite(online, "0-5,7\n")
            await health_of(cluster, "second", {"Unhealthy"})
            await health_of(cluster, "third", {"Healthy"})

    run(scenario())


# --- nic-qos ------------------------------------------------------------------------------------------------------


@contextmanager
def network_namespace() -> Iterator[str]:
    """A network namespace with two interfaces; skips the test without the permission."""
    name = f"nic-qos-{os.getpid()}"
    commands = [f"ip netns add {name}"]
    for number in (1, 2):
        commands += [
            f"ip -n {name} link add eth{number} type veth peer name peer{number}",
            f"ip -n {name} link set eth{number} up",
            f"ip -n {name} link set peer{number} up",
        ]
    commands += [
        f"tc -n {name} qdisc add dev eth1 root handle 1: htb",
        f"ip -n {name} link add link eth1 name probe type macvlan mode bridge",
        f"ip -n {name} link del probe",
    ]
    try:
        for command in commands:
            made = subprocess.run(command.split(), capture_output=True, text=True, check=False)
            if made.returncode != 0:
                pytest.skip(f"not allowed here: {command}: {made.stderr.strip()}")
        yield name
    except FileNotFoundError as error:
        pytest.skip(f"not installed here: {error.filename}")
    finally:
        if shutil.which("ip"):
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def shown(*command: str) -> Any:
    done = subprocess.run(command, capture_output=True, check=True)
    return msgspec.json.decode(done.stdout or b"[]")


def class_rates(namespace: str, interface: str) -> list[int]:
    """The guaranteed rates of the shares on an interface, in bit/s."""
    listed = subprocess.run(
        ["tc", "-n", namespace, "class", "show", "dev", interface], capture_output=True, text=True, check=True
    ).stdout
    units = {"bit": 1, "Kbit": 10**3, "Mbit": 10**6, "Gbit": 10**9}
    found = re.findall(r"class htb 1:([0-9a-f]+) parent \S+ .*?rate (\d+)(\w+) ", listed)
    return [int(amount) * units[unit] for number, amount, unit in found if int(number, 16) >= 0x10]


@pytest.mark.real
def test_stories_1_to_3_with_real_shaping(directory: Path) -> None:
    async def scenario(namespace: str) -> None:
        environment = {
            "NIC_QOS_NETNS": namespace,
            "NIC_QOS_INTERFACES": "eth1,eth2",
            "NIC_QOS_LINE_BITS": "1000000000",
        }
        async with cluster_with(directory, "nic-qos", **environment) as cluster:
            rates: dict[str, int] = {}
            for name in ("any-nic", "two-nics", "guaranteed"):
                await cluster.client.create(claim_document("nic-qos", name))
                await cluster.run_pod(name, {"nic": name}, *show_environment("NIC_QOS", directory / name))
                for value in (await written(directory / name)).values():
                    rates[fields(value)["interface"]] = int(fields(value)["bits"])
                on = [fields(value)["on"] for value in (await written(directory / name)).values()]
                if name == "two-nics":
                    assert sorted(on) == ["eth1", "eth2"], "story 2: they are distinct"
            # Stories 1 and 3: the default without a request, and requests rounded up to the step.
            assert sorted(rates.values()) == [100_000_000, 100_000_000, 100_000_000, 260_000_000]
            links = {link["ifname"] for link in shown("ip", "-json", "-n", namespace, "link", "show")}
            assert rates.keys() <= links
            classes = [rate for interface in ("eth1", "eth2") for rate in class_rates(namespace, interface)]
            assert sorted(classes) == sorted(rates.values())
            seen = await cluster.until(
                ResourceClaim, "guaranteed", lambda claim: claim is not None and bool(claim.status.devices)
            )
            assert seen is not None
            (status,) = seen.status.devices
            assert status.network_data is not None
            assert status.network_data.interface_name in rates
            assert [(found.type, found.status) for found in status.conditions or ()] == [("Guaranteed", "True")]
            await health_of(cluster, "two-nics", {"Healthy"})
            subprocess.run(["ip", "-n", namespace, "link", "set", "peer2", "down"], check=True)
            await health_of(cluster, "two-nics", {"Healthy", "Unhealthy"})
            for name in ("any-nic", "two-nics", "guaranteed"):
                await cluster.delete_pod(name)
                await cluster.claim_is_free(name)
            links = {link["ifname"] for link in shown("ip", "-json", "-n", namespace, "link", "show")}
            assert not rates.keys() & links, "nothing is left behind"

    with network_namespace() as namespace:
        run(scenario(namespace))


def test_a_dry_run_only_accounts_for_bandwidth(directory: Path) -> None:
    async def scenario() -> None:
        environment = {"NIC_QOS_DRY": "1", "NIC_QOS_INTERFACES": "lo", "NIC_QOS_LINE_BITS": "1000000000"}
        async with cluster_with(directory, "nic-qos", **environment) as cluster:
            (published,) = await cluster.published()
            (found,) = published.spec.devices or ()
            assert found.attributes["enforced"].bool is False
            await cluster.client.create(claim_document("nic-qos", "guaranteed"))
            await cluster.run_pod("p", {"nic": "guaranteed"}, *show_environment("NIC_QOS", directory / "p"))
            (value,) = (await written(directory / "p")).values()
            assert fields(value)["bits"] == "260000000"
            await cluster.delete_pod("p")

    run(scenario())


def test_a_driver_sees_the_share_and_the_limit_of_a_claim(directory: Path) -> None:
    async def scenario() -> None:
        environment = {"NIC_QOS_DRY": "1", "NIC_QOS_INTERFACES": "lo", "NIC_QOS_LINE_BITS": "1000000000"}
        async with cluster_with(directory, "nic-qos", "DRACapacityLimits=true", **environment) as cluster:
            document = claim_document("nic-qos", "guaranteed", "bursting")
            (asked,) = document["spec"]["devices"]["requests"]
            asked["exactly"]["capacity"]["limits"] = {"bandwidth": "500M"}
            await cluster.client.create(document)
            await cluster.run_pod("p", {"nic": "bursting"}, *show_environment("NIC_QOS", directory / "p"))
            ((name, value),) = (await written(directory / "p")).items()
            (result,) = await results_of(cluster, "bursting")
            assert result.share_id is not None
            assert name == f"NIC_QOS_{result.share_id[:8].upper()}"
            assert (fields(value)["bits"], fields(value)["ceiling"]) == ("260000000", "500000000")
            assert {key: str(limit) for key, limit in result.capacity_limits.items()} == {"bandwidth": "500M"}
            await cluster.delete_pod("p")

    run(scenario())


# --- Many pods ----------------------------------------------------------------------------------------------------


def test_300_pods_of_a_job_use_one_claim_that_is_prepared_once(directory: Path, cards: Path) -> None:
    """More pods than `reservedFor` can list; the device is released with the last pod."""
    count = 300

    async def scenario() -> None:
        async with driver_cluster(directory, runs_processes=False) as cluster:
            for document in documents("gpu-memory", "classes.yaml"):
                await cluster.client.create(document)
            port = free_port()
            await cluster.start_driver(
                EXAMPLES / "gpu-memory" / "driver.py",
                GPU_MEMORY_CARDS=str(cards),
                DRA_METRICS_ADDRESS=f"127.0.0.1:{port}",
            )
            work = job("train", {"gpu": existing("inference")}, parallelism=count, completions=count)
            work["spec"]["template"]["metadata"] = {"annotations": {f"{PREFIX}run-seconds": "3"}}
            work["spec"]["template"]["spec"]["schedulerName"] = NAME
            created = await cluster.client.create(work)
            claim = claim_document("gpu-memory", "inference")
            claim["spec"]["reservedFor"] = {
                "apiGroup": "batch",
                "resource": "jobs",
                "name": "train",
                "uid": created.metadata.uid,
            }
            await cluster.client.create(claim)
            await cluster.until(
                Job, "train", lambda seen: seen is not None and seen.status.succeeded == count, within_s=200
            )
            await cluster.claim_is_free("inference")
            async with (
                aiohttp.ClientSession() as session,
                session.get(f"http://127.0.0.1:{port}/metrics") as response,
            ):
                counted = await response.text()
            for operation in ("prepare", "unprepare"):
                labels = f'driver="gpu.example.com",operation="{operation}",outcome="success"'
                assert f"dra_driver_claims_total{{{labels}}} 1\n" in counted
            assert list(cluster.cdi_dir.glob("*.json")) == []

    run(scenario())
