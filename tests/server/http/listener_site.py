"""A listener on loopback, with and without TLS, and clients that speak to it byte by byte."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from dralloc.server.http.listener_limits import ListenerLimits
from dralloc.server.server_process import RunningServer, ServerSettings, run_server
from tests.support.local_api import CLAIMS

# Long enough for a well-behaved client on a busy machine.
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
CUT_OFF_S = 3.0
PATIENT = ListenerLimits()


class Site:
    """A server and the connections that a test opens to it."""

    def __init__(self, server: RunningServer) -> None:
        self.server = server
        self._writers: list[asyncio.StreamWriter] = []

    async def connect(self, tls: ssl.SSLContext | None = None) -> Streams:
        return self._keep(*await asyncio.open_connection("127.0.0.1", self._port, ssl=tls))

    async def connect_reluctant(self, tls: ssl.SSLContext | None = None) -> Streams:
        """A client that takes only a few bytes before it is asked to read. The kernel would take megabytes for it."""
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)
        connection.setblocking(False)
        await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", self._port))
        name = "127.0.0.1" if tls else None
        return self._keep(*await asyncio.open_connection(sock=connection, limit=1024, ssl=tls, server_hostname=name))

    @property
    def _port(self) -> int:
        return int(self.server.url.rsplit(":", 1)[1])

    def _keep(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Streams:
        self._writers.append(writer)
        return reader, writer

    async def is_well(self) -> bool:
        """True if a well-behaved client is served."""
        return (await send(await self.connect(), "GET", CLAIMS))[0] == 200

    async def close(self) -> None:
        for writer in self._writers:
            writer.close()
            with suppress(OSError, ssl.SSLError):
                await writer.wait_closed()


@asynccontextmanager
async def running(directory: Path, limits: ListenerLimits = PATIENT, *, plain: bool = True) -> AsyncIterator[Site]:
    settings = ServerSettings(data_dir=directory, port=0, store="memory://", insecure_http=plain, limits=limits)
    async with asyncio.timeout(60), run_server(settings) as server:
        site = Site(server)
        try:
            yield site
        finally:
            await site.close()


def on_sockets(
    limits: ListenerLimits = PATIENT,
) -> Callable[[Callable[[Site], Coroutine[Any, Any, None]]], Callable[[Path], None]]:
    """A test that gets a server with these limits, over plain http."""

    def decorate(test: Callable[[Site], Coroutine[Any, Any, None]]) -> Callable[[Path], None]:
        async def main(directory: Path) -> None:
            async with running(directory, limits) as site:
                await test(site)

        def wrapper(tmp_path: Path) -> None:
            asyncio.run(main(tmp_path))

        return wrapper

    return decorate


async def send(streams: Streams, method: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, bytes]:
    """Sends one request on a connection; returns the response."""
    reader, writer = streams
    lines = [f"{method} {path} HTTP/1.1", f"content-length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in {"host": "localhost", **headers}.items()]
    writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length:", 1)[1].split(b"\r\n", 1)[0])
    return int(head.split(b" ", 2)[1]), await reader.readexactly(length)


async def closed(reader: asyncio.StreamReader) -> bytes:
    """Everything until the server closes or resets the connection."""
    heard = b""
    with suppress(ConnectionResetError):
        while piece := await reader.read(1 << 16):
            heard += piece
    return heard


async def until_open_watches(streams: Streams, count: int) -> None:
    """Waits until the server has this number of watches; the test's time limit bounds this."""
    while (
        f'apiserver_longrunning_requests{{verb="WATCH"}} {count}\n'.encode()
        not in (await send(streams, "GET", "/metrics"))[1]
    ):
        await asyncio.sleep(0)
