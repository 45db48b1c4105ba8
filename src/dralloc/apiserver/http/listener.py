"""The listener: uvicorn in the server's own event loop, with limits that protect other clients from a bad one.

uvicorn bounds neither the size of a request head nor the time that a client takes to send it or to read a response, and it does not
expose client certificates; the protocol class below adds all of these. `application` bounds bodies.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from dralloc.access.users import AUTHENTICATED, User
from dralloc.apiserver.http.application import ApiApplication

if TYPE_CHECKING:
    from dralloc.apiserver.credentials.certificates import TlsFiles

HEAD_BYTES_MAX: Final = 64 * 1024
HEAD_TIME_MAX_S: Final = 15.0
# A client that reads nothing of a pending response for so long is disconnected.
STALLED_READER_S: Final = 60.0
CONNECTIONS_MAX: Final = 4096
KEEP_ALIVE_S: Final = 120
# Requests in flight may finish within this time after the server is told to stop.
GRACE_S: Final = 10

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
    server = _Server(_configuration(app, endpoint))
    running = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        await server.up.wait()
        yield _url(endpoint, listener)
    finally:
        app.end_streams()
        server.should_exit = True
        await running


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Do nothing: the command that runs the server handles signals."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.up.set()


class _LimitedProtocol(HttpToolsProtocol):
    """One connection, with bounds on the size of request heads and on the time for sending and reading."""

    limits = ListenerLimits()
    _head_bytes = 0
    _in_head = True
    _deadline: asyncio.TimerHandle | None = None
    _stalled: asyncio.TimerHandle | None = None
    _user: User | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.limits.connections_max:
            transport.write(_TOO_MANY)
            transport.close()
            return
        _detect_vanished_peers(transport.get_extra_info("socket"))
        self._user = _certificate_user(transport.get_extra_info("ssl_object"))
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._expect_nothing()
        self.resume_writing()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
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
        self._in_head = True

    def on_headers_complete(self) -> None:
        self._in_head, self._head_bytes = False, 0
        self._expect_nothing()
        if self._user is not None:
            self.scope["extensions"] = {"user": {"user": self._user}}
        super().on_headers_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stalled = self.loop.call_later(self.limits.stalled_reader_s, self.transport.abort)

    def resume_writing(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None
        super().resume_writing()

    def timeout_keep_alive_handler(self) -> None:
        # Closing would wait until the client has read everything, without a limit.
        self.transport.abort()

    def _expect_head(self) -> None:
        self._deadline = self.loop.call_later(self.limits.head_time_max_s, self.transport.abort)

    def _expect_nothing(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def _configuration(app: ApiApplication, endpoint: ListenAddress) -> uvicorn.Config:
    tls: dict[str, Any] = {}
    if endpoint.tls is not None:
        tls = {
            "ssl_certfile": str(endpoint.tls.certificate),
            "ssl_keyfile": str(endpoint.tls.key),
            "ssl_ca_certs": str(endpoint.tls.authority),
            "ssl_cert_reqs": ssl.CERT_OPTIONAL,
        }
    return uvicorn.Config(
        app,
        http=type("Protocol", (_LimitedProtocol,), {"limits": endpoint.limits}),
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
        **tls,
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


def _certificate_user(connection: ssl.SSLObject | None) -> User | None:
    """The user of a verified client certificate: CN is the name, each O a group."""
    encoded = connection.getpeercert(binary_form=True) if connection is not None else None
    if not encoded:
        return None
    # Slow to import, and only needed for client certificates.
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    subject = x509.load_der_x509_certificate(encoded).subject
    names = [str(attribute.value) for attribute in subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    groups = tuple(str(attribute.value) for attribute in subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME))
    return User(name=names[0], groups=(*groups, AUTHENTICATED)) if names else None
