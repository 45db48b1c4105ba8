"""Requests to one server over HTTP on aiohttp: short ones with a whole answer, and streams, with back-pressure for slow readers."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Mapping
from io import BytesIO
from typing import Final
from urllib.parse import quote, urlencode

import aiohttp
from yarl import URL

from dralloc.client.transport import ClientRequest, ClientResponse, TransportError

READ_BUFFER_BYTES: Final = 1 << 20
# aiohttp warns of larger bodies that are written at once.
WHOLE_BODY_BYTES_MAX: Final = 1 << 20

# The characters that RFC 3986 allows unescaped in a path.
_PATH_SAFE: Final = "/:@!$&'()*+,;=~-._"


class Disconnected(OSError):
    """The server closed the connection before it began to answer."""

    def __init__(self) -> None:
        super().__init__("the server closed the connection")


class HttpSession:
    """Connections to one server, one for each concurrent request and each open stream."""

    def __init__(
        self,
        base: URL,
        headers: Mapping[str, str],
        *,
        tls: ssl.SSLContext | bool,
        connect_timeout_s: float,
        answer_timeout_s: float,
    ) -> None:
        if base.host is None or base.port is None:
            raise OSError(f"{base} is not a server URL")
        self._base = str(base).rstrip("/")

        def session(timeout_s: float | None, *, reuses: bool) -> aiohttp.ClientSession:
            opened = aiohttp.ClientSession(
                # No limit on connections: every watch holds one, and the default limit of 100 would starve requests.
                connector=aiohttp.TCPConnector(limit=0, ssl=tls, force_close=not reuses),
                headers={"Accept": "application/json", **headers},
                skip_auto_headers=("Accept-Encoding", "Content-Type"),
                cookie_jar=aiohttp.DummyCookieJar(),
                read_bufsize=READ_BUFFER_BYTES,
                timeout=aiohttp.ClientTimeout(total=timeout_s, sock_connect=connect_timeout_s),
            )
            # aiohttp sends PUT and DELETE again, too, when a server hangs up that may have done what they ask for. No public option says no.
            opened._retry_connection = False
            return opened

        self._short = session(answer_timeout_s, reuses=True)
        # On connections of their own: a stream has no time-out, and would wait for ever on an idle connection whose server is gone.
        self._endless = session(None, reuses=False)

    async def exchange(self, request: ClientRequest) -> ClientResponse:
        """Returns the answer to the request. Raises OSError if the server cannot be reached, disconnects or is too slow."""
        try:
            return await self._exchange(request)
        except Disconnected:
            # A server may close an idle connection just as it is used again. It is unknown whether the server read the request, so only
            # reads are sent again.
            if request.method != "GET":
                raise
        return await self._exchange(request)

    async def start(self, request: ClientRequest) -> HttpStream:
        """Starts reading an answer. Raises OSError if the server cannot be reached or disconnects."""
        return HttpStream(await self._send(request, self._endless))

    async def close(self) -> None:
        await self._short.close()
        await self._endless.close()

    async def _exchange(self, request: ClientRequest) -> ClientResponse:
        async with await self._send(request, self._short) as response:
            try:
                body = await response.read()
            except aiohttp.ClientError as error:
                raise OSError(_text_of(error)) from error
        warnings = tuple(map(warning_text, response.headers.getall("Warning", ())))
        return ClientResponse(status=response.status, body=body, warnings=warnings)

    async def _send(self, request: ClientRequest, session: aiohttp.ClientSession) -> aiohttp.ClientResponse:
        query = f"?{urlencode(request.query)}" if request.query else ""
        try:
            return await session.request(
                request.method,
                URL(f"{self._base}{quote(request.path, safe=_PATH_SAFE)}{query}", encoded=True),
                headers=request.headers,
                data=_payload(request.body),
                allow_redirects=False,
            )
        except aiohttp.ClientConnectorCertificateError as error:
            # What the connection failed with: it says why, and callers know its type.
            raise error.certificate_error from None
        except aiohttp.ClientConnectorError as error:
            raise error.os_error from None
        except aiohttp.ServerDisconnectedError as error:
            raise Disconnected from error
        except aiohttp.ClientError as error:
            raise OSError(_text_of(error)) from error


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


def _payload(body: bytes) -> bytes | BytesIO | None:
    """The body as aiohttp takes it: a large one in pieces, between which other requests go on."""
    return BytesIO(body) if len(body) > WHOLE_BODY_BYTES_MAX else body or None


def warning_text(header: str) -> str:
    """Returns the text of `299 - "text"`."""
    _, _, quoted = header.partition(' "')
    return quoted.removesuffix('"').replace('\\"', '"').replace("\\\\", "\\") or header


def _text_of(error: Exception) -> str:
    return str(error) or type(error).__name__
