"""The one builder for clusters in tests: an API server, a transport to it, and the components that a test starts.

    async with cluster_on(ScheduledCluster) as cluster:      # in virtual time if the test runs on a virtual loop
        cluster.start(SchedulerSettings())

The loop decides the time (`run_virtual` or a real loop), the builder decides the transport (in process here, a socket in
`running_cluster` and `driver_cluster`), and the kind of cluster decides the components.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from random import Random
from typing import Any, Final, TypeVar

from dralloc.client.api_calls import ApiCalls
from dralloc.client.async_client import AsyncClient
from dralloc.client.in_process_transport import InProcessTransport
from dralloc.client.known_resources import resource_for
from dralloc.client.transport import Transport
from dralloc.client.typed_resource import Object, ObjectKey
from dralloc.kube.core_v1 import Event
from dralloc.kube.meta_v1 import ApiObject
from dralloc.kube.pod_claims import pod_reference
from dralloc.kube.pod_v1 import SUCCEEDED, Pod, PodCondition
from dralloc.kube.resource_v1 import ResourceClaim
from dralloc.primitives.errors import NotFound
from dralloc.server.access.users import ADMINISTRATOR, User
from dralloc.testing.components import Components
from tests.simulator.network import Faults
from tests.support.api_server import TOKEN, api_application, loop_clock
from tests.support.faulty_transport import FaultyTransport

# Much longer than anything takes that works.
DEADLINE_S: Final = 60.0


class TestCluster:
    """A cluster as a test sees it: components by name, and what users, schedulers and nodes read and write.

    `client` is the administrator's. Components use `network`: the transport inside `wrap`, with the `faults` that a test sets.
    """

    __test__ = False

    def __init__(
        self,
        transport: Transport,
        *,
        seed: int = 0,
        wrap: Callable[[Transport], Transport] = lambda transport: transport,
    ) -> None:
        self.clock = loop_clock()
        self.administrator = transport
        self.client = AsyncClient(transport)
        self.network = FaultyTransport(wrap(transport), Random(seed), Faults())
        self.components = Components()

    def calls(self, field_manager: str = "") -> ApiCalls:
        return ApiCalls(self.network, field_manager=field_manager)

    async def settle(self, seconds: float = 5.0) -> None:
        """Let time pass, which costs nothing if it is virtual; fails if a component died."""
        await asyncio.sleep(seconds)
        self.components.check()

    # --- Reading --------------------------------------------------------------------------------------------------

    async def pod(self, name: str, namespace: str = "default") -> Pod:
        return await self.client.get(Pod, name, namespace=namespace)

    async def node_of(self, pod: str) -> str:
        """The node that the pod is bound to; empty if it is not bound."""
        return (await self.pod(pod)).spec.node_name

    async def condition(self, pod: str) -> PodCondition:
        condition = pod_scheduled(await self.pod(pod))
        assert condition is not None, f"pod {pod} has no condition PodScheduled"
        return condition

    async def claim(self, name: str, namespace: str = "default") -> ResourceClaim:
        return await self.client.get(ResourceClaim, name, namespace=namespace)

    async def claims(self) -> tuple[ResourceClaim, ...]:
        return await self.client.list(ResourceClaim)

    async def claim_of(self, pod: str, entry: str, namespace: str = "default") -> ResourceClaim:
        """The claim that was generated for an entry of the pod."""
        statuses = (await self.pod(pod, namespace)).status.resource_claim_statuses
        name = next(status.resource_claim_name for status in statuses if status.name == entry)
        assert name is not None, f"{entry} needs no claim"
        return await self.claim(name, namespace)

    async def devices_of(self, claim: str) -> list[str]:
        """The devices that the claim is allocated, in order."""
        allocation = (await self.claim(claim)).status.allocation
        return [result.device for result in allocation.devices.results] if allocation is not None else []

    async def events_of(self, name: str) -> list[Event]:
        return [event for event in await self.client.list(Event) if event.involved_object.name == name]

    async def exists(self, object_type: Any, name: str, namespace: str = "default") -> bool:
        try:
            await self.client.get(object_type, name, namespace=namespace)
        except NotFound:
            return False
        return True

    # --- Waiting --------------------------------------------------------------------------------------------------

    async def until(
        self,
        kind: type[Object],
        name: str,
        matches: Callable[[Object | None], bool],
        *,
        namespace: str = "default",
        within_s: float = DEADLINE_S,
    ) -> Object | None:
        """The object as soon as it matches; None stands for an object that does not exist."""
        seen: Object | None = None
        try:
            async with asyncio.timeout(within_s), aclosing(self._states(kind, name, namespace)) as states:
                async for seen in states:
                    if matches(seen):
                        return seen
        except TimeoutError:
            self.components.check()
        raise AssertionError(f"{kind.__name__} {name} did not match within {within_s:g} s; last seen: {seen}")

    async def until_gone(self, name: str = "pod", kind: type[ApiObject] = Pod) -> None:
        await self.until(kind, name, lambda item: item is None)

    async def claim_where(self, name: str, matches: Callable[[ResourceClaim], bool]) -> ResourceClaim:
        """The claim as soon as it exists and matches."""
        claim = await self.until(ResourceClaim, name, lambda claim: claim is not None and matches(claim))
        assert claim is not None
        return claim

    async def _states(self, kind: type[Object], name: str, namespace: str) -> AsyncGenerator[Object | None, None]:
        resource = resource_for(kind)
        where: dict[str, Any] = {
            "namespace": namespace if resource.namespaced else "",
            "field_selector": f"metadata.name={name}",
        }
        items, revision = await self.client.calls.list_all(resource, **where)
        yield items[0] if items else None
        async for event in self.client.calls.watch(resource, resource_version=revision, timeout_s=600, **where):
            if event.type != "BOOKMARK":
                yield None if event.type == "DELETED" else event.object

    # --- Writes of users, schedulers and nodes --------------------------------------------------------------------

    async def create(self, *items: Any) -> None:
        for item in items:
            await self.client.create(item)

    async def bind(self, pod: str, node: str = "node-a", namespace: str = "default") -> None:
        body = {"target": {"kind": "Node", "name": node}}
        await self.client.calls.post(resource_for(Pod), ObjectKey(namespace, pod), "binding", body)

    async def reserve(self, claim: str, pod: Pod) -> None:
        """Add the pod to the reservations of the claim."""
        reserved = (await self.claim(claim)).status.reserved_for
        patch = {"status": {"reservedFor": [*reserved, pod_reference(pod)]}}
        await self.client.patch(ResourceClaim, claim, patch, subresource="status")

    async def end_pod(self, pod: str, phase: str = SUCCEEDED, namespace: str = "default") -> None:
        """Report that the containers of the pod have ended."""
        await self.client.patch(Pod, pod, {"status": {"phase": phase}}, namespace=namespace, subresource="status")

    async def delete_pod(self, name: str) -> None:
        """Delete the pod as a user does, and wait until it is gone."""
        await self.client.delete(Pod, name)
        await self.until_gone(name)

    async def remove_pod(self, pod: str, namespace: str = "default") -> None:
        """Delete the pod without a grace period: no node has to confirm that it ended."""
        await self.client.calls.delete(resource_for(Pod), ObjectKey(namespace, pod), grace_period_s=0)


def pod_scheduled(pod: Pod | None) -> PodCondition | None:
    conditions = pod.status.conditions if pod is not None else ()
    return next((condition for condition in conditions if condition.type == "PodScheduled"), None)


ClusterKind = TypeVar("ClusterKind", bound=TestCluster)


@asynccontextmanager
async def cluster_on(
    kind: Callable[[Transport], ClusterKind], *, components: User = ADMINISTRATOR, **server: Any
) -> AsyncIterator[ClusterKind]:
    """A cluster inside the block, on an API server in this process; `server` are arguments of `api_server`.

    No component runs yet. Those that the test starts have the rights of the user `components`. They end with the block, which fails if
    one of them died.
    """
    token = "token-of-components"
    async with api_application({token: components}, **server) as application:
        cluster = kind(InProcessTransport(application, token=TOKEN))
        if components is not ADMINISTRATOR:
            cluster.network = FaultyTransport(InProcessTransport(application, token=token), Random(0), Faults())
        async with cluster.components:
            yield cluster
