"""A whole cluster of one node for drivers that are processes: server, scheduler, controllers, node agent.

Pods are processes, so a test sees what a container would see. The driver uses a kubeconfig and sockets.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from dralloc.client.http_transport import HttpTransport
from dralloc.client.kubeconfig import read_kubeconfig
from dralloc.client.transport import ClientRequest, Transport
from dralloc.client.work_queue import Backoff
from dralloc.controllers.controller_set import WITHOUT_NODES, ControllerSet
from dralloc.driver_kit.driver_process import DriverProcess
from dralloc.driver_kit.slice_rules import are_complete
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import ResourceClaim, ResourceSlice
from dralloc.node.agent import Agent, AgentSettings
from dralloc.node.kubelet.plugin_sockets import PLUGINS, REGISTRY
from dralloc.node.node_object import NodeShape
from dralloc.node.process_runtime import find_marked
from dralloc.node.timings import DEFAULT_TIMINGS
from dralloc.primitives.errors import AlreadyExists
from dralloc.primitives.features import FeatureGates
from dralloc.scheduler.scheduler import Scheduler
from dralloc.scheduler.settings import NAME, SchedulerSettings
from dralloc.server.server_process import ServerSettings, run_server
from tests.support.client_certificates import node_kubeconfig
from tests.support.cluster import DEADLINE_S, TestCluster
from tests.support.node_process import kill, start_node_process
from tests.support.workloads import existing, pod

NODE: Final = "node-a"
SOON: Final = Backoff(first_s=0.05, most_s=0.5)


class DriverCluster(TestCluster):
    """A cluster of one node, for drivers that are processes."""

    def __init__(
        self, transport: Transport, kubeconfig: Path, node_kubeconfig: Path, directory: Path, stack: AsyncExitStack
    ) -> None:
        super().__init__(transport)
        self.kubeconfig = kubeconfig
        # With the identity of the node, which has no more rights than a kubelet.
        self.node_kubeconfig = node_kubeconfig
        self.directory = directory
        self._stack = stack
        self._node: Process | None = None

    # --- The node, where it is a process of its own ---------------------------------------------------------------

    async def start_node(self) -> None:
        """Start the node's agent as users do, and wait until it is ready."""
        self._node = await start_node_process(
            *("--kubeconfig", str(self.node_kubeconfig), "--name", NODE),
            *("--plugin-dir", str(self.directory), "--cdi-dir", str(self.cdi_dir)),
        )

    async def kill_node(self) -> None:
        """Kill the agent; its containers continue."""
        if self._node is not None:
            await kill(self._node)

    async def end_node(self) -> None:
        """End the agent and all containers."""
        await self.kill_node()
        for _, pid in find_marked(str(self.directory)):
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)

    # --- Drivers --------------------------------------------------------------------------------------------------

    @property
    def cdi_dir(self) -> Path:
        return self.directory / "cdi"

    async def start_driver(self, program: Path, **environment: str) -> DriverProcess:
        """Run a driver written in Python, and wait until its devices are published.

        A driver with manifests has only the rights of its service account, bound to the node; others are administrators.
        """
        manifest = program.parent / "manifests" / "driver.yaml"
        kubeconfig = await self._account_kubeconfig(manifest) if manifest.exists() else self.kubeconfig
        places = {
            "NODE_NAME": NODE,
            "KUBECONFIG": str(kubeconfig),
            "DRA_PLUGINS_DIR": str(self.directory / PLUGINS),
            "DRA_REGISTRY_DIR": str(self.directory / REGISTRY),
            "DRA_CDI_DIR": str(self.cdi_dir),
            "DRA_REPAIR_DELAY_S": "0.2",
        }
        process = DriverProcess([sys.executable, str(program)], {**places, **environment})
        await process.start()
        self._stack.push_async_callback(process.stop)
        await self.published()
        return process

    async def _account_kubeconfig(self, manifest: Path) -> Path:
        """A kubeconfig with a token of the service account in the manifest, as a pod of it on the node would have."""
        documents = [each for each in yaml.safe_load_all(manifest.read_text()) if each["kind"] != "DaemonSet"]
        for document in documents:
            with suppress(AlreadyExists):
                await self.client.create(document)
        (account,) = (each["metadata"] for each in documents if each["kind"] == "ServiceAccount")
        asked = {"spec": {"boundObjectRef": {"apiVersion": "v1", "kind": "Node", "name": NODE}}}
        path = f"/api/v1/namespaces/{account['namespace']}/serviceaccounts/{account['name']}/token"
        answer = await self.network.send(
            ClientRequest(
                method="POST", path=path, headers={"content-type": "application/json"}, body=msgspec.json.encode(asked)
            )
        )
        assert answer.status == 201, answer.body
        given = msgspec.json.decode(answer.body)
        config = yaml.safe_load(self.kubeconfig.read_text())
        config["users"][0]["user"] = {"token": given["status"]["token"]}
        kubeconfig = self.kubeconfig.parent / f"{account['name']}.kubeconfig"
        kubeconfig.write_text(yaml.safe_dump(config))
        return kubeconfig

    async def published(self) -> tuple[ResourceSlice, ...]:
        """The slices, as soon as every pool is complete."""
        async with asyncio.timeout(DEADLINE_S):
            async for _ in self.client.watch(ResourceSlice):
                slices = await self.client.list(ResourceSlice)
                if are_complete(slices):
                    return slices
        raise AssertionError("the watch ended")

    # --- Pods -----------------------------------------------------------------------------------------------------

    async def run_pod(self, name: str, claims: Mapping[str, str], *command: str) -> None:
        """Create a pod with one container that runs the command; `claims` are claim names by entry name."""
        document: dict[str, Any] = pod(
            name, {entry: existing(claim) for entry, claim in claims.items()}, scheduler=NAME
        )
        document["spec"]["containers"][0]["command"] = list(command)
        document["spec"]["terminationGracePeriodSeconds"] = 1
        await self.client.create(document)

    async def pod_in(self, name: str, phase: str) -> Pod:
        found = await self.until(Pod, name, lambda seen: seen is not None and seen.status.phase == phase)
        assert found is not None, "it was seen"
        return found

    async def claim_is_free(self, name: str) -> None:
        """Wait until the claim is not allocated any more."""
        await self.until(ResourceClaim, name, lambda seen: seen is None or seen.status.allocation is None)


