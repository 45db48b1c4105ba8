"""An API server for a test: in this process or behind a socket on loopback, over a store in memory, gone afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from typing import Any

from dralloc.client.async_client import AsyncClient, connect_async
from dralloc.client.in_process_transport import InProcessTransport
from dralloc.primitives.clock import Clock
from dralloc.primitives.features import FeatureGates
from dralloc.server.access.authorizer import Authorizer
from dralloc.server.access.users import ADMINISTRATOR, User
from dralloc.server.http.application import ApiApplication
from dralloc.server.http.authentication import Authenticator
from dralloc.server.http.listener import ListenAddress, listen
from dralloc.server.server import ApiServer, ServerExtension
from dralloc.server.store.interface import HistoryLimits, Store
from dralloc.server.store.memory import MemoryStore
from dralloc.system_clock import SystemClock
from dralloc.testing.api_server import running_api_server
from dralloc.testing.virtual_time import VirtualClock, VirtualTimeLoop

TOKEN = "a-token-for-tests"


def loop_clock() -> Clock:
    """The clock of the running loop: virtual in `run_virtual`, otherwise the system's."""
    loop = asyncio.get_running_loop()
    return VirtualClock(loop) if isinstance(loop, VirtualTimeLoop) else SystemClock()


@asynccontextmanager
async def api_server(
    *,
    clock: Clock | None = None,
    gates: FeatureGates | None = None,
    limits: HistoryLimits | None = None,
    store: Store | None = None,
    guards_devices: bool = True,
    authorizer: Authorizer | None = None,
    enforces_roles: bool = False,
    extensions: Sequence[ServerExtension] = (),
) -> AsyncIterator[ApiServer]:
    """A server without users, in the time of the running loop unless another clock is given."""
    async with (
        nullcontext(store) if store is not None else MemoryStore(limits=limits) as kept,
        running_api_server(
            ApiServer(
                kept,
                clock=clock or loop_clock(),
                gates=gates or FeatureGates.defaults(),
                guards_devices=guards_devices,
                authorizer=authorizer,
                enforces_roles=enforces_roles,
                extensions=extensions,
            )
        ) as server,
    ):
        yield server


@asynccontextmanager
async def api_application(users: Mapping[str, User] | None = None, **settings: Any) -> AsyncIterator[ApiApplication]:
    """A server as `api_server` makes it, for the administrator, by `TOKEN`, and other users by token."""
    async with api_server(**settings) as server:
        yield ApiApplication(server, Authenticator({TOKEN: ADMINISTRATOR, **(users or {})}))


@asynccontextmanager
async def api_in_process(**settings: Any) -> AsyncIterator[AsyncClient]:
    """A client of a server in this process."""
    async with api_application(**settings) as application:
        yield AsyncClient(InProcessTransport(application, token=TOKEN))


@asynccontextmanager
async def api_over_http(**settings: Any) -> AsyncIterator[AsyncClient]:
    """A client of a server behind a socket on loopback."""
    async with (
        api_application(**settings) as application,
        listen(application, ListenAddress()) as url,
        connect_async(url, token=TOKEN) as client,
    ):
        yield client
