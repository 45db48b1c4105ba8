"""A component as a process: runs until it is told to end, alone or elected among its like, and shows how it is doing."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Protocol

from aiohttp import web

from dralloc.api.coordination_v1 import Lease
from dralloc.client.client import AsyncClient
from dralloc.client.leader_election import LeaderElection
from dralloc.client.resource import ObjectKey
from dralloc.client.resources import resource_for
from dralloc.primitives.clock import Clock


class Component(Protocol):
    """What can be run: `lease` is what its instances compete for."""

    name: str
    client: AsyncClient
    clock: Clock
    lease: ObjectKey

    async def run(self) -> None: ...

    def metrics(self) -> str: ...


async def run_until_told(
    component: Component, *, elect: bool, metrics_port: int | None, say: Callable[[str], None]
) -> None:
    """Run until a signal says to end."""
    ending = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ending.set)
    async with component.client, _showing(component, metrics_port) as url:
        if url is not None:
            say(f"metrics on {url}/metrics")
        working = asyncio.ensure_future(_elected(component) if elect else component.run())
        told = asyncio.ensure_future(ending.wait())
        say(f"{component.name} is running")
        await asyncio.wait((working, told), return_when=asyncio.FIRST_COMPLETED)
        told.cancel()
        if working.done():
            # It never ends by itself: this raises what went wrong.
            await working
        say(f"{component.name} is ending")
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)


async def _elected(component: Component) -> None:
    identity = f"{socket.gethostname()}_{os.getpid()}_{uuid.uuid4()}"
    election = LeaderElection(
        component.client.calls, resource_for(Lease), component.lease, identity=identity, clock=component.clock
    )
    await election.run(component.run)


@asynccontextmanager
async def _showing(component: Component, port: int | None) -> AsyncIterator[str | None]:
    """Serve metrics and health on loopback; yields the URL."""
    if port is None:
        yield None
        return

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(text=component.metrics(), content_type="text/plain")

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok")

    application = web.Application()
    application.add_routes([web.get("/metrics", metrics), web.get("/healthz", healthz), web.get("/readyz", healthz)])
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", port)
        await site.start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
