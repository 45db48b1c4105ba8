"""Scenarios of a node agent with real containers, and what their containers print."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from dralloc.node.pod_view import NodePod
from tests.support.node_cluster import NodeCluster, node_cluster, short_directory
from tests.support.scripted_driver import ScriptedDriver

Scenario = Callable[[NodeCluster, ScriptedDriver], Awaitable[None]]


def play(scenario: Scenario, **settings: Any) -> None:
    """Run a scenario with an agent that runs processes, and one registered driver."""

    async def run() -> None:
        with short_directory() as directory:
            async with node_cluster(directory, **settings) as world, ScriptedDriver(directory) as driver:
                await driver.until(lambda: (True, "") in driver.registrations)
                await scenario(world, driver)

    asyncio.run(run())


def describe_devices(world: NodeCluster, **devices: list[str]) -> None:
    """Write a CDI file with the environment of each device."""
    described = [{"name": name, "containerEdits": {"env": env}} for name, env in devices.items()]
    (world.directory / "cdi").mkdir(exist_ok=True)
    content = {"cdiVersion": "0.6.0", "kind": "example.com/gpu", "devices": described}
    (world.directory / "cdi" / "example.json").write_text(json.dumps(content))


def script(text: str) -> list[str]:
    return ["sh", "-c", text]


def output(world: NodeCluster, pod: NodePod, container: str = "main") -> str:
    return (world.directory / "pods" / pod.metadata.uid / f"{container}.log").read_text()


async def printed(world: NodeCluster, name: str) -> str:
    """The output of a running pod, once it has a line."""
    pod = await world.pod_in("Running", name)
    await world.eventually(lambda: output(world, pod).endswith("\n"))
    return output(world, pod)


def exit_codes(pod: NodePod) -> list[int | None]:
    states = [status.state.terminated for status in pod.status.container_statuses]
    return [state.exit_code if state is not None else None for state in states]


def is_alive(pid: int) -> bool:
    """True if the process runs; a zombie does not count."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
