"""Short requests over HTTP/1.1 on kept-alive connections: one request, one complete answer.

A scheduler spends more time in its HTTP client than in deciding, so this supports what such requests need and nothing
else; it takes a third of the time of a general client. Long answers, such as watches, use `http_streams`.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote, urlencode

import httptools
from yarl import URL

from dralloc.client.transport import ClientRequest, ClientResponse

ACCEPT_JSON: Final = "Accept: application/json\r\n"

# The characters that RFC 3986 allows unescaped in a path.
_PATH_SAFE: Final = "/:@!$&'()*+,;=~-._"


class Disconnected(OSError):
    """The connection ended before the answer was complete. `answered`: part of the answer had arrived."""

    def __init__(self, answered: bool) -> None:
        super().__init__("the server closed the connection")
        self.answered = answered


class Exchanges:
    """Connections to one server, one for each concurrent request."""

    def __init__(
        self, base: URL, headers: Mapping[str, str], *, tls: ssl.SSLContext | bool, connect_timeout_s: float
    ) -> None:
        if base.host is None or base.port is None:
            raise OSError(f"{base} is not a server URL")
        self._host, self._port = base.host, base.port
        self._tls = (ssl.create_default_context() if tls is True else tls) if base.scheme == "https" else None
        self._connect_timeout_s = connect_timeout_s
        self._prefix = base.path.rstrip("/")
        fixed = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        self._head = f"Host: {base.authority}\r\n{fixed}"
        self._idle: list[_Connection] = []
        self._open: set[_Connection] = set()
        self._keeps_idle = True

    async def exchange(self, request: ClientRequest, timeout_s: float) -> ClientResponse:
        """Returns the answer to the request. Raises OSError or TimeoutError."""
        message = self._message(request)
        connection = self._take_idle()
        if connection is not None:
            try:
                return await self._exchange_on(connection, message, timeout_s)
            except Disconnected as error:
                # A server may close an idle connection just as it is used again. It is unknown whether the server read
                # the request, so only read requests are sent again.
                if error.answered or request.method != "GET":
                    raise
        return await self._exchange_on(await self._connect(), message, timeout_s)

    async def close(self) -> None:
        """Closes all connections and waits until they are closed. Requests under way close theirs themselves."""
        self._keeps_idle = False
        self._idle.clear()
        closing = tuple(self._open)
        for connection in closing:
            connection.abort()
        for connection in closing:
            await connection.lost.wait()

    def _message(self, request: ClientRequest) -> bytes:
        query = f"?{urlencode(request.query)}" if request.query else ""
        target = f"{self._prefix}{quote(request.path, safe=_PATH_SAFE)}{query}"
        # Servers only use the first of two Accept headers.
        headers = "" if "Accept" in request.headers else ACCEPT_JSON
        headers += "".join(f"{name}: {value}\r\n" for name, value in request.headers.items())
        length = f"Content-Length: {len(request.body)}\r\n" if request.body or request.method != "GET" else ""
        head = f"{request.method} {target} HTTP/1.1\r\n{self._head}{headers}{length}\r\n"
        return head.encode("latin-1") + request.body

    def _take_idle(self) -> _Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed:
                return connection
        return None

    async def _connect(self) -> _Connection:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(self._connect_timeout_s):
            _, connection = await loop.create_connection(
                lambda: _Connection(self._open), self._host, self._port, ssl=self._tls
            )
        if connection.is_closed:
            raise Disconnected(answered=False)
        # Not earlier: a loop may not report the loss of a connection that is abandoned while it connects.
        self._open.add(connection)
        return connection

    async def _exchange_on(self, connection: _Connection, message: bytes, timeout_s: float) -> ClientResponse:
        answer = connection.send(message)
        timer = asyncio.get_running_loop().call_later(timeout_s, connection.time_out)
        try:
            response = await answer
        except BaseException:
            # Cancelled in the middle: the rest of the answer has no reader.
            connection.close()
            raise
        finally:
            timer.cancel()
        if not self._keeps_idle:
            connection.close()
        elif not connection.is_closed:
            self._idle.append(connection)
        return response


class _Connection(asyncio.Protocol):
    """One connection, one request at a time."""

    def __init__(self, open_connections: set[_Connection]) -> None:
        self._open = open_connections
        self._answer: asyncio.Future[ClientResponse] | None = None
        self.is_closed = False
        self.lost = asyncio.Event()

    def send(self, message: bytes) -> asyncio.Future[ClientResponse]:
        self._parser = httptools.HttpResponseParser(self)
        self._pieces: list[bytes] = []
        self._warnings: list[str] = []
        self._is_answered = False
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(message)
        return self._answer

    def time_out(self) -> None:
        self._fail(TimeoutError("timed out"))
        self.close()

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self._transport.close()

    def abort(self) -> None:
        """Closes the connection without the TLS close handshake, which a busy or dead server may delay."""
        self.is_closed = True
        self._transport.abort()

    # --- What the event loop calls ----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self._answer is None:
            # No request is pending.
            self.close()
            return
        self._is_answered = True
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(OSError(f"not an HTTP answer: {error}"))
            self.close()

    def connection_lost(self, error: Exception | None) -> None:
        self.is_closed = True
        self.lost.set()
        self._open.discard(self)
        self._fail(error or Disconnected(self._answer is not None and self._is_answered))

    def _fail(self, error: Exception) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)
        self._answer = None

    # --- What the parser calls --------------------------------------------------------------------------------------

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"warning":
            self._warnings.append(value.decode("latin-1"))

    def on_body(self, piece: bytes) -> None:
        self._pieces.append(piece)

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200:
            return
        if not self._parser.should_keep_alive():
            self.close()
        answer, self._answer = self._answer, None
        if answer is not None and not answer.done():
            answer.set_result(
                ClientResponse(
                    status=status, body=b"".join(self._pieces), warnings=tuple(map(warning_text, self._warnings))
                )
            )


def warning_text(header: str) -> str:
    """Returns the text of `299 - "text"`."""
    _, _, quoted = header.partition(' "')
    return quoted.removesuffix('"').replace('\\"', '"').replace("\\\\", "\\") or header
