"""The example drivers as processes in a whole cluster, with the claims of their manifests."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path

import aiohttp
import pytest

from dralloc.client.typed_resource import ObjectKey
from dralloc.kube.batch_v1 import Job
from dralloc.kube.core_v1 import Event
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import ResourceClaim, ResourceSlice
from dralloc.node.agent import CHECKPOINT
from dralloc.node.checkpoint import read_checkpoint
from dralloc.node.pod_view import NODE_PODS
from dralloc.node.process_runtime import find_marked
from dralloc.node.simulated_runtime import PREFIX
from dralloc.scheduler.settings import NAME
from tests.driver.example_cluster import (
    EXAMPLES,
    claim_document,
    cluster_with,
    documents,
    fields,
    health_of,
    results_of,
    rewrite,
    run,
    show_environment,
    written,
)
from tests.support.driver_cluster import DriverCluster, driver_cluster
from tests.support.ports import free_port
from tests.support.workloads import existing, job

pytestmark = pytest.mark.slow


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
