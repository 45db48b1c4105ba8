"""The listener: uvicorn in the server's own event loop, with limits that protect other clients from a bad one.

uvicorn bounds neither the size of a request head nor the time that a client takes to send it or to read a response, it counts connections
after their TLS handshake, and it does not expose client certificates; the classes below add all of these. `application` bounds bodies.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import uvicorn

from dralloc.apiserver.credentials.tls_context import ServedTls
from dralloc.apiserver.http.application import ApiApplication
from dralloc.apiserver.http.connection_gate import ConnectionGate
from dralloc.apiserver.http.handshake_turns import HandshakeTurns
from dralloc.apiserver.http.limited_connection import ClientSocket, LimitedConnection, StalledReaders
from dralloc.apiserver.http.listener_limits import ListenerLimits
from dralloc.apiserver.http.shedding_log import SheddingLog

if TYPE_CHECKING:
    from dralloc.apiserver.credentials.certificates import TlsFiles

# Connections that are accepted in one turn of the loop.
ACCEPTED_PER_TURN: Final = 8
# Certificates that are checked in one turn of the loop when an authority is retired.
CHECKED_PER_TURN: Final = 16
TICKS_PER_S: Final = 10
# Files that are not connections: the store, logs, libraries.
OTHER_FILES: Final = 256
BACKLOG: Final = 4096
KEEP_ALIVE_S: Final = 120
# Requests in flight may finish within this time after the server is told to stop.
GRACE_S: Final = 10

_TOO_MANY: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 1\r\ncontent-length: 0\r\n\r\n"
)


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """Where to listen. Port 0 picks a free port."""

    host: str = "127.0.0.1"
    port: int = 0
    tls: TlsFiles | None = None
    limits: ListenerLimits = field(default_factory=ListenerLimits)


@asynccontextmanager
async def listen(app: ApiApplication, endpoint: ListenAddress) -> AsyncIterator[str]:
    """Serve the application inside the block; yields the URL. At the end, watches end and requests in flight finish."""
    listener = _bind(endpoint)
    server = _Server(_configuration(app), endpoint)
    app.metrics.connections = server.count_connections
    running = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        await server.up.wait()
        yield _url(endpoint, listener)
    finally:
        app.end_streams()
        server.should_exit = True
        await running
        app.flow_control.close()


class _Server(uvicorn.Server):
    """Accepts connections itself, to count them before their handshake."""

    def __init__(self, config: uvicorn.Config, endpoint: ListenAddress) -> None:
        super().__init__(config)
        self.up = asyncio.Event()
        self._tls = ServedTls(endpoint.tls) if endpoint.tls is not None else None
        self._authorities = self._tls.authorities() if self._tls is not None else frozenset()
        self._limits = limits = endpoint.limits
        self._log = SheddingLog("connections")
        self._gate = ConnectionGate(
            connections_max=min(limits.connections_max, _raise_file_limit() - OTHER_FILES),
            silent_max=limits.silent_max,
            report=self._log.count,
        )
        self._stalled = StalledReaders(limits.unread_bytes_max, self._log.count)
        self._handshakes = HandshakeTurns()
        self._tasks: set[asyncio.Task[None]] = set()

    def count_connections(self) -> int:
        return len(self._gate)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Do nothing: the command that runs the server handles signals."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await self.lifespan.startup()
        self.servers = []
        for listener in sockets or ():
            listener.listen(BACKLOG)
            self._accept_from(listener)
        self.started = True
        self.up.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        loop = asyncio.get_running_loop()
        for listener in sockets or ():
            loop.remove_reader(listener)
        self._gate.close_silent()
        await super().shutdown(sockets)

    async def on_tick(self, counter: int) -> bool:
        """Called ten times a second."""
        if self._tls is not None and counter % TICKS_PER_S == 0:
            before, self._authorities = self._authorities, self._tls.authorities()
            if before - self._authorities:
                await self._end_untrusted()
        return await super().on_tick(counter)

    async def _end_untrusted(self) -> None:
        """An authority was retired: end the connections of clients whose certificates it has issued."""
        for number, protocol in enumerate(tuple(self.server_state.connections)):
            if isinstance(protocol, LimitedConnection):
                protocol.end_unless_issued_by(self._authorities)
            if number % CHECKED_PER_TURN == 0:
                await asyncio.sleep(0)

    def _accept_from(self, listener: socket.socket) -> None:
        if not self.should_exit:
            asyncio.get_running_loop().add_reader(listener, self._accept, listener)

    def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(ACCEPTED_PER_TURN):
            if not self._gate.may_accept(loop.time()):
                return self._pause(listener)
            try:
                accepted, address = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return None
            except OSError as error:
                # Too many open files: this process or the machine has no more.
                self._log.count(f"not accepted: {error.strerror}")
                self._gate.make_room()
                return self._pause(listener)
            self._start(accepted, str(address[0]) if isinstance(address, tuple) else "")
        return None

    def _pause(self, listener: socket.socket) -> None:
        """Leave clients in the queue of the operating system for a moment."""
        loop = asyncio.get_running_loop()
        loop.remove_reader(listener)
        loop.call_later(0.02, self._accept_from, listener)

    def _start(self, accepted: socket.socket, address: str) -> None:
        accepted.setblocking(False)
        connection = ClientSocket(accepted)
        if not self._gate.admit(connection, asyncio.get_running_loop().time(), address):
            if self._tls is None:
                with contextlib.suppress(OSError):
                    accepted.send(_TOO_MANY)
            accepted.close()
            return
        task = asyncio.get_running_loop().create_task(self._connect(connection, address))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(self, connection: ClientSocket, address: str) -> None:
        """Make the TLS handshake, if there is one, and hand the connection to its protocol."""
        if self._tls is not None and not await self._may_begin(connection, address):
            return
        tls = self._tls.current() if self._tls is not None else None
        handshake = {} if tls is None else {"ssl_handshake_timeout": self._limits.handshake_time_max_s}

        def make_protocol() -> LimitedConnection:
            protocol: LimitedConnection = self.config.http_protocol_class(  # type: ignore[call-arg, assignment]
                config=self.config, server_state=self.server_state, app_state=self.lifespan.state
            )
            protocol.limits, protocol.gate, protocol.stalled = self._limits, self._gate, self._stalled
            protocol.connection = connection
            return protocol

        loop = asyncio.get_running_loop()
        try:
            await loop.connect_accepted_socket(make_protocol, connection.socket, ssl=tls, **handshake)
        except (OSError, asyncio.CancelledError) as error:
            self._end_handshake(connection, error)

    async def _may_begin(self, connection: ClientSocket, address: str) -> bool:
        """Wait for the client's first bytes, and for a turn; False if it is closed instead."""
        try:
            async with asyncio.timeout(self._limits.handshake_time_max_s):
                await self._handshakes.wait(connection.socket, address)
        except (OSError, asyncio.CancelledError) as error:
            self._end_handshake(connection, error)
        else:
            if not connection.is_closed:
                return True
            self._gate.leave(connection)
        # It has no transport that would close it.
        connection.socket.close()
        return False

    def _end_handshake(self, connection: ClientSocket, error: BaseException) -> None:
        if not connection.is_closed and not isinstance(error, asyncio.CancelledError):
            self._log.count("closed in the TLS handshake")
        self._gate.leave(connection)
        connection.close_now()


def _configuration(app: ApiApplication) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=LimitedConnection,
        loop="none",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        # There is no trusted proxy in front of this server.
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=GRACE_S,
    )


def _bind(endpoint: ListenAddress) -> socket.socket:
    family = socket.AF_INET6 if ":" in endpoint.host else socket.AF_INET
    # asyncio sets TCP_NODELAY only on sockets with an explicit protocol; without it, small responses are delayed by 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((endpoint.host, endpoint.port))
    except OSError:
        listener.close()
        raise
    listener.setblocking(False)
    return listener


def _raise_file_limit() -> int:
    """Allow this process as many open files as the system lets it have; the new limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = hard if hard != resource.RLIM_INFINITY else 1 << 20
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return soft if soft != resource.RLIM_INFINITY else wanted


def _url(endpoint: ListenAddress, listener: socket.socket) -> str:
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    return f"{'https' if endpoint.tls else 'http'}://{host}:{listener.getsockname()[1]}"
