"""A server in this process with controllers that run against it, in virtual time, over a network that may lose things.

The rest of a cluster is played by the test: `schedule` and `bind` do what a scheduler does, write by write, and
`end_pod` and `remove_pod` what a node does.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from random import Random
from typing import Any

from dralloc.api.pod_claims import CLAIM_FINALIZER, pod_reference
from dralloc.api.pod_v1 import SUCCEEDED, Pod
from dralloc.api.resource_v1 import AllocationResult, ConsumerReference, ResourceClaim
from dralloc.client.async_client import AsyncClient
from dralloc.client.in_process_transport import InProcessTransport
from dralloc.client.known_resources import resource_for
from dralloc.client.transport import Transport
from dralloc.client.typed_resource import ObjectKey
from dralloc.controllers.controller_set import CONTROLLERS, ControllerSet
from dralloc.primitives.errors import NotFound
from dralloc.primitives.features import FeatureGates
from dralloc.simulator.network_faults import Faults, FaultyTransport
from dralloc.simulator.virtual_time import VirtualClock
from dralloc.testing.builders import allocation, held
from tests.support.api_server import TOKEN, api_application

# Long enough, in virtual time, for everything that is not meant to wait.
SETTLED_S = 5.0


class ControlledCluster:
    """The cluster as a test sees it. `client` loses nothing."""

    def __init__(self, client: AsyncClient, transport: FaultyTransport, controllers: ControllerSet) -> None:
        self.client = client
        self.network = transport
        self.controllers = controllers
        self._running: asyncio.Task[None] | None = None

    @property
    def metrics(self) -> str:
        return self.controllers.metrics.text()

    def start(self) -> None:
        self._running = asyncio.create_task(self.controllers.run())

    async def kill(self) -> None:
        """End the controllers wherever they are."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)
            self._running = None

    async def settle(self, seconds: float = SETTLED_S) -> None:
        """Let virtual time pass, and see that the controllers are alive."""
        await asyncio.sleep(seconds)
        if self._running is not None and self._running.done():
            self._running.result()

    # --- reading --------------------------------------------------------------------------------------------------

    async def pod(self, name: str, namespace: str = "default") -> Pod:
        return await self.client.get(Pod, name, namespace=namespace)

    async def claim(self, name: str, namespace: str = "default") -> ResourceClaim:
        return await self.client.get(ResourceClaim, name, namespace=namespace)

    async def claims(self) -> tuple[ResourceClaim, ...]:
        return await self.client.list(ResourceClaim)

    async def own_claim(self, pod: str, entry: str, namespace: str = "default") -> ResourceClaim:
        """The claim that is recorded for the pod's entry."""
        statuses = (await self.pod(pod, namespace)).status.resource_claim_statuses
        name = next(status.resource_claim_name for status in statuses if status.name == entry)
        assert name is not None, f"{entry} needs no claim"
        return await self.claim(name, namespace)

    async def exists(self, object_type: Any, name: str, namespace: str = "default") -> bool:
        try:
            await self.client.get(object_type, name, namespace=namespace)
        except NotFound:
            return False
        return True

    # --- the scheduler's part -------------------------------------------------------------------------------------

    async def protect(self, claim: str, namespace: str = "default") -> None:
        patch = {"metadata": {"finalizers": [CLAIM_FINALIZER]}}
        await self.client.patch(ResourceClaim, claim, patch, namespace=namespace)

    async def allocate(
        self,
        claim: str,
        consumers: Sequence[ConsumerReference],
        result: AllocationResult | None = None,
        namespace: str = "default",
    ) -> None:
        """Allocation and reservation, in the one write in which a scheduler makes them."""
        status = {"allocation": result or allocation(held("gpu-0")), "reservedFor": list(consumers)}
        await self.client.patch(ResourceClaim, claim, {"status": status}, namespace=namespace, subresource="status")

    async def bind(self, pod: str, node: str = "node-a", namespace: str = "default") -> None:
        body = {"target": {"kind": "Node", "name": node}}
        await self.client.calls.post(resource_for(Pod), ObjectKey(namespace, pod), "binding", body)

    async def schedule(self, pod: str, claim: str, result: AllocationResult | None = None) -> None:
        """Give the pod its claim and a node: all that a scheduler writes."""
        reference = pod_reference(await self.pod(pod))
        listed = (await self.claim(claim)).status
        if listed.allocation is None:
            await self.protect(claim)
            await self.allocate(claim, [reference], result)
        elif reference not in listed.reserved_for:
            patch = {"status": {"reservedFor": [*listed.reserved_for, reference]}}
            await self.client.patch(ResourceClaim, claim, patch, subresource="status")
        await self.bind(pod)

    # --- the node's part ------------------------------------------------------------------------------------------

    async def end_pod(self, pod: str, phase: str = SUCCEEDED, namespace: str = "default") -> None:
        patch = {"status": {"phase": phase}}
        await self.client.patch(Pod, pod, patch, namespace=namespace, subresource="status")

    async def remove_pod(self, pod: str, namespace: str = "default") -> None:
        """Delete the pod and report at once that it has ended."""
        key = ObjectKey(namespace, pod)
        await self.client.calls.delete(resource_for(Pod), key, grace_period_s=0)


@asynccontextmanager
async def controlled_cluster(
    *, only: Sequence[str] = tuple(CONTROLLERS), gates: FeatureGates | None = None, seed: int = 0
) -> AsyncIterator[ControlledCluster]:
    """A server and controllers that run inside the block. The network is sound until the test changes `faults`."""
    clock = VirtualClock(asyncio.get_running_loop())
    async with api_application(clock=clock, gates=gates) as application:
        sound: Transport = InProcessTransport(application, token=TOKEN)
        network = FaultyTransport(sound, Random(seed), Faults())
        controllers = ControllerSet(network, clock=clock, gates=gates or FeatureGates.defaults(), only=only)
        cluster = ControlledCluster(AsyncClient(sound), network, controllers)
        cluster.start()
        try:
            yield cluster
        finally:
            await cluster.kill()
