"""The connection of one client: HTTP/1.1 with bounds on heads, pipelining and the time for sending and reading."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from dralloc.server.access.users import User
from dralloc.server.http.application import DRAIN_TIME_MAX_S, DRAINED_BYTES_MAX
from dralloc.server.http.connection_gate import ConnectionGate
from dralloc.server.http.exchange import Exchange
from dralloc.server.http.listener_limits import WAITING_BYTES_MAX, ListenerLimits
from dralloc.server.http.messages import TEXT, HttpResponse
from dralloc.server.http.request_parser import TOO_MANY, HttpRefusal, NotARequest, RequestHead, RequestParser
from dralloc.server.identity.certificates import user_of_certificate

# Requests that a client may send on one connection before it reads the response to the first.
PIPELINED_MAX: Final = 64
# A connection without a request is closed after this time.
KEEP_ALIVE_S: Final = 120
# A client that sends nothing for so long after its connection was refused has read why.
QUIET_S: Final = 0.05

_INTERNAL_ERROR: Final = HttpResponse(500, b"Internal Server Error\n", TEXT)

_logger = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class ConnectionHost:
    """What the connections of a listener share."""

    serve: Callable[[Exchange], Awaitable[None]]
    gate: ConnectionGate
    limits: ListenerLimits
    open: set[LimitedConnection] = field(default_factory=set)
    # Requests that are answered; they may outlive their connection.
    tasks: set[asyncio.Task[None]] = field(default_factory=set)


class LimitedConnection(asyncio.Protocol):
    """One connection, with bounds on the size of request heads and on the time for sending and reading.

    Requests are answered one after the other, in their order. A task begins when what has arrived is parsed, so that most requests are
    complete then.
    """

    _transport: asyncio.Transport

    def __init__(self, host: ConnectionHost, accepted: socket.socket) -> None:
        self._host = host
        self._accepted = accepted
        self._loop = asyncio.get_running_loop()
        self._parser = RequestParser(self, host.limits.head_bytes_max)
        self.is_gone = False
        # The request that arrives, the one that is answered, and those that wait for their answer.
        self._arriving: Exchange | None = None
        self._answered: Exchange | None = None
        self._pipeline: deque[Exchange] = deque()
        # What arrived is no request; the connection ends when the requests before it are answered.
        self._refusal: HttpRefusal | None = None
        self._dropped = 0
        self._idle_since_s = 0.0
        self._keep_alive: asyncio.TimerHandle | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None
        # Nothing more is read: what was read waits for its answer.
        self._is_reading_paused = False
        self._writable: asyncio.Future[None] | None = None
        self._user: User | None = None
        # A connection may last longer than the certificate that opened it.
        self._user_until = 0.0
        self._on_writable: Callable[[], None] | None = None
        self._on_gone: Callable[[], None] | None = None

    # --- for the listener -------------------------------------------------------------------------------------

    def shut_down(self) -> None:
        """Close the connection, after the response that it waits for."""
        if self._answered is None:
            self.close()
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
        if not self._is_reading_paused and not self._transport.is_closing():
            self._is_reading_paused = True
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._is_reading_paused and not self._transport.is_closing():
            self._is_reading_paused = False
            self._transport.resume_reading()

    def listen(self, *, on_writable: Callable[[], None] | None, on_gone: Callable[[], None] | None) -> None:
        self._on_writable, self._on_gone = on_writable, on_gone
        if self.is_gone and on_gone is not None:
            on_gone()

    def end_exchange(self, exchange: Exchange) -> None:
        if self._answered is not exchange:
            return
        self._answered = None
        if self._transport.is_closing():
            return
        self.resume_reading()
        self._idle_since_s = self._loop.time()
        if self._keep_alive is None:
            self._keep_alive = self._loop.call_later(KEEP_ALIVE_S, self._end_idle)
        self._answer_next()

    def close(self) -> None:
        """Close when the client has read everything, within the time that it has for that."""
        self._expect_nothing()
        self._transport.close()
        if not self.is_gone:
            self._deadline = self._loop.call_later(self._host.limits.stalled_reader_s, self._transport.abort)

    # --- events of the transport ------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport
        transport.set_write_buffer_limits(high=WAITING_BYTES_MAX)
        self._host.open.add(self)
        _detect_vanished_peers(transport.get_extra_info("socket"))
        self._user, self._user_until = user_of_certificate(transport.get_extra_info("ssl_object"))
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self.is_gone = True
        self._host.open.discard(self)
        self._host.gate.leave(self._accepted)
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
        if self._refusal is not None or self._transport.is_closing():
            self._dropped += len(data)
            return
        try:
            self._parser.feed(data)
        except NotARequest as error:
            self._refuse(error.refusal)
            return
        self._answer_next()
        if self._parser.in_head and self._deadline is None and not self._transport.is_closing():
            self._expect_head()

    def pause_writing(self) -> None:
        self._stalled = self._loop.call_later(self._host.limits.stalled_reader_s, self._transport.abort)

    def resume_writing(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None
        if self._writable is not None:
            self._writable.set_result(None)
            self._writable = None
        if self._on_writable is not None:
            self._on_writable()

    # --- what the parser has read -----------------------------------------------------------------------------

    def begin_request(self, head: RequestHead) -> None:
        if len(self._pipeline) >= PIPELINED_MAX:
            raise NotARequest(TOO_MANY)
        self._expect_nothing()
        user = self._user if self._user is not None and time.time() < self._user_until else None
        self._arriving = exchange = Exchange(self, head, user=user)
        if self._answered is not None or self._pipeline:
            self.pause_reading()
        self._pipeline.append(exchange)

    def feed_body(self, piece: bytes) -> None:
        if self._arriving is not None:
            self._arriving.feed(piece)

    def end_request(self, *, is_last: bool) -> None:
        exchange, self._arriving = self._arriving, None
        if exchange is None:
            return
        exchange.feed_end()
        if is_last:
            exchange.stop_keeping_alive()
            if exchange.is_over:
                self.close()

    # --- one request after the other --------------------------------------------------------------------------

    def _answer_next(self) -> None:
        if self._answered is None and self._pipeline:
            self._answered = exchange = self._pipeline.popleft()
            exchange.task = self._loop.create_task(self._answer(exchange))
            self._host.tasks.add(exchange.task)
        elif self._answered is None and self._refusal is not None:
            self._send_refusal(self._refusal)

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

    def _refuse(self, refusal: HttpRefusal) -> None:
        """What arrived is no request. The requests before it are answered first."""
        self._refusal = refusal
        self._expect_nothing()
        broken, self._arriving = self._arriving, None
        if self._answered is not None and (self._answered is broken or self._answered.is_started):
            # Nothing is written into a response that has begun.
            if self._answered.is_started:
                self.close()
            else:
                self._answered.disconnect()
                self._send_refusal(refusal)
            return
        if broken is not None:
            self._pipeline.remove(broken)
        self._answer_next()

    def _send_refusal(self, refusal: HttpRefusal) -> None:
        self.write(refusal.wire)
        self._close_when_quiet(-1, self._loop.time() + DRAIN_TIME_MAX_S)

    def _close_when_quiet(self, dropped: int, until_s: float) -> None:
        """A connection that is closed while its client sends is reset, and the response lost."""
        if self.is_gone:
            return
        if self._dropped == dropped or self._dropped > DRAINED_BYTES_MAX or self._loop.time() >= until_s:
            self.close()
        else:
            self._loop.call_later(QUIET_S, self._close_when_quiet, self._dropped, until_s)

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

    def _expect_head(self) -> None:
        self._deadline = self._loop.call_later(self._host.limits.head_time_max_s, self._end_head)

    def _end_head(self) -> None:
        if self._is_reading_paused:
            # It is not the client that is slow.
            self._expect_head()
        else:
            self._transport.abort()

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
