"""One request of a connection and its response.

A response without a stream is one write: its head and body together. A stream is sent in chunks; to clients of HTTP/1.0, which know no
chunks, as it is, up to the end of the connection.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import deque
from collections.abc import Callable
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from typing import Final, Protocol

from dralloc.primitives.errors import BadRequest
from dralloc.server.access.users import User
from dralloc.server.http.messages import HttpResponse
from dralloc.server.http.request_parser import RequestHead

# A body that is not read yet; the connection is not read any more meanwhile.
BODY_WAITING_MAX: Final = 64 * 1024
# Longer bodies are not copied to be sent with their head.
JOINED_BYTES_MAX: Final = 64 * 1024

_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_CLOSE: Final = b"connection: close\r\n"
_CHUNKED: Final = b"transfer-encoding: chunked\r\n"
_LAST_CHUNK: Final = b"0\r\n\r\n"
# Answers depend on who asks, so no cache may keep them for others, and browsers must not guess their type.
_PROTECTION: Final = b"cache-control: no-cache, private\r\nx-content-type-options: nosniff\r\n"
_WITHOUT_BODY: Final = frozenset({204, 304})
_BAD_NAME: Final = re.compile(rb'[\x00-\x20\x7f()<>@,;:\\\[\]={}"]')
_BAD_VALUE: Final = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")


class ClientConnection(Protocol):
    """The connection of a client (`limited_connection`)."""

    is_gone: bool

    @property
    def is_paused(self) -> bool:
        """True while the client does not read."""
        ...

    async def writable(self) -> None:
        """Returns when the client reads, or is gone."""
        ...

    def write(self, piece: bytes) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def listen(self, *, on_writable: Callable[[], None] | None, on_gone: Callable[[], None] | None) -> None: ...

    def end_exchange(self, exchange: Exchange) -> None:
        """The response is complete."""
        ...

    def close(self) -> None: ...


class Exchange:
    """A request whose body may still arrive, and what is sent in response. Header names are lower case."""

    __slots__ = (
        "_arrived",
        "_chunks",
        "_expects_continue",
        "_has_arrived",
        "_is_old",
        "_keeps_alive",
        "_waiter",
        "_waiting_bytes",
        "connection",
        "headers",
        "is_over",
        "is_started",
        "method",
        "path",
        "query",
        "task",
        "user",
    )

    def __init__(self, connection: ClientConnection, head: RequestHead, *, user: User | None = None) -> None:
        self.connection = connection
        self.method = head.method
        self.path = head.path
        self.query = head.query
        self.headers = head.headers
        # That of the client's certificate.
        self.user = user
        self.task: asyncio.Task[None] | None = None
        # The response has begun; it is complete, or no client waits for it.
        self.is_started = self.is_over = False
        self._keeps_alive = head.keeps_alive
        self._is_old = head.is_old
        self._expects_continue = head.expects_continue
        self._arrived: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._has_arrived = False
        self._waiter: asyncio.Future[None] | None = None
        self._chunks = False

    # --- the request's body -----------------------------------------------------------------------------------

    def feed(self, piece: bytes) -> None:
        """A piece of the body has arrived."""
        if not self.is_over:
            self._arrived.append(piece)
            self._waiting_bytes += len(piece)
            if self._waiting_bytes > BODY_WAITING_MAX:
                self.connection.pause_reading()
            self._wake()

    @property
    def has_arrived(self) -> bool:
        """True when all of the body is here."""
        return self._has_arrived

    def feed_end(self) -> None:
        """All of the body has arrived."""
        self._has_arrived = True
        self._wake()

    async def receive(self) -> tuple[bytes, bool]:
        """The next piece of the body, and whether more may follow. Raises `BadRequest` if the client leaves before."""
        if self._expects_continue and not self._has_arrived and not self.is_started and not self.is_over:
            self._expects_continue = False
            self.connection.write(_CONTINUE)
        while not self._arrived and not self._has_arrived:
            if self.is_over or self.connection.is_gone:
                raise BadRequest("the client disconnected before the end of the body")
            self.connection.resume_reading()
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        piece = self._arrived[0] if len(self._arrived) == 1 else b"".join(self._arrived)
        self._arrived.clear()
        self._waiting_bytes = 0
        return piece, not self._has_arrived

    def disconnect(self) -> None:
        """The client is gone: nothing more is received or sent."""
        self.is_over = True
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # --- the response -----------------------------------------------------------------------------------------

    @property
    def is_paused(self) -> bool:
        return self.connection.is_paused

    def stop_keeping_alive(self) -> None:
        """Close the connection after this response, if its head is not sent yet."""
        self._keeps_alive = False

    async def respond(self, response: HttpResponse, *, closes: bool = False) -> None:
        """Send a whole response; with `closes`, the connection ends after it."""
        await self.respond_early(response, closes=closes)
        self.end()

    async def respond_early(self, response: HttpResponse, *, closes: bool = True) -> None:
        """Send a whole response, but go on to receive the request."""
        if not await self._may_write():
            return
        self._keeps_alive = self._keeps_alive and not closes
        length = b"content-length: %d\r\n" % len(response.body)
        head = _head(response, length, keeps_alive=self._keeps_alive)
        self.is_started = True
        body = response.body if self.method != "HEAD" else b""
        if len(body) <= JOINED_BYTES_MAX:
            self.connection.write(head + body)
        else:
            self.connection.write(head)
            self.connection.write(body)

    async def begin(self, response: HttpResponse) -> None:
        """Send the head of a stream at once: without it, a watch without events looks like a server that hangs."""
        if not await self._may_write():
            return
        has_body = self.method != "HEAD" and response.status not in _WITHOUT_BODY
        self._chunks = has_body and not self._is_old
        self._keeps_alive = self._keeps_alive and (self._chunks or not has_body)
        head = _head(response, _CHUNKED if self._chunks else b"", keeps_alive=self._keeps_alive)
        self.is_started = True
        self.connection.write(head)

    async def send(self, piece: bytes) -> None:
        """Send a piece of a stream, when the client has read those before."""
        if await self._may_write():
            self.push(piece)

    def push(self, piece: bytes) -> None:
        """Send a piece of a stream, without waiting for the client."""
        # An empty chunk would be the last one.
        if piece and not self.is_over and self.method != "HEAD":
            self.connection.write(b"%x\r\n%b\r\n" % (len(piece), piece) if self._chunks else piece)

    def listen(self, *, on_writable: Callable[[], None] | None, on_gone: Callable[[], None] | None) -> None:
        self.connection.listen(on_writable=on_writable, on_gone=on_gone)

    def end(self) -> None:
        """The response is complete."""
        if self.is_over:
            return
        if self._chunks:
            self.connection.write(_LAST_CHUNK)
        self.is_over = True
        self._wake()
        if not self._keeps_alive:
            self.connection.close()
        self.connection.end_exchange(self)

    async def _may_write(self) -> bool:
        """Wait until the client has read what was sent; False if no client waits for more."""
        if self.connection.is_paused and not self.is_over:
            await self.connection.writable()
        return not self.is_over


def _head(response: HttpResponse, framing: bytes, *, keeps_alive: bool) -> bytes:
    lines = _first_lines(response.status, response.content_type)
    connection = b"" if keeps_alive else _CLOSE
    if not response.headers:
        return b"%bdate: %b\r\n%b%b%b\r\n" % (lines, _date(int(time.time())), framing, _PROTECTION, connection)
    protection = _PROTECTION
    more: list[bytes] = []
    for name, value in response.headers:
        if _BAD_NAME.search(name) or _BAD_VALUE.search(value):
            raise ValueError(f"header {name!r} cannot be sent")
        if name == b"cache-control":
            # Pages have headers of their own.
            protection = b""
        more.append(b"%b: %b\r\n" % (name, value))
    date = _date(int(time.time()))
    return b"%bdate: %b\r\n%b%b%b%b\r\n" % (lines, date, b"".join(more), framing, protection, connection)


@lru_cache(maxsize=256)
def _first_lines(status: int, content_type: str) -> bytes:
    return b"HTTP/1.1 %d %b\r\ncontent-type: %b\r\n" % (
        status,
        HTTPStatus(status).phrase.encode(),
        content_type.encode("latin-1"),
    )


@lru_cache(maxsize=1)
def _date(second: int) -> bytes:
    return formatdate(second, usegmt=True).encode()
