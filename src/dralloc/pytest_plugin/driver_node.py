"""A node for tests of drivers: an agent in this process, whose pods are processes or simulated."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from dralloc.client.work_queue import Backoff
from dralloc.kube.pod_v1 import Pod
from dralloc.node.agent import Agent, AgentSettings
from dralloc.node.kubelet.plugin_sockets import PLUGINS, REGISTRY
from dralloc.node.node_object import NodeShape
from dralloc.node.simulated.manifest_nodes import CAPACITY
from dralloc.node.timings import DEFAULT_TIMINGS
from dralloc.testing.cluster import ClusterSettings, InProcessCluster

__all__ = ["DriverNode"]

# Shorter than on a real node, so that tests do not wait.
SOON: Final = Backoff(first_s=0.05, most_s=0.5)
TIMINGS: Final = replace(DEFAULT_TIMINGS, poll_s=0.05, register_backoff=SOON, pod_backoff=SOON, health_reopen_s=0.2)


@dataclass(frozen=True, slots=True)
class DriverNode:
    """A node as a driver sees it: its directories and the API server."""

    name: str
    directory: Path
    kubeconfig: Path

    @property
    def plugins_dir(self) -> Path:
        """Each driver has a directory with its socket here."""
        return self.directory / PLUGINS

    @property
    def registry_dir(self) -> Path:
        """A driver creates its registration socket here."""
        return self.directory / REGISTRY

    @property
    def cdi_dir(self) -> Path:
        """A driver writes its CDI specifications here."""
        return self.directory / "cdi"

    @property
    def environment(self) -> Mapping[str, str]:
        """The environment variables that drivers written with `dralloc.driver` read."""
        return {
            "NODE_NAME": self.name,
            "KUBECONFIG": str(self.kubeconfig),
            "DRA_PLUGINS_DIR": str(self.plugins_dir),
            "DRA_REGISTRY_DIR": str(self.registry_dir),
            "DRA_CDI_DIR": str(self.cdi_dir),
        }

    def log_of(self, pod: Pod, container: str) -> str:
        """The output of the container, if containers are processes."""
        return (self.directory / "pods" / pod.metadata.uid / f"{container}.log").read_text()


async def start_agent(
    cluster: InProcessCluster, settings: ClusterSettings, node: DriverNode, *, runs_processes: bool
) -> None:
    """Start the node, and return when it is ready."""
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
