"""The transport over HTTP(S): short requests on connections of our own, long answers on aiohttp.

aiohttp has the back-pressure that watches need; for a short request it takes three times as long as the request itself.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import aiohttp
from yarl import URL

from dralloc.client.credentials import Connection
from dralloc.client.http_exchange import Exchanges
from dralloc.client.transport import Request, Response, Stream, TransportError

READ_BUFFER_BYTES: Final = 1 << 20
CONNECT_TIMEOUT_S: Final = 10.0
ANSWER_TIMEOUT_S: Final = 60.0
USER_AGENT: Final = "dralloc"

# What is raised when a server cannot be reached or hangs up.
LOST: Final = (aiohttp.ClientError, asyncio.TimeoutError, ssl.SSLError, OSError)


class HttpTransport:
    """Requests over as many connections as there are watches; idle ones are kept and used again."""

    def __init__(self, connection: Connection) -> None:
        self._base = URL(connection.server.rstrip("/"))
        self._connection = connection
        self._headers = {"User-Agent": USER_AGENT}
        if connection.token:
            self._headers["Authorization"] = f"Bearer {connection.token}"
        # Both are opened at the first request, because connections belong to the event loop that they are made in.
        self._session: aiohttp.ClientSession | None = None
        self._exchanges: Exchanges | None = None

    async def send(self, request: Request) -> Response:
        try:
            if self._exchanges is None:
                tls = self._connection.ssl_context()
                self._exchanges = Exchanges(self._base, self._headers, tls=tls, connect_timeout_s=CONNECT_TIMEOUT_S)
            return await self._exchanges.exchange(request, ANSWER_TIMEOUT_S)
        except LOST as error:
            raise TransportError(self._explain(request, error)) from error

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[Stream]:
        try:
            response = await self._start(request)
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
        if self._exchanges is not None:
            await self._exchanges.close()
            self._exchanges = None

    def _start(self, request: Request) -> aiohttp.client._RequestContextManager:
        url = self._base.with_path(self._base.path.rstrip("/") + request.path)
        return self._open_session().request(
            request.method,
            url.with_query(dict(request.query)) if request.query else url,
            headers=dict(request.headers),
            data=request.body or None,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S),
        )

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            # No limit on connections: every watch holds one, and the default of a hundred would starve requests.
            connector = aiohttp.TCPConnector(limit=0, ssl=self._connection.ssl_context())
            self._session = aiohttp.ClientSession(
                connector=connector,
                headers={"Accept": "application/json", **self._headers},
                read_bufsize=READ_BUFFER_BYTES,
            )
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
