"""Stands between a driver and the API server, to be slow or away. It copies bytes, so TLS is between the two ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

CHUNK_BYTES: Final = 65536


@dataclass(slots=True)
class ApiProxy:
    """Listens on a loopback port, the same one after it was away."""

    host: str
    port: int
    listens_at: int = 0
    delay_s: float = 0.0
    _server: asyncio.Server | None = None
    _connections: set[asyncio.Task[None]] = field(default_factory=set)

    @classmethod
    def to(cls, url: str) -> ApiProxy:
        address = urlsplit(url)
        assert address.hostname is not None, "an address of a server"
        assert address.port is not None, "an address of a server"
        return cls(address.hostname, address.port)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        await self._listen()
        try:
            yield
        finally:
            await self._close()

    @asynccontextmanager
    async def away(self) -> AsyncIterator[None]:
        """The server cannot be reached inside the block, and open connections are broken."""
        await self._close()
        try:
            yield
        finally:
            await self._listen()

    @asynccontextmanager
    async def slow(self, delay_s: float) -> AsyncIterator[None]:
        """Requests arrive at the server with a delay inside the block."""
        self.delay_s = delay_s
        try:
            yield
        finally:
            self.delay_s = 0.0

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.listens_at)
        self.listens_at = self._server.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        if self._server is not None:
            self._server.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None, "a connection has a task"
        self._connections.add(task)
        try:
            with suppress(OSError, asyncio.CancelledError):
                await self._connect(reader, writer)
        finally:
            self._connections.discard(task)
            writer.transport.abort()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(self.host, self.port)
        try:
            copies = [
                asyncio.create_task(self._copy(reader, far_writer, is_request=True)),
                asyncio.create_task(self._copy(far_reader, writer, is_request=False)),
            ]
            try:
                await asyncio.wait(copies, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for copy in copies:
                    copy.cancel()
                await asyncio.gather(*copies, return_exceptions=True)
        finally:
            far_writer.transport.abort()

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_request: bool) -> None:
        while chunk := await reader.read(CHUNK_BYTES):
            if is_request and self.delay_s:
                await asyncio.sleep(self.delay_s)
            writer.write(chunk)
            await writer.drain()
