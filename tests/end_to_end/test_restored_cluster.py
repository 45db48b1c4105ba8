"""A backup is restored under a cluster that runs: `dralloc up`, and a node and a driver that users run beside it. Real processes and sockets."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Protocol

import pytest

from dralloc.client.async_client import AsyncClient, connect_async
from dralloc.client.transport import TransportError
from dralloc.kube.core_v1 import Node
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import ResourceClaim, ResourceSlice
from dralloc.primitives.errors import ApiError
from tests.campaign.processes import KilledProcess, dralloc
from tests.support.etcd_server import EtcdServer
from tests.support.node_cluster import short_directory
from tests.support.ports import free_port

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

NODE = "machine"
WITHIN_S = 120
SAID = "the API server was restored from a backup"
# What is prepared, as the driver knows it, is a file for each claim.
DRIVER = """
import os
from pathlib import Path
from dralloc.driver import DriverFunctions, device

prepared = Path(os.environ["PREPARED"])
driver = DriverFunctions("cards.example.com")

@driver.devices
def devices():
    return [device("card-0"), device("card-1")]

@driver.prepare
def prepare(claim):
    (prepared / claim.uid).touch()
    return [found.prepared() for found in claim.devices]

@driver.unprepare
def unprepare(claim):
    (prepared / claim.uid).unlink(missing_ok=True)

