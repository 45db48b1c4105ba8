"""Runs a driver in a test: an API server in this process, sockets in a directory, and the calls of a kubelet.

async with driver_bench(MyDriver(), tmp_path) as bench:
    claim = await bench.claim("training", exactly("gpu", bench.class_name, capacity={"memory": "10Gi"}))
    answers = await bench.caller.prepare([bench.name_of(claim)])
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from dralloc.client.async_client import AsyncClient
from dralloc.client.in_process_transport import InProcessTransport
from dralloc.client.transport import Transport
from dralloc.driver.driver import Driver
from dralloc.driver.plugin import Plugin
from dralloc.driver.services import Registration
from dralloc.driver.settings import Settings
from dralloc.driver_kit.caller import Caller, ClaimName, calling
from dralloc.driver_kit.claim_maker import ClaimMaker
from dralloc.kube.core_v1 import Node
from dralloc.kube.meta_v1 import ObjectMeta
from dralloc.kube.resource_v1 import DeviceClaimConfiguration, DeviceRequest, ResourceClaim
from dralloc.primitives.features import FeatureGates
from dralloc.server.access.users import ADMINISTRATOR
from dralloc.server.http.application import ApiApplication
from dralloc.server.http.authentication import Authenticator
from dralloc.server.server import ApiServer
from dralloc.server.store.memory import MemoryStore
from dralloc.system_clock import SystemClock
from dralloc.testing.api_server import running_api_server

__all__ = ["DriverBench", "driver_bench"]

NODE: Final = "node-a"


@dataclass(frozen=True, slots=True)
class DriverBench:
    """A running driver, with a client of its API server and a caller of its gRPC services."""

    client: AsyncClient
    plugin: Plugin
    caller: Caller
    registration: Registration
    claims: ClaimMaker
    settings: Settings

    @property
    def class_name(self) -> str:
        """The name of a class that selects all devices of the driver."""
        return self.claims.class_name

    async def claim(
        self, name: str, *requests: DeviceRequest, config: tuple[DeviceClaimConfiguration, ...] = ()
    ) -> ResourceClaim:
        """A new claim that is allocated devices of the driver."""
        return await self.claims.allocated(name, requests, config)

    def name_of(self, claim: ResourceClaim) -> ClaimName:
        """The claim as a kubelet names it in its calls."""
        return ClaimName(claim.metadata.namespace, claim.metadata.name, claim.metadata.uid)

    def cdi_documents(self) -> dict[str, Any]:
        """The CDI specifications of the driver, by file name."""
        files = sorted(self.settings.cdi_dir.glob("*.json"))
        return {path.name: msgspec.json.decode(path.read_bytes()) for path in files}


def bench_settings(directory: Path, **changes: Any) -> Settings:
    """Settings with all directories below one, whose path must be short because it will contain sockets."""
    return Settings(
        **{
            "node_name": NODE,
            "plugins_dir": directory / "plugins",
            "registry_dir": directory / "registry",
            "cdi_dir": directory / "cdi",
            **changes,
        }
    )


@asynccontextmanager
async def bench_server(gates: FeatureGates | None = None) -> AsyncIterator[Transport]:
    """An API server with the node on which drivers run."""
    async with (
        MemoryStore() as store,
        running_api_server(ApiServer(store, clock=SystemClock(), gates=gates or FeatureGates.defaults())) as server,
    ):
        application = ApiApplication(server, Authenticator({}, without_credential=ADMINISTRATOR))
        transport = InProcessTransport(application)
        await AsyncClient(transport).create(Node(metadata=ObjectMeta(name=NODE)))
        yield transport


@asynccontextmanager
async def bench_on(transport: Transport, driver: Driver, settings: Settings) -> AsyncIterator[DriverBench]:
    """The driver on an existing API server: for second instances and restarts."""
    client = AsyncClient(transport)
    plugin = Plugin(driver, settings, transport)
    claims = ClaimMaker(client, driver.name, settings.node_name)
    async with plugin.running() as registration, calling(settings.sockets(driver.name).service) as caller:
        await plugin.published()
        await claims.create_class()
        yield DriverBench(client, plugin, caller, registration, claims, settings)


@asynccontextmanager
async def driver_bench(
    driver: Driver, directory: Path, *, gates: FeatureGates | None = None
) -> AsyncIterator[DriverBench]:
    """The driver on an API server of its own."""
    async with bench_server(gates) as transport, bench_on(transport, driver, bench_settings(directory)) as bench:
        yield bench
