"""The transport over HTTP(S): short requests on connections of our own, long answers on aiohttp.

aiohttp has the back-pressure that watches need; for a short request it takes three times as long as the request itself.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import aiohttp
from yarl import URL

from dralloc.client.credentials import BadKubeconfig, Connection
from dralloc.client.http_exchange import Exchanges
from dralloc.client.transport import Request, Response, Stream, TransportError

READ_BUFFER_BYTES: Final = 1 << 20
CONNECT_TIMEOUT_S: Final = 10.0
ANSWER_TIMEOUT_S: Final = 60.0
USER_AGENT: Final = "dralloc"
UNAUTHORIZED: Final = 401

_logger = logging.getLogger(__name__)

# What is raised when a server cannot be reached or hangs up.
LOST: Final = (aiohttp.ClientError, asyncio.TimeoutError, ssl.SSLError, OSError)


class HttpTransport:
    """Requests over as many connections as there are watches; idle ones are kept and used again."""

    def __init__(self, connection: Connection) -> None:
        self._base = URL(connection.server.rstrip("/"))
        self._connection = connection
        # Both are opened at the first request, because connections belong to the event loop that they are made in.
        self._session: aiohttp.ClientSession | None = None
        self._exchanges: Exchanges | None = None
        # Those with earlier credentials: requests may be under way on them.
        self._retired: list[aiohttp.ClientSession | Exchanges] = []
        self._renewing = asyncio.Lock()

    async def send(self, request: Request) -> Response:
        used = self._connection
        response = await self._exchange(request)
        if response.status == UNAUTHORIZED and await self._renew(used):
            return await self._exchange(request)
        return response

    async def _exchange(self, request: Request) -> Response:
        try:
            if self._exchanges is None:
                tls = self._connection.ssl_context()
                self._exchanges = Exchanges(self._base, self._headers(), tls=tls, connect_timeout_s=CONNECT_TIMEOUT_S)
            return await self._exchanges.exchange(request, ANSWER_TIMEOUT_S)
        except LOST as error:
            raise TransportError(self._explain(request, error)) from error

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[Stream]:
        used = self._connection
        response = await self._start(request)
        if response.status == UNAUTHORIZED and await self._renew(used):
            response.close()
            response = await self._start(request)
        try:
            yield _HttpStream(response)
        finally:
            response.close()

    async def close(self) -> None:
        self._retire()
        while self._retired:
            await self._retired.pop().close()

    def _retire(self) -> None:
        self._retired += [opened for opened in (self._session, self._exchanges) if opened is not None]
        self._session = self._exchanges = None

    async def _renew(self, used: Connection) -> bool:
        """Whether there are other credentials by now than those that the server does not take any more."""
        async with self._renewing:
            if self._connection is used and used.renew is not None:
                try:
                    fresh = await asyncio.to_thread(used.renew)
                except (BadKubeconfig, OSError) as error:
                    _logger.warning(
                        "the server does not take our credentials any more, and there are no new ones: %s", error
                    )
                    return False
                if fresh != used:
                    self._retire()
                    self._connection = fresh
            return self._connection is not used

    async def _start(self, request: Request) -> aiohttp.ClientResponse:
        url = self._base.with_path(self._base.path.rstrip("/") + request.path)
        try:
            return await self._open_session().request(
                request.method,
                url.with_query(dict(request.query)) if request.query else url,
                headers=dict(request.headers),
                data=request.body or None,
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S),
            )
        except LOST as error:
            raise TransportError(self._explain(request, error)) from error

    def _headers(self) -> dict[str, str]:
        token = self._connection.token
        return {"User-Agent": USER_AGENT, **({"Authorization": f"Bearer {token}"} if token else {})}

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            # No limit on connections: every watch holds one, and the default of a hundred would starve requests.
            connector = aiohttp.TCPConnector(limit=0, ssl=self._connection.ssl_context())
            self._session = aiohttp.ClientSession(
                connector=connector,
                headers={"Accept": "application/json", **self._headers()},
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