driver.run()
"""
CLASS = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceClass",
    "metadata": {"name": "card"},
    "spec": {"selectors": [{"cel": {"expression": 'device.driver == "cards.example.com"'}}]},
}
TEMPLATE = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaimTemplate",
    "metadata": {"name": "card"},
    "spec": {"spec": {"devices": {"requests": [{"name": "card", "exactly": {"deviceClassName": "card"}}]}}},
}


class Place(Protocol):
    """Where the cluster is, and where its store is backed up and restored."""

    up: KilledProcess

    async def back_up(self) -> None: ...

    async def restore(self) -> None: ...


class OnSqlite:
    """Its server has the store for itself: it is stopped for the restore."""

    def __init__(self, directory: Path) -> None:
        self._data, self._file = directory / "data", directory / "backup"
        self.up = up(directory)

    async def back_up(self) -> None:
        await run("backup", "--data-dir", str(self._data), str(self._file))

    async def restore(self) -> None:
        await self.up.stop()
        await run("restore", str(self._file), "--data-dir", str(self._data), "--overwrite")
        await self.up.start()
        await self.up.until_ready()


class OnEtcd:
    """`up` runs all the time."""

    def __init__(self, directory: Path, etcd: EtcdServer) -> None:
        self._etcd, self._snapshot = etcd, directory / "snapshot"
        self.up = up(directory, "--store", etcd.url())

    async def back_up(self) -> None:
        await asyncio.to_thread(self._etcd.backup, self._snapshot)

    async def restore(self) -> None:
        await asyncio.to_thread(self._restore)

    def _restore(self) -> None:
        self._etcd.kill()
        self._etcd.restore(self._snapshot)
        self._etcd.start()


def up(directory: Path, *options: str) -> KilledProcess:
    command = dralloc(
        "up", "--nodes", "cpu=1", "--port", str(free_port()), "--data-dir", str(directory / "data"), *options
    )
    return KilledProcess("up", command, "Ctrl-C ends it", directory)


async def run(*arguments: str) -> None:
    ended = await asyncio.to_thread(subprocess.run, dralloc(*arguments), capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended


class Machine:
    """A node agent and a driver, which are started again whenever they end, as by systemd."""

    def __init__(self, directory: Path, sockets: Path) -> None:
        self.prepared = directory / "prepared"
        self.prepared.mkdir()
        program = directory / "driver.py"
        program.write_text(DRIVER)
        kubeconfig, cdi = directory / "data" / "kubeconfig", sockets / "cdi"
        options = ("--kubeconfig", str(kubeconfig), "--name", NODE, "--plugin-dir", str(sockets), "--cdi-dir", str(cdi))
        variables = {
            "NODE_NAME": NODE,
            "KUBECONFIG": kubeconfig,
            "PREPARED": self.prepared,
            "DRA_PLUGINS_DIR": sockets / "plugins",
            "DRA_REGISTRY_DIR": sockets / "plugins_registry",
            "DRA_CDI_DIR": cdi,
            "DRA_REPAIR_DELAY_S": 1,
        }
        environment = [f"{name}={value}" for name, value in variables.items()]
        self.agent = KilledProcess("agent", dralloc("node", *options), "is ready", directory)
        self.driver = KilledProcess("driver", ["env", *environment, sys.executable, str(program)], "", directory)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        supervising = asyncio.create_task(self._supervise())
        try:
            yield
        finally:
            supervising.cancel()
            await asyncio.gather(supervising, return_exceptions=True)
            await self.agent.stop()
            await self.driver.stop()

    async def _supervise(self) -> None:
        await self.agent.start()
        await self.driver.start()
        while True:
            await asyncio.sleep(0.2)
            await self.agent.revive()
            await self.driver.revive()


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(WITHIN_S):
        while True:
            # The server may be away.
            with suppress(ApiError, TransportError):
                if await condition():
                    return
            await asyncio.sleep(0.1)


async def until_running(client: AsyncClient, name: str) -> None:
    async def is_running() -> bool:
        return (await client.get(Pod, name)).status.phase == "Running"

    await until(is_running)


async def create_pod(client: AsyncClient, directory: Path, name: str) -> None:
    """A pod with a card. Its container leaves its process ID in a file."""
    # Kubernetes makes one dollar of two.
    script = f"echo $$$$ > {directory}/{name}.pid; exec sleep 1000"
    spec = {
        "restartPolicy": "Never",
        "resourceClaims": [{"name": "card", "resourceClaimTemplateName": "card"}],
        "containers": [
            {"name": "c", "image": "x", "command": ["sh", "-c", script], "resources": {"claims": [{"name": "card"}]}}
        ],
    }
    await client.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})
    await until_running(client, name)


def runs(directory: Path, name: str) -> bool:
    with suppress(ProcessLookupError):
        os.kill(int((directory / f"{name}.pid").read_text()), 0)
        return True
    return False


async def devices(client: AsyncClient) -> dict[str, str]:
    """The allocated cards, by the UID of their claim."""
    return {
        item.metadata.uid: item.status.allocation.devices.results[0].device
        for item in await client.list(ResourceClaim)
        if item.status.allocation is not None
    }


async def settle_after_a_restore(place: Place, directory: Path, machine: Machine) -> None:
    await place.up.start()
    await place.up.until_ready()
    async with machine.running(), connect_async(directory / "data" / "kubeconfig") as client:
        await client.create(CLASS)
        await client.create(TEMPLATE)

        async def has_cards() -> bool:
            return any(item.spec.driver == "cards.example.com" for item in await client.list(ResourceSlice))

        await until(has_cards)
        await create_pod(client, directory, "before")
        known = await devices(client)
        await place.back_up()
        await create_pod(client, directory, "lost")
        assert len(await devices(client)) == len(list(machine.prepared.iterdir())) == 2
        await place.restore()

        async def is_settled() -> bool:
            """Nothing is left of the pod that the backup does not have."""
            ready = {node.metadata.name for node in await client.list(Node) if is_ready(node)}
            prepared = {file.name for file in machine.prepared.iterdir()}
            is_restarted = machine.agent.own_ends > 0 and machine.driver.own_ends > 0
            return is_restarted and ready == {NODE, "cpu-0"} and prepared == set(known) and not runs(directory, "lost")

        await until(is_settled)
        await until(has_cards)
        assert await devices(client) == known
        # What the backup has goes on as it was.
        assert [pod.metadata.name for pod in await client.list(Pod)] == ["before"]
        assert runs(directory, "before")
        await create_pod(client, directory, "after")
        after = await devices(client)
        assert after.items() >= known.items()
        assert sorted(after.values()) == ["card-0", "card-1"]
        (status,) = (await client.get(Pod, "before")).status.container_statuses
        assert status.restart_count == 0
        for process in (machine.agent, machine.driver):
            assert (process.own_ends, process.logged().count(SAID)) == (1, 1), process.logged()
            assert "Traceback" not in process.logged()
        assert not place.up.has_ended
        assert "Traceback" not in place.up.logged()


def is_ready(node: Node) -> bool:
    return any(each.type == "Ready" and each.status == "True" for each in node.status.conditions)


def test_a_cluster_settles_after_a_backup_was_restored(tmp_path: Path) -> None:
    with short_directory() as sockets:
        place = OnSqlite(tmp_path)
        asyncio.run(stopped(settle_after_a_restore(place, tmp_path, Machine(tmp_path, sockets)), place.up))


def test_up_starts_its_components_again_after_etcd_was_restored(tmp_path: Path) -> None:
    with short_directory() as sockets, EtcdServer(tmp_path / "etcd") as etcd:
        place = OnEtcd(tmp_path, etcd)
        asyncio.run(stopped(settle_after_a_restore(place, tmp_path, Machine(tmp_path, sockets)), place.up))
        for name in ("scheduler", "controllers", "nodes", "manifest nodes"):
            assert place.up.logged().count(f"components: {name}: {SAID}") == 1, place.up.logged()


async def stopped(work: Awaitable[None], process: KilledProcess) -> None:
    try:
        await work
    finally:
        await process.stop()
