"""A real API server for a test: in this process, or behind a socket on loopback, empty and gone afterwards."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from dralloc.apiserver.http.application import ApiApplication
from dralloc.apiserver.http.authentication import ADMINISTRATOR, Authenticator
from dralloc.apiserver.http.listener import ListenAddress, listen
from dralloc.apiserver.server import ApiServer
from dralloc.client.async_client import AsyncClient, connect_async
from dralloc.client.in_process_transport import InProcessTransport
from dralloc.primitives.clock import Clock
from dralloc.primitives.features import FeatureGates
from dralloc.store.interface import HistoryLimits
from dralloc.store.memory import MemoryStore
from dralloc.system_clock import SystemClock

TOKEN = "a-token-for-tests"


@asynccontextmanager
async def api_application(
    *,
    clock: Clock | None = None,
    gates: FeatureGates | None = None,
    limits: HistoryLimits | None = None,
    guards_devices: bool = True,
) -> AsyncIterator[ApiApplication]:
    """A server over a store in memory, with one user: the administrator, by `TOKEN`."""
    async with MemoryStore(limits=limits) as store:
        server = ApiServer(
            store, clock=clock or SystemClock(), gates=gates or FeatureGates.defaults(), guards_devices=guards_devices
        )
        await server.start()
        try:
            yield ApiApplication(server, Authenticator({TOKEN: ADMINISTRATOR}))
        finally:
            await server.stop()


@asynccontextmanager
async def api_in_process(
    *,
    clock: Clock | None = None,
    gates: FeatureGates | None = None,
    limits: HistoryLimits | None = None,
    guards_devices: bool = True,
) -> AsyncIterator[AsyncClient]:
    """A client of a server in this process."""
    async with api_application(clock=clock, gates=gates, limits=limits, guards_devices=guards_devices) as application:
        yield AsyncClient(InProcessTransport(application, token=TOKEN))


@asynccontextmanager
async def api_over_http(
    *,
    clock: Clock | None = None,
    gates: FeatureGates | None = None,
    limits: HistoryLimits | None = None,
    guards_devices: bool = True,
) -> AsyncIterator[AsyncClient]:
    """A client of a server behind a socket on loopback."""
    async with (
        api_application(clock=clock, gates=gates, limits=limits, guards_devices=guards_devices) as application,
        listen(application, ListenAddress()) as url,
        connect_async(url, token=TOKEN) as client,
    ):
        yield client
