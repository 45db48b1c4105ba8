"""Answers that arrive after a restored backup has undone what they confirm, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from dralloc.client.transport import ClientRequest, ClientResponse
from dralloc.kube.pod_v1 import Pod
from dralloc.node.agent import Agent, AgentSettings
from dralloc.node.node_object import NodeShape
from dralloc.node.simulated_runtime import PREFIX
from dralloc.testing.builders import NODE
from dralloc.testing.virtual_time import run_virtual
from tests.support.controlled_cluster import ControlledCluster
from tests.support.node_cluster import short_directory
from tests.support.relay_transport import RelayTransport
from tests.support.restorable_cluster import RestorableServer, restorable_cluster
from tests.support.workloads import pod


class UndoneOnce(RelayTransport):
    """Undoes the first request that matches, to the state at the time of `back_up`, and answers after that was listed."""

    def __init__(self, server: RestorableServer, matches: Callable[[ClientRequest], bool]) -> None:
        super().__init__(server)
        self._server = server
        self._matches = matches
        self._is_undone = False

    async def back_up(self) -> None:
        self._backup = await self._server.back_up()

    async def send(self, request: ClientRequest) -> ClientResponse:
        answer = await super().send(request)
        if self._matches(request) and not self._is_undone:
            self._is_undone = True
            await self._server.restore(self._backup)
            await asyncio.sleep(5)
        return answer


@asynccontextmanager
async def running_pod(
    run_s: int, matches: Callable[[ClientRequest], bool]
) -> AsyncIterator[tuple[ControlledCluster, UndoneOnce]]:
    """A pod that ends after some time, on a node whose requests may be undone."""
    with short_directory() as directory:
        async with restorable_cluster(only=("quota",)) as (cluster, server):
            transport = UndoneOnce(server, matches)
            settings = AgentSettings(shape=NodeShape(name=NODE), directory=directory, runs_processes=False)
            cluster.components.start("agent", lambda: Agent(transport, settings, cluster.clock).run())
            document = pod("p")
            document["metadata"]["annotations"] = {f"{PREFIX}run-seconds": str(run_s)}
            document["spec"]["restartPolicy"] = "Never"
            await cluster.create(document)
            await cluster.bind("p", NODE)
            await cluster.settle(10)
            assert (await cluster.pod("p")).status.phase == "Running"
            yield cluster, transport


def test_the_end_of_a_pod_is_told_again() -> None:
    def is_end(request: ClientRequest) -> bool:
        return request.path.endswith("/pods/p/status") and b'"phase":"Succeeded"' in request.body

    async def main() -> None:
        async with running_pod(30, is_end) as (cluster, transport):
            await transport.back_up()
            await cluster.settle(120)
            assert (await cluster.pod("p")).status.phase == "Succeeded"

    run_virtual(main())


def test_a_pod_that_was_removed_and_is_back_can_be_deleted() -> None:
    def is_removal(request: ClientRequest) -> bool:
        return request.method == "DELETE" and request.path.endswith("/pods/p")

    async def main() -> None:
        async with running_pod(5_000, is_removal) as (cluster, transport):
            await transport.back_up()
            await cluster.client.delete(Pod, "p")
            await cluster.settle(120)
            assert not (await cluster.pod("p")).is_terminating
            await cluster.client.delete(Pod, "p")
            await cluster.settle(120)
            assert not await cluster.exists(Pod, "p")

    run_virtual(main())
