"""The listener: uvicorn in the server's own event loop, with limits that protect other clients from a bad one.

uvicorn bounds neither the size of a request head nor the time that a client takes to send it or to read a response, it counts connections
after their TLS handshake, and it does not expose client certificates; the classes below add all of these. `application` bounds bodies.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import resource
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from dralloc.access.users import User, authenticated
from dralloc.apiserver.credentials.tls_context import ServedTls
from dralloc.apiserver.http.application import ApiApplication
from dralloc.apiserver.http.connection_gate import ConnectionGate
from dralloc.apiserver.http.flow_control import SheddingLog

if TYPE_CHECKING:
    from dralloc.apiserver.credentials.certificates import TlsFiles

HEAD_BYTES_MAX: Final = 64 * 1024
HEAD_TIME_MAX_S: Final = 15.0
# A client that reads nothing of a pending response for so long is disconnected.
STALLED_READER_S: Final = 60.0
# Responses that clients have not read yet, of all clients together; the client that stalled first is disconnected.
UNREAD_BYTES_MAX: Final = 256 * 1024 * 1024
CONNECTIONS_MAX: Final = 16_384
# Connections that may be without a complete request before the oldest of them are closed.
SILENT_MAX: Final = 8192
HANDSHAKE_TIME_MAX_S: Final = 10.0
# Connections that are accepted in one turn of the loop: a TLS handshake takes a millisecond or two.
ACCEPTED_PER_TURN: Final = 8
# Requests that a client may send on one connection before it reads the response to the first.
PIPELINED_MAX: Final = 64
# Files that are not connections: the store, logs, libraries.
OTHER_FILES: Final = 256
BACKLOG: Final = 4096
KEEP_ALIVE_S: Final = 120
# Requests in flight may finish within this time after the server is told to stop.
GRACE_S: Final = 10

_METHODS: Final = tuple(f"{name} ".encode() for name in ("GET", "PUT", "POST", "PATCH", "DELETE", "HEAD", "OPTIONS"))
_METHOD: Final = re.compile(rb"([A-Z]{1,32}) /")
# Known to the parser, and without a meaning for it or for the API.
_STAND_IN: Final = b"SOURCE"
_HEAD_TOO_LARGE: Final = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
)
_TOO_MANY: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 1\r\ncontent-length: 0\r\n\r\n"
)


@dataclass(frozen=True, slots=True)
class ListenerLimits:
    """What clients may use before they are refused or disconnected."""

    connections_max: int = CONNECTIONS_MAX
    silent_max: int = SILENT_MAX
    handshake_time_max_s: float = HANDSHAKE_TIME_MAX_S
    unread_bytes_max: int = UNREAD_BYTES_MAX
    head_bytes_max: int = HEAD_BYTES_MAX
    head_time_max_s: float = HEAD_TIME_MAX_S
    stalled_reader_s: float = STALLED_READER_S


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """Where to listen. Port 0 picks a free port."""

    host: str = "127.0.0.1"
    port: int = 0
    tls: TlsFiles | None = None
    limits: ListenerLimits = ListenerLimits()


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
        self._limits = limits = endpoint.limits
        self._log = SheddingLog("connections")
        self._gate = ConnectionGate(
            connections_max=min(limits.connections_max, _raise_file_limit() - OTHER_FILES),
            silent_max=limits.silent_max,
            report=self._log.count,
        )
        self._stalled = _StalledReaders(limits.unread_bytes_max, self._log.count)
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

    def _accept_from(self, listener: socket.socket) -> None:
        if not self.should_exit:
            asyncio.get_running_loop().add_reader(listener, self._accept, listener)

    def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(ACCEPTED_PER_TURN):
            if not self._gate.may_accept(loop.time()):
                return self._pause(listener)
            try:
                accepted, _ = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return None
            except OSError as error:
                # Too many open files: this process or the machine has no more.
                self._log.count(f"not accepted: {error.strerror}")
                self._gate.make_room()
                return self._pause(listener)
            self._start(accepted)
        return None

    def _pause(self, listener: socket.socket) -> None:
        """Leave clients in the queue of the operating system for a moment."""
        loop = asyncio.get_running_loop()
        loop.remove_reader(listener)
        loop.call_later(0.02, self._accept_from, listener)

    def _start(self, accepted: socket.socket) -> None:
        accepted.setblocking(False)
        connection = _Connection(accepted)
        if not self._gate.admit(connection, asyncio.get_running_loop().time()):
            if self._tls is None:
                with contextlib.suppress(OSError):
                    accepted.send(_TOO_MANY)
            accepted.close()
            return
        task = asyncio.get_running_loop().create_task(self._connect(connection))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(self, connection: _Connection) -> None:
        """Make the TLS handshake, if there is one, and hand the connection to its protocol."""
        tls = self._tls.current() if self._tls is not None else None
        handshake = {} if tls is None else {"ssl_handshake_timeout": self._limits.handshake_time_max_s}

        def make_protocol() -> _LimitedProtocol:
            protocol: _LimitedProtocol = self.config.http_protocol_class(  # type: ignore[call-arg, assignment]
                config=self.config, server_state=self.server_state, app_state=self.lifespan.state
            )
            protocol.limits, protocol.gate, protocol.stalled = self._limits, self._gate, self._stalled
            protocol.connection = connection
            return protocol

        loop = asyncio.get_running_loop()
        try:
            await loop.connect_accepted_socket(make_protocol, connection.socket, ssl=tls, **handshake)
        except (OSError, asyncio.CancelledError) as error:
            if not connection.is_closed and not isinstance(error, asyncio.CancelledError):
                self._log.count("closed in the TLS handshake")
            self._gate.leave(connection)
            connection.close_now()


class _Connection:
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


class _StalledReaders:
    """The clients that do not read their responses, and the bytes that wait for them."""

    def __init__(self, bytes_max: int, report: Callable[[str], None]) -> None:
        self._bytes_max = bytes_max
        self._report = report
        self._waiting: dict[asyncio.Transport, int] = {}
        self._total = 0

    def add(self, transport: asyncio.Transport) -> None:
        self._waiting[transport] = transport.get_write_buffer_size()
        self._total += self._waiting[transport]
        while self._total > self._bytes_max:
            oldest = next(iter(self._waiting))
            self.remove(oldest)
            self._report("closed, the client did not read its responses")
            oldest.abort()

    def remove(self, transport: asyncio.Transport) -> None:
        self._total -= self._waiting.pop(transport, 0)


class _Output:
    """What a response is written to: sends its head together with the first piece of its body, if that follows at once.

    A system call for each of both would take a quarter of the time of a short request.
    """

    __slots__ = ("_head", "_loop", "_transport", "is_closing")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._head = b""
        self.is_closing = transport.is_closing

    def write(self, piece: bytes) -> None:
        if self._head:
            piece, self._head = self._head + piece, b""
        elif piece.startswith(b"HTTP/1.1 "):
            self._head = piece
            self._loop.call_soon(self.flush)
            return
        self._transport.write(piece)

    def flush(self) -> None:
        if self._head:
            head, self._head = self._head, b""
            self._transport.write(head)

    def close(self) -> None:
        self.flush()
        self._transport.close()


class _LimitedProtocol(HttpToolsProtocol):
    """One connection, with bounds on the size of request heads and on the time for sending and reading."""

    gate: ConnectionGate
    stalled: _StalledReaders
    connection: _Connection
    _output: _Output
    limits = ListenerLimits()
    _head_bytes = 0
    _in_head = True
    _between_requests = True
    # A method that the parser does not know.
    _unknown_method = ""
    _deadline: asyncio.TimerHandle | None = None
    _stalled: asyncio.TimerHandle | None = None
    _user: User | None = None
    # A connection may last longer than the certificate that opened it.
    _user_until = 0.0
    is_gone = False
    _on_writable: Callable[[], None] | None = None
    _on_gone: Callable[[], None] | None = None

    # --- for streams that are pushed ------------------------------------------------------------------------

    @property
    def is_paused(self) -> bool:
        return self.flow.write_paused

    def push(self, piece: bytes) -> None:
        """Send a piece of a chunked response."""
        if not self.is_gone:
            self._output.flush()
            self.transport.write(b"%x\r\n%b\r\n" % (len(piece), piece))

    def listen(self, *, on_writable: Callable[[], None] | None, on_gone: Callable[[], None] | None) -> None:
        self._on_writable, self._on_gone = on_writable, on_gone
        if self.is_gone and on_gone is not None:
            on_gone()

    # --- events of the connection ---------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._output = _Output(transport, self.loop)
        _detect_vanished_peers(transport.get_extra_info("socket"))
        self._user, self._user_until = _certificate_user(transport.get_extra_info("ssl_object"))
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._expect_nothing()
        self.resume_writing()
        self.gate.leave(self.connection)
        self.is_gone = True
        super().connection_lost(exc)
        if self._on_gone is not None:
            self._on_gone()

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self._between_requests and not data.startswith(_METHODS):
            data = self._with_known_method(data)
        self._head_bytes += len(data)
        super().data_received(data)
        if self._in_head and not self.transport.is_closing():
            if self._head_bytes > self.limits.head_bytes_max:
                self.transport.write(_HEAD_TOO_LARGE)
                self.transport.close()
            elif self._deadline is None:
                self._expect_head()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head, self._between_requests = True, False

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._between_requests = True

    def on_headers_complete(self) -> None:
        if len(self.pipeline) >= PIPELINED_MAX:
            raise ValueError("too many requests at once on one connection")
        self._in_head, self._head_bytes = False, 0
        self._expect_nothing()
        self.gate.start_request(self.connection)
        self.scope["extensions"] = {"connection": {"connection": self}}
        if self._user is not None and time.time() < self._user_until:
            self.scope["extensions"]["user"] = {"user": self._user}
        super().on_headers_complete()
        self.cycle.transport = self._output  # type: ignore[assignment]
        if self._unknown_method:
            self.scope["method"], self._unknown_method = self._unknown_method, ""

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.cycle.response_complete:
            self.gate.end_request(self.connection)

    def pause_writing(self) -> None:
        super().pause_writing()
        self.stalled.add(self.transport)
        self._stalled = self.loop.call_later(self.limits.stalled_reader_s, self.transport.abort)

    def resume_writing(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None
            self.stalled.remove(self.transport)
        super().resume_writing()
        if self._on_writable is not None:
            self._on_writable()

    def timeout_keep_alive_handler(self) -> None:
        # Closing would wait until the client has read everything, without a limit.
        self.transport.abort()

    def _with_known_method(self, data: bytes) -> bytes:
        """The request under a method that the parser accepts: an unknown one is refused by the API, after the user is known."""
        method = _METHOD.match(data)
        if method is None:
            return data
        self._unknown_method = method[1].decode("ascii")
        return _STAND_IN + data[method.end(1) :]

    def _expect_head(self) -> None:
        self._deadline = self.loop.call_later(self.limits.head_time_max_s, self.transport.abort)

    def _expect_nothing(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def _configuration(app: ApiApplication) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=_LimitedProtocol,
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
