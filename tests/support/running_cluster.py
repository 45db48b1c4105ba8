"""A whole control plane in real time and behind a real socket: API server, scheduler, controllers, and nodes that run pods.

Each component can be started anew with other features, as in an upgrade. Nothing here waits for time to pass: a test waits
for what it wants to see, through a watch, and fails at a deadline.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from typing import Any, Final
from urllib.parse import urlsplit

import uvloop

from dralloc.api.codec import encode
from dralloc.api.pod_v1 import Pod, PodCondition
from dralloc.api.resource_v1 import ResourceClaim
from dralloc.apiserver.http.application import ApiApplication
from dralloc.apiserver.http.authentication import ADMINISTRATOR, Authenticator
from dralloc.apiserver.http.listener import ListenAddress, listen
from dralloc.assembly.api_server import running_api_server
from dralloc.assembly.components import Components
from dralloc.client.api_calls import ApiCalls
from dralloc.client.async_client import AsyncClient
from dralloc.client.http_transport import HttpTransport
from dralloc.client.known_resources import resource_for
from dralloc.client.kubeconfig import ConnectionConfig
from dralloc.client.transport import ClientRequest
from dralloc.client.typed_resource import Object
from dralloc.controllers.controller_set import ControllerSet
from dralloc.primitives.clock import Clock
from dralloc.primitives.features import FeatureGates
from dralloc.scheduler.scheduler import Scheduler
from dralloc.scheduler.settings import SchedulerSettings
from dralloc.simulator.pod_runner import PodRunner
from dralloc.store.memory import MemoryStore
from dralloc.system_clock import SystemClock
from tests.support.api_server import TOKEN

# Far beyond what anything takes that works.
DEADLINE_S: Final = 60.0


class RunningCluster:
    """The cluster as its user sees it."""

    def __init__(self, store: MemoryStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self.components = Components()
        self._port = 0
        self._server: AsyncExitStack | None = None
        self._transport: HttpTransport | None = None

    # --- Components -------------------------------------------------------------------------------------------------

    async def serve(self, gates: str = "") -> None:
        """The API server comes up, or comes back with other features; what is stored stays."""
        await self.stop_serving()
        stack = AsyncExitStack()
        server = await stack.enter_async_context(
            running_api_server(self._store, clock=self._clock, gates=FeatureGates.parse(gates))
        )
        application = ApiApplication(server, Authenticator({TOKEN: ADMINISTRATOR}))
        url = await stack.enter_async_context(listen(application, ListenAddress(port=self._port)))
        self._server, self._port = stack, urlsplit(url).port or 0
        if self._transport is None:
            self._transport = HttpTransport(ConnectionConfig(server=url, token=TOKEN))

    async def stop_serving(self) -> None:
        if self._server is not None:
            await self._server.aclose()
            self._server = None

    async def schedule(self, gates: str = "") -> None:
        """The scheduler comes up, or comes back with other features."""
        settings = SchedulerSettings(gates=FeatureGates.parse(gates))
        await self.components.restart("scheduler", Scheduler(self._calls("scheduler"), self._clock, settings).run)

    async def control(self, gates: str = "") -> None:
        """The controllers come up, or come back with other features."""
        controllers = ControllerSet(self.transport, clock=self._clock, gates=FeatureGates.parse(gates))
        await self.components.restart("controllers", controllers.run)

    async def run_pods(self) -> None:
        await self.components.restart("nodes", PodRunner(self._calls("node"), self._clock).run)

    async def stop(self) -> None:
        await self.transport.close()
        await self.stop_serving()

    @property
    def transport(self) -> HttpTransport:
        assert self._transport is not None, "the server is up"
        return self._transport

    @property
    def client(self) -> AsyncClient:
        return AsyncClient(self.transport)

    def _calls(self, field_manager: str) -> ApiCalls:
        return ApiCalls(self.transport, field_manager=field_manager)

    # --- What a user does -------------------------------------------------------------------------------------------

    async def create(self, *items: Any) -> None:
        for item in items:
            await self.client.create(item)

    async def post(self, path: str, document: Any) -> None:
        """Create an object of any version, as it is written."""
        headers = {"Content-Type": "application/json"}
        response = await self.transport.send(
            ClientRequest(method="POST", path=path, headers=headers, body=encode(document))
        )
        assert response.status == 201, response.body.decode()

    async def delete_pod(self, name: str) -> None:
        """Delete the pod, and wait until it is gone."""
        await self.client.delete(Pod, name)
        await self.until(Pod, name, lambda pod: pod is None)

    async def end_pod(self, name: str, phase: str = "Succeeded") -> None:
        """The pod's containers have ended."""
        await self.client.patch(Pod, name, {"status": {"phase": phase}}, subresource="status")

    # --- What a user waits for --------------------------------------------------------------------------------------

    async def until(
        self, kind: type[Object], name: str, matches: Callable[[Object | None], bool], *, namespace: str = "default"
    ) -> Object | None:
        """The object as soon as it is as wanted; None stands for an object that is not there."""
        seen: Object | None = None
        try:
            async with asyncio.timeout(DEADLINE_S):
                async with aclosing(self._states(kind, name, namespace)) as states:
                    async for seen in states:
                        if matches(seen):
                            return seen
        except TimeoutError:
            self.components.check()
        raise AssertionError(f"{kind.__name__} {name} did not become what was expected; last seen: {seen}")

    async def _states(self, kind: type[Object], name: str, namespace: str) -> AsyncGenerator[Object | None, None]:
        resource = resource_for(kind)
        calls, namespace = self._calls("test"), namespace if resource.namespaced else ""
        selector = f"metadata.name={name}"
        items, revision = await calls.list_all(resource, namespace=namespace, field_selector=selector)
        yield items[0] if items else None
        async for event in calls.watch(
            resource,
            resource_version=revision,
            timeout_s=int(DEADLINE_S),
            namespace=namespace,
            field_selector=selector,
        ):
            if event.type != "BOOKMARK":
                yield None if event.type == "DELETED" else event.object

    async def running(self, name: str) -> Pod:
        """The pod, once it runs."""
        pod = await self.until(Pod, name, lambda pod: pod is not None and pod.status.phase == "Running")
        assert pod is not None
        return pod

    async def refused(self, name: str, says: str = "") -> PodCondition:
        """What the pod is told once it has been tried in vain, and why is as expected."""

        def is_refused(pod: Pod | None) -> bool:
            condition = _scheduled(pod)
            return condition is not None and condition.status == "False" and says in condition.message

        condition = _scheduled(await self.until(Pod, name, is_refused))
        assert condition is not None
        return condition

    async def claim(self, name: str, matches: Callable[[ResourceClaim], bool] = lambda _: True) -> ResourceClaim:
        """The claim, once it is there and as wanted."""
        claim = await self.until(ResourceClaim, name, lambda claim: claim is not None and matches(claim))
        assert claim is not None
        return claim

    async def claim_of(self, pod: str, entry: str) -> ResourceClaim:
        """The claim that was made for an entry of the pod."""
        statuses = (await self.client.get(Pod, pod)).status.resource_claim_statuses
        name = next(status.resource_claim_name for status in statuses if status.name == entry)
        assert name is not None, f"{entry} needs no claim"
        return await self.client.get(ResourceClaim, name)

    async def gone(self, kind: type[Object], name: str) -> None:
        await self.until(kind, name, lambda item: item is None)


def _scheduled(pod: Pod | None) -> PodCondition | None:
    conditions = pod.status.conditions if pod is not None else ()
    return next((condition for condition in conditions if condition.type == "PodScheduled"), None)


@asynccontextmanager
async def running_cluster(gates: str = "") -> AsyncIterator[RunningCluster]:
    """Every component with these features, on a free port of loopback, until the block ends."""
    async with MemoryStore() as store:
        cluster = RunningCluster(store, SystemClock())
        await cluster.serve(gates)
        try:
            async with cluster.components:
                await cluster.schedule(gates)
                await cluster.control(gates)
                await cluster.run_pods()
                yield cluster
        finally:
            await cluster.stop()


def in_running_cluster(
    test: Callable[[RunningCluster], Coroutine[Any, Any, None]],
) -> Callable[[], None]:
    """A test that gets a cluster of its own."""

    async def main() -> None:
        async with running_cluster() as cluster:
            await test(cluster)

    def run() -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(main())

    run.__name__, run.__doc__, run.__module__ = test.__name__, test.__doc__, test.__module__
    return run