@asynccontextmanager
async def driver_cluster(
    directory: Path, *, runs_processes: bool = True, node_is_a_process: bool = False, gates: str = ""
) -> AsyncIterator[DriverCluster]:
    """A cluster that runs inside the block, in a directory whose path is short."""
    features = FeatureGates.parse(gates)
    async with AsyncExitStack() as stack:
        settings = ServerSettings(data_dir=directory / "server", port=0, store="memory://", gates=features)
        await stack.enter_async_context(run_server(settings))
        transport = HttpTransport(read_kubeconfig(settings.kubeconfig_path))
        stack.push_async_callback(transport.close)
        of_node = node_kubeconfig(settings.kubeconfig_path, settings.data_dir, NODE)
        as_node = HttpTransport(read_kubeconfig(of_node))
        stack.push_async_callback(as_node.close)
        cluster = DriverCluster(transport, settings.kubeconfig_path, of_node, directory / "kubelet", stack)
        components = await stack.enter_async_context(cluster.components)
        components.start(
            "scheduler", Scheduler(cluster.calls("scheduler"), cluster.clock, SchedulerSettings(gates=features)).run
        )
        controllers = ControllerSet(cluster.network, clock=cluster.clock, gates=features, only=WITHOUT_NODES)
        components.start("controllers", controllers.run)
        if node_is_a_process:
            stack.push_async_callback(cluster.end_node)
            await cluster.start_node()
        else:
            agent_settings = _agent_settings(cluster.directory, features, runs_processes=runs_processes)
            agent, ready = Agent(as_node, agent_settings, cluster.clock), asyncio.Event()
            components.start("agent", partial(agent.run, ready.set))
            await components.guard(ready.wait())
        yield cluster


def _agent_settings(directory: Path, gates: FeatureGates, *, runs_processes: bool) -> AgentSettings:
    return AgentSettings(
        shape=NodeShape(name=NODE, capacity={"cpu": "64", "memory": "256Gi", "pods": "1000"}),
        directory=directory,
        runs_processes=runs_processes,
        gates=gates,
        cdi_directories=(directory / "cdi",),
        timings=replace(DEFAULT_TIMINGS, poll_s=0.05, register_backoff=SOON, pod_backoff=SOON, health_reopen_s=0.2),
    )
