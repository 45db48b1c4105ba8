"""The transport over HTTP(S), on aiohttp: the fastest client with the back-pressure that watches need."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import aiohttp
from yarl import URL

from dralloc.client.credentials import Connection
from dralloc.client.transport import Request, Response, Stream, TransportError

READ_BUFFER_BYTES: Final = 1 << 20
CONNECT_TIMEOUT_S: Final = 10.0
ANSWER_TIMEOUT_S: Final = 60.0

# What aiohttp raises when a server cannot be reached or hangs up.
LOST: Final = (aiohttp.ClientError, asyncio.TimeoutError, ssl.SSLError, OSError)


class HttpTransport:
    """Requests over as many connections as there are watches; idle ones are kept and used again."""

    def __init__(self, connection: Connection) -> None:
        self._base = URL(connection.server.rstrip("/"))
        self._connection = connection
        self._session: aiohttp.ClientSession | None = None

    async def send(self, request: Request) -> Response:
        try:
            async with self._start(request, timeout_s=ANSWER_TIMEOUT_S) as response:
                body = await response.read()
        except LOST as error:
            raise TransportError(self._explain(request, error)) from error
        return Response(status=response.status, body=body, warnings=_warnings(response))

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[Stream]:
        try:
            response = await self._start(request, timeout_s=None)
        except LOST as error:
            raise TransportError(self._explain(request, error)) from error
        try:
            yield _HttpStream(response)
        finally:
            response.close()

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _start(self, request: Request, *, timeout_s: float | None) -> aiohttp.client._RequestContextManager:
        url = self._base.with_path(self._base.path.rstrip("/") + request.path)
        return self._open_session().request(
            request.method,
            url.with_query(dict(request.query)) if request.query else url,
            headers=dict(request.headers),
            data=request.body or None,
            timeout=aiohttp.ClientTimeout(total=timeout_s, sock_connect=CONNECT_TIMEOUT_S),
        )

    def _open_session(self) -> aiohttp.ClientSession:
        """Opened at the first request, because a session belongs to the event loop that it is made in."""
        if self._session is None:
            headers = {"Accept": "application/json"}
            if self._connection.token:
                headers["Authorization"] = f"Bearer {self._connection.token}"
            # No limit on connections: every watch holds one, and the default of a hundred would starve requests.
            connector = aiohttp.TCPConnector(limit=0, ssl=self._connection.ssl_context())
            self._session = aiohttp.ClientSession(connector=connector, headers=headers, read_bufsize=READ_BUFFER_BYTES)
        return self._session

    def _explain(self, request: Request, error: BaseException) -> str:
        reason = str(error) or type(error).__name__
        return f"no answer from {self._base} to {request.method} {request.path}: {reason}"


class _HttpStream:
    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response

    @property
    def status(self) -> int:
        return self._response.status

    async def pieces(self) -> AsyncIterator[bytes]:
        try:
            async for piece in self._response.content.iter_any():
                yield piece
        except LOST as error:
            raise TransportError(f"the stream broke: {error or type(error).__name__}") from error


def _warnings(response: aiohttp.ClientResponse) -> tuple[str, ...]:
    return tuple(_warning_text(value) for value in response.headers.getall("Warning", ()))


def _warning_text(header: str) -> str:
    """The text of `299 - "text"`."""
    _, _, quoted = header.partition(' "')
    return quoted.rstrip('"').replace('\\"', '"').replace("\\\\", "\\") or header
