"""A driver of cards with memory, run on a bench, and transports that fail it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

from dralloc.client.transport import ClientRequest, ClientResponse, Transport, TransportError
from dralloc.driver import AllocatedClaim, Device, Driver, PreparedDevice, capacity, device
from dralloc.driver_kit.claim_maker import exactly
from dralloc.kube.resource_v1 import ResourceClaim
from dralloc.testing.driver_bench import DriverBench, driver_bench
from tests.support.relay_transport import RelayTransport


class MemoryDriver(Driver):
    """Two cards whose memory is shared, and one that is not."""

    name = "gpu.example.com"

    def __init__(self) -> None:
        self.log: list[str] = []
        self.before_prepare: Callable[[AllocatedClaim], None] = lambda _: None

    def devices(self) -> Iterable[Device]:
        memory = capacity("80Gi", default="10Gi", minimum="1Gi", step="1Gi")
        shared = [device(f"gpu-{number}", shareable=True, capacity={"memory": memory}) for number in range(2)]
        return [*shared, device("whole")]

    def prepare(self, claim: AllocatedClaim) -> Iterable[PreparedDevice]:
        self.log.append(f"prepare {claim.name}")
        self.before_prepare(claim)
        return [
            found.prepared(
                env={"GPU": found.name, "MEMORY": str(found.consumed.get("memory", "all"))},
                state={"call": len(self.log), "others": [other.name for other in claim.others]},
            )
            for found in claim.devices
        ]

    def unprepare(self, claim: AllocatedClaim) -> None:
        self.log.append(f"unprepare {claim.name} {[found.name for found in claim.devices]}")


def on_bench(
    directory: Path,
    scenario: Callable[[DriverBench, MemoryDriver], Awaitable[None]],
    driver: MemoryDriver | None = None,
) -> None:
    async def run() -> None:
        tested = driver or MemoryDriver()
        async with driver_bench(tested, directory) as bench:
            await scenario(bench, tested)

    asyncio.run(run())


async def shared_claim(bench: DriverBench, name: str, memory: str = "3Gi") -> ResourceClaim:
    return await bench.claim(name, exactly("gpu", bench.class_name, capacity={"memory": memory}))


async def whole_claim(bench: DriverBench, name: str) -> ResourceClaim:
    return await bench.claim(name, exactly("gpu", bench.class_name, where="device.allowMultipleAllocations == false"))


def share_of(claim: ResourceClaim) -> str | None:
    assert claim.status.allocation is not None
    return claim.status.allocation.devices.results[0].share_id


class Offline(RelayTransport):
    """A transport to a server that can be disconnected."""

    is_down = False

    async def send(self, request: ClientRequest) -> ClientResponse:
        if self.is_down:
            raise TransportError("the server is away")
        return await super().send(request)


class SlowClaims(RelayTransport):
    """A transport to a server that reads claims when it may."""

    def __init__(self, inner: Transport) -> None:
        super().__init__(inner)
        self.go = asyncio.Event()
        self.go.set()
        self.asked = asyncio.Event()

    async def send(self, request: ClientRequest) -> ClientResponse:
        if request.method == "GET" and "/resourceclaims/" in request.path and not self.go.is_set():
            self.asked.set()
            await self.go.wait()
        return await super().send(request)
