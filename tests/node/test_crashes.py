"""The agent as a process, killed at random points while it prepares and unprepares claims."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import Process
from pathlib import Path
from random import Random
from typing import Any

import pytest

from dralloc.client.async_client import AsyncClient, connect_async
from dralloc.kube.pod_claims import pod_reference
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import ResourceClaim
from dralloc.node.checkpoint import read_checkpoint
from dralloc.node.process_runtime import find_marked
from dralloc.rpc.plugin_services import PluginService
from dralloc.server.http.listener import ListenAddress, listen
from dralloc.server.identity.kubeconfig import write_kubeconfig
from dralloc.testing.builders import CLASS, allocation, claim, device_class, held, request
from tests.support.api_server import TOKEN, api_application
from tests.support.node_cluster import replace_uid, short_directory
from tests.support.node_process import kill, start_node_process
from tests.support.scripted_driver import ScriptedDriver
from tests.support.workloads import existing
from tests.support.workloads import pod as pod_document

pytestmark = pytest.mark.slow

PODS = 6


async def create_pods(client: AsyncClient) -> None:
    """Bound pods with allocated and reserved claims: one for each pod, and one that all share."""
    await client.create(device_class(CLASS))
    await client.create(replace_uid(claim("shared", request("request"))))
    references = []
    for number in range(PODS):
        own = f"own-{number}"
        await client.create(replace_uid(claim(own, request("request"))))
        document = pod_document(f"pod-{number}", {"own": existing(own), "shared": existing("shared")}, node="node-a")
        document["spec"]["containers"][0]["command"] = ["sleep", "1000"]
        document["spec"]["terminationGracePeriodSeconds"] = 1
        reference = pod_reference(await client.create(document))
        references.append(reference)
        status: dict[str, Any] = {"allocation": allocation(held(own)), "reservedFor": [reference]}
        await client.patch(ResourceClaim, own, {"status": status}, subresource="status")
    status = {"allocation": allocation(held("shared")), "reservedFor": references}
    await client.patch(ResourceClaim, "shared", {"status": status}, subresource="status")


class Crashes:
    """Restarts the agent repeatedly, and kills it a random time after a call to the driver."""

    def __init__(self, options: tuple[str, ...], driver: ScriptedDriver, random: Random) -> None:
        self._options = options
        self._driver = driver
        self._random = random
        driver.on_prepare = self._dawdle

    async def _dawdle(self, service: PluginService, request: Any, context: Any) -> Any:
        """Prepare, and let the agent be killed shortly before or after."""
        if self._random.random() < 0.5:
            await asyncio.sleep(self._random.uniform(0, 0.03))
        answer = self._driver.prepared_response(service, request)
        await asyncio.sleep(self._random.uniform(0, 0.03))
        return answer

    async def crash(self, client: AsyncClient) -> None:
        calls = len(self._driver.calls)
        process = await start_node_process(*self._options)
        try:
            async with asyncio.timeout(60):
                # An earlier run may have made all calls already.
                while len(self._driver.calls) == calls and await phases(client) != {"Running"}:
                    await asyncio.sleep(0.01)
            await asyncio.sleep(self._random.uniform(0, 0.1))
        finally:
            await kill(process)

    async def start(self) -> Process:
        return await start_node_process(*self._options)


async def phases(client: AsyncClient) -> set[str]:
    return {pod.status.phase for pod in await client.list(Pod)}


async def all_pods(client: AsyncClient, wanted: set[str]) -> None:
    """Wait until all pods are in the phase; without a phase, until there are none."""
    try:
        async with asyncio.timeout(60):
            # Polled, because a watch has no event after the last deletion.
            while await phases(client) != wanted:
                await asyncio.sleep(0.05)
    except TimeoutError:
        left = [(pod.metadata.name, pod.metadata.deletion_timestamp, pod.status) for pod in await client.list(Pod)]
        raise AssertionError(f"not all are {wanted}: {left}") from None


def containers(directory: Path) -> list[str]:
    """The pods of all running processes, once for each process."""
    return sorted(pod_uid for (pod_uid, _), _ in find_marked(str(directory)))


@pytest.mark.parametrize("seed", range(2))
def test_after_random_kills_every_claim_is_prepared_once_and_unprepared(seed: int) -> None:
    async def scenario(directory: Path) -> None:
        async with (
            api_application() as application,
            listen(application, ListenAddress()) as url,
            connect_async(url, token=TOKEN) as client,
            ScriptedDriver(directory) as driver,
        ):
            (directory / "cdi").mkdir()
            driver.devices = lambda claim: [{"pool_name": "pool-a", "device_name": claim.name}]
            kubeconfig = directory / "kubeconfig"
            write_kubeconfig(kubeconfig, server=url, authority_pem=None, token=TOKEN)
            options = ("--kubeconfig", str(kubeconfig), "--name", "node-a", "--plugin-dir", str(directory))
            crashes = Crashes(options, driver, Random(seed))
            await create_pods(client)
            for _ in range(2):
                await crashes.crash(client)
                held_on_disk = {record.uid for record in read_checkpoint(directory / "dra_manager_state")}
                assert driver.prepared <= held_on_disk, "prepared and forgotten"
            process = await crashes.start()
            try:
                await all_pods(client, {"Running"})
                pods = await client.list(Pod)
                assert containers(directory) == sorted(pod.metadata.uid for pod in pods)
                assert len(driver.prepared) == PODS + 1
                assert not driver.overlaps
                for pod in pods:
                    await client.delete(Pod, pod.metadata.name)
                await driver.until(lambda: len(driver.prepared) < PODS + 1)
                await kill(process)
                process = await crashes.start()
                await all_pods(client, set())
                await driver.until(lambda: not driver.prepared)
                assert containers(directory) == []
            finally:
                await kill(process)
            assert read_checkpoint(directory / "dra_manager_state") == ()

    with short_directory() as directory:
        asyncio.run(scenario(directory))


def test_a_damaged_checkpoint_ends_the_command_with_the_name_of_the_file() -> None:
    async def scenario(directory: Path) -> None:
        async with api_application() as application, listen(application, ListenAddress()) as url:
            kubeconfig = directory / "kubeconfig"
            write_kubeconfig(kubeconfig, server=url, authority_pem=None, token=TOKEN)
            (directory / "dra_manager_state").write_text("{}")
            process = await asyncio.create_subprocess_exec(
                *(
                    sys.executable,
                    "-m",
                    "dralloc",
                    "node",
                    "--kubeconfig",
                    str(kubeconfig),
                    "--plugin-dir",
                    str(directory),
                ),
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
            _, errors = await process.communicate()
            assert process.returncode == 2
            assert f"cannot use the checkpoint {directory}/dra_manager_state" in errors.decode()
            assert "Traceback" not in errors.decode()

    with short_directory() as directory:
        asyncio.run(scenario(directory))
