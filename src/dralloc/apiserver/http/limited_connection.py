"""The connection of one client: HTTP/1.1 with bounds on heads, pipelining and the time for sending and reading."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import socket
import ssl
import time
from collections import deque
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote

import httptools

from dralloc.access.users import User, authenticated
from dralloc.apiserver.credentials.tls_context import is_issued_by
from dralloc.apiserver.http.connection_gate import ConnectionGate
from dralloc.apiserver.http.exchange import Exchange
from dralloc.apiserver.http.listener_limits import ListenerLimits
from dralloc.apiserver.http.messages import TEXT, HttpResponse
from dralloc.apiserver.http.stalled_readers import StalledReaders

# Requests that a client may send on one connection before it reads the response to the first.
PIPELINED_MAX: Final = 64
# A connection without a request is closed after this time.
KEEP_ALIVE_S: Final = 120

_METHODS: Final = tuple(f"{name} ".encode() for name in ("GET", "PUT", "POST", "PATCH", "DELETE", "HEAD", "OPTIONS"))
_METHOD: Final = re.compile(rb"([A-Z]{1,32}) /")
# Known to the parser, and without a meaning for it or for the API.
_STAND_IN: Final = b"SOURCE"
_HEAD_TOO_LARGE: Final = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
)
_NO_REQUEST: Final = (
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\nconnection: close\r\ncontent-length: 31\r\n\r\n"
    b"Invalid HTTP request received.\n"
)
_INTERNAL_ERROR: Final = HttpResponse(500, b"Internal Server Error\n", TEXT)

_logger = logging.getLogger(__name__)


class ClientSocket:
    """An accepted socket; its transport owns it once there is one."""

    __slots__ = ("is_closed", "socket")

    def __init__(self, accepted: socket.socket) -> None:
        self.socket = accepted
        self.is_closed = False

    def close_now(self) -> None:
        # The transport reads the end of the stream and closes the file.
        self.is_closed = True
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)


@dataclass(slots=True, eq=False)
class ConnectionHost:
    """What the connections of a listener share."""

    serve: Callable[[Exchange], Awaitable[None]]
    gate: ConnectionGate
    stalled: StalledReaders
    limits: ListenerLimits
    open: set[LimitedConnection] = field(default_factory=set)
    # Requests that are answered; they may outlive their connection.
    tasks: set[asyncio.Task[None]] = field(default_factory=set)


class _UpgradedConnection(asyncio.StreamReaderProtocol):
    """The rest of a connection whose request was an upgrade."""

    def __init__(self, reader: asyncio.StreamReader, request: LimitedConnection) -> None:
        super().__init__(reader)
        self._request = request

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._request.connection_lost(exc)


class LimitedConnection(asyncio.Protocol):
    """One connection, with bounds on the size of request heads and on the time for sending and reading.

    Requests are answered one after the other, in their order. A task begins when what has arrived is parsed, so that most requests are
    complete then.
    """

    _transport: asyncio.Transport

    def __init__(self, host: ConnectionHost, connection: ClientSocket) -> None:
        self._host = host
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        # Answer the first of several requests even if it closes the connection.
        self._parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self.client: tuple[str, int] | None = None
        self.is_gone = False
        # The request that arrives, the one that is answered, and those that wait for their answer.
        self._arriving: Exchange | None = None
        self._answered: Exchange | None = None
        self._pipeline: deque[Exchange] = deque()
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._expects_continue = False
        self._head_bytes = 0
        self._in_head = True
        self._between_requests = True
        # A method that the parser does not know.
        self._unknown_method = ""
        self._idle_since_s = 0.0
        self._keep_alive: asyncio.TimerHandle | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None
        self._reading_paused = False
        self._writable: asyncio.Future[None] | None = None
        self._user: User | None = None
        # A connection may last longer than the certificate that opened it.
        self._user_until = 0.0
        self._on_writable: Callable[[], None] | None = None
        self._on_gone: Callable[[], None] | None = None

    # --- for the listener -------------------------------------------------------------------------------------

    def end_unless_issued_by(self, authorities: Collection[bytes]) -> None:
        """Disconnect a client whose certificate none of the authorities has issued, whatever it is doing."""
        connection = self._transport.get_extra_info("ssl_object")
        if self._user is not None and not is_issued_by(connection.getpeercert(binary_form=True), authorities):
            self._transport.abort()

    def shut_down(self) -> None:
        """Close the connection, after the response that it waits for."""
        if self._answered is None:
            self._transport.close()
        else:
            self._answered.stop_keeping_alive()

    def abort(self) -> None:
        self._transport.abort()

    # --- for exchanges ----------------------------------------------------------------------------------------

    @property
    def is_paused(self) -> bool:
        return self._stalled is not None

    async def writable(self) -> None:
        while self._stalled is not None:
            if self._writable is None:
                self._writable = self._loop.create_future()
            await asyncio.shield(self._writable)

    def write(self, piece: bytes) -> None:
        # The client may have left; a closed transport of uvloop raises.
        if not self.is_gone and not self._transport.is_closing():
            self._transport.write(piece)

    def pause_reading(self) -> None:
        if not self._reading_paused and not self._transport.is_closing():
            self._reading_paused = True
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._reading_paused and not self._transport.is_closing():
            self._reading_paused = False
            self._transport.resume_reading()

    def listen(self, *, on_writable: Callable[[], None] | None, on_gone: Callable[[], None] | None) -> None:
        self._on_writable, self._on_gone = on_writable, on_gone
        if self.is_gone and on_gone is not None:
            on_gone()

    def take_over(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """The bare connection, for the protocol of an upgrade. This protocol handles no more bytes of it."""
        if self._answered is not None:
            self._answered.disconnect()
        reader = asyncio.StreamReader(loop=self._loop)
        protocol = _UpgradedConnection(reader, self)
        self._transport.set_protocol(protocol)
        protocol.connection_made(self._transport)
        self.resume_reading()
        return reader, asyncio.StreamWriter(self._transport, protocol, reader, self._loop)

    def end_exchange(self, exchange: Exchange) -> None:
        if self._answered is not exchange:
            return
        self._answered = None
        if self._transport.is_closing():
            return
        self.resume_reading()
        if not self._pipeline:
            self._host.gate.end_request(self._connection)
        self._idle_since_s = self._loop.time()
        if self._keep_alive is None:
            self._keep_alive = self._loop.call_later(KEEP_ALIVE_S, self._end_idle)
        self._answer_next()

    def close(self) -> None:
        self._transport.close()

    # --- events of the transport ------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport
        self._host.open.add(self)
        peer = transport.get_extra_info("peername")
        self.client = (str(peer[0]), int(peer[1])) if isinstance(peer, tuple) else None
        _detect_vanished_peers(transport.get_extra_info("socket"))
        self._user, self._user_until = _certificate_user(transport.get_extra_info("ssl_object"))
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self.is_gone = True
        self._host.open.discard(self)
        self._host.gate.leave(self._connection)
        self._expect_nothing()
        if self._keep_alive is not None:
            self._keep_alive.cancel()
        self._pipeline.clear()
        for exchange in (self._answered, self._arriving):
            if exchange is not None:
                exchange.disconnect()
        self.resume_writing()
        if self._on_gone is not None:
            self._on_gone()

    def data_received(self, data: bytes) -> None:
        if self._transport.is_closing():
            return
        if self._between_requests and not data.startswith(_METHODS):
            data = self._with_known_method(data)
        self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            # Decided after its request is authorized; most are refused there.
            pass
        except httptools.HttpParserError:
            self._refuse()
            return
        self._answer_next()
        if self._in_head and not self._transport.is_closing():
            if self._head_bytes > self._host.limits.head_bytes_max:
                self._transport.write(_HEAD_TOO_LARGE)
                self._transport.close()
            elif self._deadline is None:
                self._expect_head()

    def pause_writing(self) -> None:
        self._host.stalled.add(self._transport)
        self._stalled = self._loop.call_later(self._host.limits.stalled_reader_s, self._transport.abort)

    def resume_writing(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None
            self._host.stalled.remove(self._transport)
        if self._writable is not None:
            self._writable.set_result(None)
            self._writable = None
        if self._on_writable is not None:
            self._on_writable()

    # --- events of the parser ---------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._url = b""
        self._headers = []
        self._expects_continue = False
        self._in_head, self._between_requests = True, False

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self._expects_continue = True
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        if len(self._pipeline) >= PIPELINED_MAX:
            raise ValueError("too many requests at once on one connection")
        self._in_head, self._head_bytes = False, 0
        self._expect_nothing()
        self._host.gate.start_request(self._connection)
        url = httptools.parse_url(self._url)
        path = url.path.decode("ascii")
        is_old = self._parser.get_http_version() == "1.0"
        exchange = Exchange(
            self,
            self._unknown_method or self._parser.get_method().decode("ascii"),
            unquote(path) if "%" in path else path,
            url.query or b"",
            self._headers,
            user=self._user if self._user is not None and time.time() < self._user_until else None,
            keeps_alive=not is_old and self._parser.should_keep_alive(),
            is_old=is_old,
            expects_continue=self._expects_continue,
        )
        self._unknown_method = ""
        self._arriving = exchange
        if self._answered is not None or self._pipeline:
            self.pause_reading()
        self._pipeline.append(exchange)

    def on_body(self, body: bytes) -> None:
        if self._arriving is not None:
            self._arriving.feed(body)

    def on_message_complete(self) -> None:
        self._between_requests = True
        if self._arriving is not None:
            self._arriving.feed_end()
            self._arriving = None

    # --- one request after the other --------------------------------------------------------------------------

    def _answer_next(self) -> None:
        if self._answered is None and self._pipeline:
            self._answered = exchange = self._pipeline.popleft()
            exchange.task = self._loop.create_task(self._answer(exchange))
            self._host.tasks.add(exchange.task)

    async def _answer(self, exchange: Exchange) -> None:
        try:
            await self._host.serve(exchange)
            assert exchange.is_over or self.is_gone, "every request has a complete response"
        except Exception:
            _logger.exception("%s %s", exchange.method, exchange.path)
            if exchange.is_started:
                self._transport.abort()
            else:
                await exchange.respond(_INTERNAL_ERROR, closes=True)
        finally:
            if exchange.task is not None:
                self._host.tasks.discard(exchange.task)

    def _refuse(self) -> None:
        """What arrived is no request. Nothing is written into a response that has begun."""
        if self._answered is None or not self._answered.is_started:
            self._transport.write(_NO_REQUEST)
        self._transport.close()

    def _end_idle(self) -> None:
        """One timer for many requests: it looks how long the connection was idle."""
        self._keep_alive = None
        if self._answered is not None or self._deadline is not None:
            return
        left_s = self._idle_since_s + KEEP_ALIVE_S - self._loop.time()
        if left_s > 0:
            self._keep_alive = self._loop.call_later(left_s, self._end_idle)
        else:
            # Closing would wait until the client has read everything, without a limit.
            self._transport.abort()

    def _with_known_method(self, data: bytes) -> bytes:
        """The request under a method that the parser accepts: an unknown one is refused by the API, after the user is known."""
        method = _METHOD.match(data)
        if method is None:
            return data
        self._unknown_method = method[1].decode("ascii")
        return _STAND_IN + data[method.end(1) :]

    def _expect_head(self) -> None:
        self._deadline = self._loop.call_later(self._host.limits.head_time_max_s, self._transport.abort)

    def _expect_nothing(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def _detect_vanished_peers(connection: socket.socket | None) -> None:
    """Enable keepalive probes: a watch without events would never notice that its client's machine died."""
    if connection is None:
        return
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, seconds in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, option):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), seconds)


def _certificate_user(connection: ssl.SSLObject | None) -> tuple[User | None, float]:
    """The user of a verified client certificate, and when it expires: CN is the name, each O a group."""
    encoded = connection.getpeercert(binary_form=True) if connection is not None else None
    if not encoded:
        return None, 0.0
    # Slow to import, and only needed for client certificates.
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    certificate = x509.load_der_x509_certificate(encoded)
    subject = certificate.subject
    names = [str(attribute.value) for attribute in subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    groups = tuple(str(attribute.value) for attribute in subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME))
    user = authenticated(User(name=names[0], groups=groups)) if names else None
    return user, certificate.not_valid_after_utc.timestamp()
