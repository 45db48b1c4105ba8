"""A TCP proxy that fails as networks do: it loses answers, delays requests and resets connections."""

from __future__ import annotations

import asyncio
import socket
import struct
from types import TracebackType
from typing import Self

_CHUNK_BYTES = 1 << 16
# With this SO_LINGER, closing a socket resets its connection.
_RESET = struct.pack("ii", 1, 0)


class TcpProxy:
    """Forwards every connection to one endpoint. A context manager.

    A fault starts with the first request bytes that contain a marker, on their connection, and `struck` is then set.
    """

    def __init__(self, endpoint: str) -> None:
        host, _, port = endpoint.rpartition(":")
        self._target = (host, int(port))
        self._connections: set[_Connection] = set()
        self._loses_after: bytes | None = None
        self._delays_at: bytes | None = None
        self.struck = asyncio.Event()

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def lose_answers_after(self, marker: bytes) -> None:
        """Forward the request with the marker, and nothing that the server sends afterwards."""
        self._loses_after = marker
        self.struck.clear()

    def delay_requests_at(self, marker: bytes) -> None:
        """Keep the request with the marker and later ones until `deliver`."""
        self._delays_at = marker
        self.struck.clear()

    def reset_clients(self) -> None:
        """Reset the connections of clients. Those to the server stay, so that delayed requests can still be delivered."""
        for connection in self._connections:
            _reset(connection.client)

    async def deliver(self) -> None:
        """Send all delayed requests, and return when the server has answered."""
        for connection in self._connections:
            if connection.delayed:
                connection.answered.clear()
                connection.server.write(b"".join(connection.delayed))
                connection.delayed.clear()
                connection.delays = False
                await connection.answered.wait()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for connection in list(self._connections):
            _reset(connection.client)
            _reset(connection.server)
        await asyncio.gather(*(connection.ended.wait() for connection in list(self._connections)))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers, server = await asyncio.open_connection(*self._target)
        connection = _Connection(writer, server)
        self._connections.add(connection)
        forwarding = asyncio.create_task(self._forward_answers(answers, connection))
        try:
            await self._forward_requests(reader, connection)
            if not connection.delayed:
                _reset(server)
            await forwarding
        finally:
            _reset(server)
            _reset(writer)
            forwarding.cancel()
            self._connections.discard(connection)
            connection.ended.set()

    async def _forward_requests(self, reader: asyncio.StreamReader, connection: _Connection) -> None:
        try:
            while chunk := await reader.read(_CHUNK_BYTES):
                if self._delays_at is not None and self._delays_at in chunk:
                    self._delays_at = None
                    connection.delays = True
                    self.struck.set()
                if connection.delays:
                    connection.delayed.append(chunk)
                    continue
                if self._loses_after is not None and self._loses_after in chunk:
                    self._loses_after = None
                    connection.loses_answers = True
                    self.struck.set()
                connection.server.write(chunk)
        except OSError:
            return

    async def _forward_answers(self, reader: asyncio.StreamReader, connection: _Connection) -> None:
        try:
            while chunk := await reader.read(_CHUNK_BYTES):
                connection.answered.set()
                if not connection.loses_answers and not connection.client.is_closing():
                    connection.client.write(chunk)
        except OSError:
            pass
        _reset(connection.client)


class _Connection:
    def __init__(self, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self.client = client
        self.server = server
        self.delays = False
        self.delayed: list[bytes] = []
        self.loses_answers = False
        self.answered = asyncio.Event()
        self.ended = asyncio.Event()


def _reset(writer: asyncio.StreamWriter) -> None:
    if not writer.is_closing():
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        writer.transport.abort()
