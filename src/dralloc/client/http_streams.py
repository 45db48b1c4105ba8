"""Long answers over HTTP, such as watches, on aiohttp, which provides back-pressure for slow readers."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Mapping
from typing import Final

import aiohttp
from yarl import URL

from dralloc.client.http_exchange import Disconnected
from dralloc.client.transport import ClientRequest, TransportError

READ_BUFFER_BYTES: Final = 1 << 20


class Streams:
    """Connections to one server, one for each open stream."""

    def __init__(
        self, base: URL, headers: Mapping[str, str], *, tls: ssl.SSLContext | bool, connect_timeout_s: float
    ) -> None:
        self._base = base
        # No limit on connections: every watch holds one, and the default limit of 100 would starve requests.
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=tls),
            headers={"Accept": "application/json", **headers},
            read_bufsize=READ_BUFFER_BYTES,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=connect_timeout_s),
        )

    async def start(self, request: ClientRequest) -> HttpStream:
        """Starts reading an answer. Raises OSError if the server cannot be reached or disconnects."""
        url = self._base.with_path(self._base.path.rstrip("/") + request.path)
        try:
            response = await self._session.request(
                request.method,
                url.with_query(dict(request.query)) if request.query else url,
                headers=dict(request.headers),
                data=request.body or None,
            )
        except aiohttp.ServerDisconnectedError as error:
            raise Disconnected(answered=False) from error
        except aiohttp.ClientError as error:
            raise OSError(_text_of(error)) from error
        return HttpStream(response)

    async def close(self) -> None:
        await self._session.close()


class HttpStream:
    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response

    @property
    def status(self) -> int:
        return self._response.status

    async def pieces(self) -> AsyncIterator[bytes]:
        try:
            async for piece in self._response.content.iter_any():
                yield piece
        except (aiohttp.ClientError, OSError) as error:
            raise TransportError(f"the stream broke: {_text_of(error)}") from error

    def close(self) -> None:
        """Disconnects without the TLS close handshake, which would keep the connection open for its timeout."""
        connection = self._response.connection
        if connection is not None and connection.transport is not None:
            connection.transport.abort()
        self._response.close()


def _text_of(error: Exception) -> str:
    return str(error) or type(error).__name__
