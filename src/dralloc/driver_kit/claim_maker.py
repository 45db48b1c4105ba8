"""Creates claims and allocates published devices of a driver to them, as a scheduler does."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Final
from uuid import uuid4

from dralloc.client.async_client import AsyncClient
from dralloc.devices.allocator.allocate import AllocationProblem, allocate
from dralloc.devices.allocator.diagnosis.diagnoser import Diagnoser
from dralloc.devices.allocator.features import Features
from dralloc.devices.allocator.outcome import Allocated
from dralloc.devices.allocator.requests import compile_demand
from dralloc.devices.allocator.stamp import stamp
from dralloc.devices.identity import ClaimId
from dralloc.devices.node_selectors import NodeFacts
from dralloc.devices.snapshot import Snapshot
from dralloc.kube.meta_v1 import ObjectMeta
from dralloc.kube.resource_v1 import (
    AllocationResult,
    CapacityRequirements,
    CELDeviceSelector,
    DeviceClaim,
    DeviceClaimConfiguration,
    DeviceClass,
    DeviceClassSpec,
    DeviceRequest,
    DeviceSelector,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
    ResourceSlice,
)
from dralloc.primitives.errors import AlreadyExists, Conflict, NotFound
from dralloc.primitives.features import FeatureGates
from dralloc.primitives.quantity import Quantity

NAMESPACE: Final = "default"
ATTEMPTS_MAX: Final = 50
ATTEMPT_AGAIN_S: Final = 0.05


class CannotAllocate(Exception):
    """No published device of the driver fits the claim."""


class ClaimMaker:
    """Creates and deletes claims that are allocated on one node."""

    def __init__(self, client: AsyncClient, driver: str, node_name: str) -> None:
        self._client = client
        self._driver = driver
        self._node = NodeFacts(node_name)
        self.class_name = f"driver-test-{node_name}"[:63].rstrip("-.")

    async def create_class(self) -> None:
        """Create the class that selects all devices of the driver."""
        selector = DeviceSelector(cel=CELDeviceSelector(expression=f'device.driver == "{self._driver}"'))
        wanted = DeviceClass(metadata=ObjectMeta(name=self.class_name), spec=DeviceClassSpec(selectors=(selector,)))
        try:
            await self._client.create(wanted)
        except AlreadyExists:
            found = await self._client.get(DeviceClass, self.class_name)
            if found.spec != wanted.spec:
                await self._client.delete(DeviceClass, self.class_name)
                await self._client.create(wanted)

    async def delete_class(self) -> None:
        with suppress(NotFound):
            await self._client.delete(DeviceClass, self.class_name)

    async def create(
        self, name: str, requests: Sequence[DeviceRequest], config: Sequence[DeviceClaimConfiguration] = ()
    ) -> ResourceClaim:
        """Create a claim without allocation."""
        devices = DeviceClaim(requests=tuple(requests), config=tuple(config))
        claim: ResourceClaim = await self._client.create(
            ResourceClaim(metadata=ObjectMeta(name=name, namespace=NAMESPACE), spec=ResourceClaimSpec(devices=devices))
        )
        return claim

    async def allocated(
        self, name: str, requests: Sequence[DeviceRequest], config: Sequence[DeviceClaimConfiguration] = ()
    ) -> ResourceClaim:
        """Create a claim and allocate devices to it; on `CannotAllocate` the claim is deleted again."""
        claim = await self.create(name, requests, config)
        try:
            return await self.allocate(claim)
        except CannotAllocate:
            await self.delete(claim)
            raise

    async def allocate(self, claim: ResourceClaim) -> ResourceClaim:
        """Allocate devices to the claim; raises `CannotAllocate`."""
        for _ in range(ATTEMPTS_MAX):
            try:
                return await self.write_allocation(claim, await self.find(claim))
            except Conflict:
                # The server's device guard may learn with a delay that a device is free again.
                await asyncio.sleep(ATTEMPT_AGAIN_S)
        raise CannotAllocate(f"the API server refused {ATTEMPTS_MAX} allocations for claim {claim.metadata.name}")

    async def write_allocation(self, claim: ResourceClaim, allocation: AllocationResult | None) -> ResourceClaim:
        return await self._client.patch(
            ResourceClaim,
            claim.metadata.name,
            {"status": {"allocation": allocation, "reservedFor": None}},
            namespace=claim.metadata.namespace,
            subresource="status",
        )

    async def delete(self, claim: ResourceClaim) -> None:
        with suppress(NotFound):
            await self._client.delete(ResourceClaim, claim.metadata.name, namespace=claim.metadata.namespace)

    async def find(self, claim: ResourceClaim) -> AllocationResult:
        """The allocation that a scheduler would choose; raises `CannotAllocate`."""
        classes = {found.metadata.name: found for found in await self._client.list(DeviceClass)}
        snapshot = Snapshot.of(
            slices=await self._client.list(ResourceSlice),
            claims=await self._client.list(ResourceClaim),
            nodes=[self._node],
        )
        demand = compile_demand([claim], classes, Features.of(FeatureGates.defaults()))
        outcome = allocate(AllocationProblem(demand, self._node, snapshot))
        if not isinstance(outcome, Allocated):
            why = Diagnoser(demand, snapshot, (ClaimId.of(claim),)).reason(self._node, outcome).line
            raise CannotAllocate(f"no devices of {self._driver} fit claim {claim.metadata.name}: {why}")
        return stamp(outcome.claims[0], lambda: str(uuid4()))


def exactly(
    name: str, class_name: str, *, count: int = 1, where: str = "", capacity: dict[str, str] | None = None
) -> DeviceRequest:
    """A request for `count` devices of the class; `where` is a CEL selector."""
    return DeviceRequest(
        name=name,
        exactly=ExactDeviceRequest(
            device_class_name=class_name, count=count, selectors=_selectors(where), capacity=_requirements(capacity)
        ),
    )


def _selectors(where: str) -> tuple[DeviceSelector, ...]:
    return (DeviceSelector(cel=CELDeviceSelector(expression=where)),) if where else ()


def _requirements(capacity: dict[str, str] | None) -> CapacityRequirements | None:
    if not capacity:
        return None
    return CapacityRequirements(requests={name: Quantity.parse(amount) for name, amount in capacity.items()})
