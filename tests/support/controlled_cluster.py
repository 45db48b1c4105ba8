"""A cluster with controllers and nothing else, in virtual time. The test plays the scheduler and the nodes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial

from dralloc.client.transport import Transport
from dralloc.controllers.controller_set import WITHOUT_NODES, ControllerSet
from dralloc.kube.pod_claims import CLAIM_FINALIZER, pod_reference
from dralloc.kube.resource_v1 import AllocationResult, ConsumerReference, ResourceClaim
from dralloc.primitives.features import FeatureGates
from dralloc.testing.builders import allocation, held
from tests.support.cluster import TestCluster, cluster_on


class ControlledCluster(TestCluster):
    """A cluster whose only components are controllers."""

    def __init__(self, transport: Transport, *, only: Sequence[str], gates: FeatureGates, seed: int = 0) -> None:
        super().__init__(transport, seed=seed)
        self.controllers = ControllerSet(self.network, clock=self.clock, gates=gates, only=only)

    @property
    def metrics(self) -> str:
        return self.controllers.metrics.text()

    def start(self) -> None:
        self.components.start("controllers", self.controllers.run)

    async def kill(self) -> None:
        """End the controllers, wherever they are."""
        await self.components.end("controllers")

    # --- Writes of a scheduler ------------------------------------------------------------------------------------

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
        """Allocation and reservation in one write, as a scheduler makes them."""
        status = {"allocation": result or allocation(held("gpu-0")), "reservedFor": list(consumers)}
        await self.client.patch(ResourceClaim, claim, {"status": status}, namespace=namespace, subresource="status")

    async def schedule(self, pod: str, claim: str, result: AllocationResult | None = None) -> None:
        """Give the pod its claim and a node: everything that a scheduler writes."""
        read = await self.pod(pod)
        status = (await self.claim(claim)).status
        if status.allocation is None:
            await self.protect(claim)
            await self.allocate(claim, [pod_reference(read)], result)
        elif pod_reference(read) not in status.reserved_for:
            await self.reserve(claim, read)
        await self.bind(pod)


@asynccontextmanager
async def controlled_cluster(
    *, only: Sequence[str] = WITHOUT_NODES, gates: FeatureGates | None = None, seed: int = 0
) -> AsyncIterator[ControlledCluster]:
    """A cluster with controllers that run inside the block."""
    gates = gates or FeatureGates.defaults()
    async with cluster_on(partial(ControlledCluster, only=only, gates=gates, seed=seed), gates=gates) as cluster:
        cluster.start()
        yield cluster
