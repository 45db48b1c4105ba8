"""A node for drivers under test: an agent in this process that drivers register with, and whose pods are processes or nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from dralloc.api.pod_v1 import Pod
from dralloc.assembly.cluster import ClusterSettings, InProcessCluster
from dralloc.client.work_queue import Backoff
from dralloc.fleet.manifest_nodes import CAPACITY
from dralloc.kubelet.plugin_sockets import PLUGINS, REGISTRY
from dralloc.node.agent import Agent, AgentSettings
from dralloc.node.node_object import NodeShape
from dralloc.node.timings import DEFAULT_TIMINGS

# A test should not wait for what a node does now and then.
SOON: Final = Backoff(first_s=0.05, most_s=0.5)
TIMINGS: Final = replace(DEFAULT_TIMINGS, look_s=0.05, register_again=SOON, pod_again=SOON, health_reopen_s=0.2)


@dataclass(frozen=True, slots=True)
class DriverNode:
    """A node as a driver sees it: directories, and where the API server is."""

    name: str
    directory: Path
    kubeconfig: Path

    @property
    def plugins_dir(self) -> Path:
        """Where a driver has a directory of its own, with its socket."""
        return self.directory / PLUGINS

    @property
    def registry_dir(self) -> Path:
        """Where a driver puts the socket by which the node finds it."""
        return self.directory / REGISTRY

    @property
    def cdi_dir(self) -> Path:
        """Where a driver describes devices for containers."""
        return self.directory / "cdi"

    @property
    def environment(self) -> Mapping[str, str]:
        """All of that for a driver that reads it from variables, as those written with `dralloc.driver` do."""
        return {
            "NODE_NAME": self.name,
            "KUBECONFIG": str(self.kubeconfig),
            "DRA_PLUGINS_DIR": str(self.plugins_dir),
            "DRA_REGISTRY_DIR": str(self.registry_dir),
            "DRA_CDI_DIR": str(self.cdi_dir),
        }

    def log_of(self, pod: Pod, container: str) -> str:
        """What the container has printed, where containers are processes."""
        return (self.directory / "pods" / pod.metadata.uid / f"{container}.log").read_text()


async def start_agent(
    cluster: InProcessCluster, settings: ClusterSettings, node: DriverNode, *, runs_processes: bool
) -> None:
    """Let the node be there, and return once it is ready."""
    node.cdi_dir.mkdir(parents=True, exist_ok=True)
    agent = Agent(
        cluster.transport,
        AgentSettings(
            shape=NodeShape(name=node.name, capacity=CAPACITY),
            directory=node.directory,
            runs_processes=runs_processes,
            cdi_directories=(node.cdi_dir,),
            timings=TIMINGS,
            gates=settings.gates,
        ),
        settings.clock,
    )
    ready = asyncio.Event()
    cluster.components.start(f"node {node.name}", partial(agent.run, ready.set))
    await cluster.components.guard(ready.wait())
