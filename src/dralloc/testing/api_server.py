"""An API server inside this process: the one place that starts and stops it, besides `dralloc apiserver`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from dralloc.server.server import ApiServer


@asynccontextmanager
async def running_api_server(server: ApiServer) -> AsyncIterator[ApiServer]:
    """The server, ready to be asked, and stopped at the end of the block."""
    await server.start()
    try:
        yield server
    finally:
        await server.stop()
