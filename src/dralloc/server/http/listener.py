"""The listener: accepts connections and makes TLS handshakes, within limits.

`limited_connection` reads requests from a connection, `application` answers them and bounds bodies.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from dralloc.server.http.application import ApiApplication
from dralloc.server.http.connection_gate import ConnectionGate
from dralloc.server.http.limited_connection import ConnectionHost, LimitedConnection
from dralloc.server.http.listener_limits import ListenerLimits

if TYPE_CHECKING:
    from dralloc.server.identity.certificates import TlsFiles

# Connections that are accepted in one turn of the loop.
ACCEPTED_PER_TURN: Final = 8
# Clients stay in the queue of the operating system for so long if a connection cannot be accepted.
ACCEPT_AGAIN_S: Final = 1.0
# How often the end of requests is looked for when the server stops.
ENDED_EVERY_S: Final = 0.02
# Files that are not connections: the store, logs, libraries.
OTHER_FILES: Final = 256
BACKLOG: Final = 4096
# Requests in flight may finish within this time after the server is told to stop.
GRACE_S: Final = 10

_TOO_MANY: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 1\r\ncontent-length: 0\r\n\r\n"
)

_logger = logging.getLogger(__name__)


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
    server = _Listener(app, endpoint, listener)
    app.metrics.connections = server.count_connections
    server.start()
    try:
        yield _url(endpoint, listener)
    finally:
        app.end_streams()
        await server.stop()


class _Listener:
    """Accepts connections itself, to count them before their handshake."""

    def __init__(self, app: ApiApplication, endpoint: ListenAddress, listener: socket.socket) -> None:
        self._listener = listener
        self._is_stopping = False
        self._tls = _tls_context(endpoint.tls) if endpoint.tls is not None else None
        self._limits = limits = endpoint.limits
        self._gate = ConnectionGate(min(limits.connections_max, _raise_file_limit() - OTHER_FILES))
        self._host = ConnectionHost(app.serve, self._gate, limits)
        # Handshakes in progress.
        self._tasks: set[asyncio.Task[None]] = set()

    def count_connections(self) -> int:
        return len(self._gate)

    def start(self) -> None:
        self._listener.listen(BACKLOG)
        self._accept_from(self._listener)

    async def stop(self) -> None:
        """Accept no more, and wait until requests in flight are answered."""
        self._is_stopping = True
        asyncio.get_running_loop().remove_reader(self._listener)
        self._listener.close()
        for handshake in tuple(self._tasks):
            handshake.cancel()
        for connection in tuple(self._host.open):
            connection.shut_down()
        try:
            async with asyncio.timeout(GRACE_S):
                # Responses are sent before their connections close.
                while self._host.open or self._host.tasks:
                    await asyncio.sleep(ENDED_EVERY_S)
        except TimeoutError:
            if self._host.tasks:
                _logger.error("%d requests were not answered within %d s", len(self._host.tasks), GRACE_S)
            for task in tuple(self._host.tasks):
                task.cancel()
            for connection in tuple(self._host.open):
                connection.abort()

    def _accept_from(self, listener: socket.socket) -> None:
        if not self._is_stopping:
            asyncio.get_running_loop().add_reader(listener, self._accept, listener)

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(ACCEPTED_PER_TURN):
            try:
                accepted, address = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                # Too many open files: this process or the machine has no more.
                _logger.warning("connections are not accepted: %s", error.strerror)
                loop = asyncio.get_running_loop()
                loop.remove_reader(listener)
                loop.call_later(ACCEPT_AGAIN_S, self._accept_from, listener)
                return
            self._start(accepted, str(address[0]) if isinstance(address, tuple) else "")

    def _start(self, accepted: socket.socket, address: str) -> None:
        accepted.setblocking(False)
        if refusal := self._gate.admit(accepted, address):
            _logger.warning("connection of %s refused: %s", address, refusal)
            if self._tls is None:
                with contextlib.suppress(OSError):
                    accepted.send(_TOO_MANY)
            accepted.close()
            return
        task = asyncio.get_running_loop().create_task(self._connect(accepted, address))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(self, accepted: socket.socket, address: str) -> None:
        """Make the TLS handshake, if there is one, and hand the connection to its protocol."""
        tls = self._tls
        handshake = {} if tls is None else {"ssl_handshake_timeout": self._limits.handshake_time_max_s}

        loop = asyncio.get_running_loop()
        try:
            await loop.connect_accepted_socket(
                lambda: LimitedConnection(self._host, accepted), accepted, ssl=tls, **handshake
            )
        except (OSError, asyncio.CancelledError) as error:
            _log_handshake(address, error)
            self._gate.leave(accepted)
            # The transport reads the end of the stream and closes the file.
            with contextlib.suppress(OSError):
                accepted.shutdown(socket.SHUT_RDWR)


def _log_handshake(address: str, error: BaseException) -> None:
    """Tell why a handshake failed. A client that leaves is no failure: a driver was killed, or a command interrupted."""
    if isinstance(error, ssl.SSLCertVerificationError):
        # The client is not told: the event loop sends no TLS alerts.
        _logger.warning("client certificate of %s not accepted, %s", address, error.verify_message)
    elif not isinstance(error, (asyncio.CancelledError, ConnectionResetError)):
        _logger.warning("connection of %s closed in the TLS handshake", address)


def _tls_context(files: TlsFiles) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.key)
    context.load_verify_locations(files.authority)
    # Clients without a certificate bring a token.
    context.verify_mode = ssl.CERT_OPTIONAL
    return context


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
