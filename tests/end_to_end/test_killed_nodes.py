"""Nodes that are killed with -9: real processes, short periods. The server, the controllers and two kinds of nodes are processes of their own."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from dralloc.client.async_client import AsyncClient, connect_async
from dralloc.kube.core_v1 import Node
from dralloc.kube.pod_v1 import Pod
from tests.support.node_cluster import short_directory
from tests.support.node_process import kill, start_node_process
from tests.support.server_process import server_process
from tests.support.workloads import pod

pytestmark = pytest.mark.slow

# Longer than a busy machine delays a heartbeat.
GRACE_S = 6
LEASE_S = 4
UNREACHABLE = {("node.kubernetes.io/unreachable", effect) for effect in ("NoSchedule", "NoExecute")}


@asynccontextmanager
async def controllers(kubeconfig: Path) -> AsyncIterator[None]:
    options = ("--node-monitor-grace-period", str(GRACE_S), "--node-monitor-period", "0.5")
    command = (sys.executable, "-m", "dralloc", "controllers", "--kubeconfig", str(kubeconfig), *options)
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE)
    try:
        yield
    finally:
        await kill(process)


async def until(client: AsyncClient, name: str, matches: Callable[[Node], bool]) -> None:
    async with asyncio.timeout(60):
        async for event in client.watch(Node):
            if event.object.metadata.name == name and matches(event.object):
                return


def is_ready(node: Node) -> bool:
    return any(each.type == "Ready" and each.status == "True" for each in node.status.conditions)


def is_unknown(node: Node) -> bool:
    return any(each.type == "Ready" and each.status == "Unknown" for each in node.status.conditions)


def taints_of(node: Node) -> set[tuple[str, str]]:
    return {(taint.key, taint.effect) for taint in node.spec.taints}


def test_killed_nodes_do_not_stay_ready(tmp_path: Path) -> None:
    async def main(kubeconfig: Path, directory: Path) -> None:
        async def agent(name: str) -> Process:
            place = ("--plugin-dir", str(directory / name), "--runtime", "fake")
            return await start_node_process(
                "--kubeconfig", str(kubeconfig), "--name", name, "--lease-duration", str(LEASE_S), *place
            )

        running: list[Process] = []
        async with connect_async(kubeconfig) as client, controllers(kubeconfig):
            try:
                running += [await agent("a"), await agent("b")]
                fleet = ("--kubeconfig", str(kubeconfig), "--fake", "3", "--prefix", "sim")
                running.append(await start_node_process(*fleet, "--lease-duration", str(LEASE_S)))
                await killed_agent(client, running)
                running.append(await agent("a"))
                await until(client, "a", lambda node: is_ready(node) and not node.spec.taints)
                # Simulated nodes die together with their process.
                await kill(running[2])
                for number in range(3):
                    await until(client, f"sim-{number}", is_unknown)
                assert is_ready(await client.get(Node, "b"))
            finally:
                for process in running:
                    await kill(process)

    with server_process(tmp_path) as server, short_directory() as directory:
        asyncio.run(main(server.kubeconfig, directory))


async def killed_agent(client: AsyncClient, running: list[Process]) -> None:
    """The node becomes unknown and is tainted; its pod is not ready, and leaves when its toleration ends."""
    document = pod("p", node="a")
    document["spec"]["tolerations"] = [{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 2}]
    await client.create(document)
    await until_pod(client, lambda found: conditions(found).get("Ready") == "True")
    await kill(running[0])
    await until(client, "a", lambda node: is_unknown(node) and taints_of(node) == UNREACHABLE)
    await until_pod(client, lambda found: conditions(found).get("Ready") == "False")
    await until_pod(client, lambda found: found.is_terminating and conditions(found).get("DisruptionTarget") == "True")


async def until_pod(client: AsyncClient, matches: Callable[[Pod], bool]) -> None:
    async with asyncio.timeout(60):
        async for event in client.watch(Pod):
            if matches(event.object):
                return


def conditions(found: Pod) -> dict[str, str]:
    return {each.type: each.status for each in found.status.conditions}
