"""A whole control plane in real time and behind a real socket: API server, scheduler, controllers and simulated nodes.

Each component can be restarted with other feature gates, as in an upgrade.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import msgspec
import uvloop

from dralloc.client.http_transport import HttpTransport
from dralloc.client.kubeconfig import ConnectionConfig
from dralloc.client.transport import ClientRequest
from dralloc.controllers.controller_set import WITHOUT_NODES, ControllerSet
from dralloc.kube.codec import encode
from dralloc.kube.pod_v1 import Pod, PodCondition
from dralloc.primitives.features import FeatureGates
from dralloc.scheduler.report.metrics import SchedulerMetrics
from dralloc.scheduler.scheduler import Scheduler
from dralloc.scheduler.settings import SchedulerSettings
from dralloc.server.access.users import ADMINISTRATOR
from dralloc.server.http.application import ApiApplication
from dralloc.server.http.authentication import Authenticator
from dralloc.server.http.listener import ListenAddress, listen
from dralloc.server.server import ApiServer
from dralloc.server.store.memory import MemoryStore
from dralloc.testing.api_server import running_api_server
from tests.support.api_server import TOKEN, loop_clock
from tests.support.cluster import TestCluster, pod_scheduled
from tests.support.local_api import AS_TABLE
from tests.support.pod_runner import PodRunner


class HttpServer:
    """An API server on a port of loopback that it keeps when it is restarted; the objects stay, too."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self._serving = AsyncExitStack()
        self._port = 0

    async def start(self, gates: str) -> str:
        """Start or restart the server; returns its URL."""
        await self.stop()
        server = await self._serving.enter_async_context(
            running_api_server(ApiServer(self._store, clock=loop_clock(), gates=FeatureGates.parse(gates)))
        )
        application = ApiApplication(server, Authenticator({TOKEN: ADMINISTRATOR}))
        url = await self._serving.enter_async_context(listen(application, ListenAddress(port=self._port)))
        self._port = urlsplit(url).port or 0
        return url

    async def stop(self) -> None:
        await self._serving.aclose()


class RunningCluster(TestCluster):
    """A cluster with everything that runs pods. Methods that start a component restart it if it runs."""

    def __init__(self, transport: HttpTransport, server: HttpServer) -> None:
        super().__init__(transport)
        self._server = server
        # Counts across restarts of the scheduler.
        self.scheduler_metrics = SchedulerMetrics()

    async def serve(self, gates: str = "") -> None:
        await self._server.start(gates)

    async def restart_all(self, gates: str = "") -> None:
        """Server, scheduler and controllers start again with these gates."""
        await self.serve(gates)
        await self.schedule(gates)
        await self.control(gates)

    async def stop_serving(self) -> None:
        await self._server.stop()

    async def schedule(self, gates: str = "") -> None:
        settings = SchedulerSettings(gates=FeatureGates.parse(gates))
        scheduler = Scheduler(self.calls("scheduler"), self.clock, settings, self.scheduler_metrics)
        await self.components.restart("scheduler", scheduler.run)

    async def control(self, gates: str = "") -> None:
        controllers = ControllerSet(self.network, clock=self.clock, gates=FeatureGates.parse(gates), only=WITHOUT_NODES)
        await self.components.restart("controllers", controllers.run)

    async def run_pods(self) -> None:
        await self.components.restart("nodes", PodRunner(self.calls("node"), self.clock).run)

    async def post(self, path: str, document: Any) -> None:
        """Create an object of any version, as it is written."""
        headers = {"Content-Type": "application/json"}
        response = await self.network.send(
            ClientRequest(method="POST", path=path, headers=headers, body=encode(document))
        )
        assert response.status == 201, response.body.decode()

    async def table(self, path: str) -> dict[str, Any]:
        """The list as people see it."""
        response = await self.network.send(ClientRequest(method="GET", path=path, headers={"Accept": AS_TABLE}))
        assert response.status == 200, response.body.decode()
        return msgspec.json.decode(response.body, type=dict[str, Any])

    async def running(self, name: str) -> Pod:
        """The pod as soon as it runs."""
        pod = await self.until(Pod, name, lambda pod: pod is not None and pod.status.phase == "Running")
        assert pod is not None
        return pod

    async def refused(self, name: str, says: str = "") -> PodCondition:
        """The condition PodScheduled as soon as it is false and its message contains the text."""

        def is_refused(pod: Pod | None) -> bool:
            condition = pod_scheduled(pod)
            return condition is not None and condition.status == "False" and says in condition.message

        condition = pod_scheduled(await self.until(Pod, name, is_refused))
        assert condition is not None
        return condition


@asynccontextmanager
async def running_cluster(gates: str = "") -> AsyncIterator[RunningCluster]:
    """Every component with these feature gates, inside the block."""
    async with MemoryStore() as store, AsyncExitStack() as stack:
        server = HttpServer(store)
        stack.push_async_callback(server.stop)
        transport = HttpTransport(ConnectionConfig(server=await server.start(gates), token=TOKEN))
        stack.push_async_callback(transport.close)
        cluster = RunningCluster(transport, server)
        await stack.enter_async_context(cluster.components)
        await cluster.schedule(gates)
        await cluster.control(gates)
        await cluster.run_pods()
        yield cluster


ClusterTest = Callable[[RunningCluster], Coroutine[Any, Any, None]]


def in_running_cluster(test: ClusterTest) -> Callable[[], None]:
    """Decorates a test that gets a cluster of its own."""
    return in_running_cluster_with("")(test)


def in_running_cluster_with(gates: str) -> Callable[[ClusterTest], Callable[[], None]]:
    """Decorates a test that gets a cluster of its own, with these feature gates."""

    def decorate(test: ClusterTest) -> Callable[[], None]:
        async def main() -> None:
            async with running_cluster(gates) as cluster:
                await test(cluster)

        def run() -> None:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(main())

        run.__name__, run.__doc__, run.__module__ = test.__name__, test.__doc__, test.__module__
        return run

    return decorate
