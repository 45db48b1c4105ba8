"""Listening sockets: uvicorn embedded in our own event loop, with the limits that keep one client from hurting others.

uvicorn has no bound on the size of a request's head, on the time a client may take to send it, nor a view of
client certificates; the protocol class below adds the three. Bodies and slow readers are bounded in `app`,
which sees them.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import uvicorn
from cryptography import x509
from cryptography.x509.oid import NameOID
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from dralloc.apiserver.app import ApiApplication
from dralloc.apiserver.authentication import AUTHENTICATED, User
from dralloc.apiserver.certificates import TlsFiles

HEAD_BYTES_MAX: Final = 64 * 1024
HEAD_TIME_MAX_S: Final = 15.0
CONNECTIONS_MAX: Final = 4096
KEEP_ALIVE_S: Final = 120
# What requests in flight get to finish, once the server is told to end.
GRACE_S: Final = 10

_HEAD_TOO_LARGE: Final = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
)
_TOO_MANY: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 1\r\ncontent-length: 0\r\n\r\n"
)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where to listen. Port 0 takes a free one."""

    host: str = "127.0.0.1"
    port: int = 0
    tls: TlsFiles | None = None
    connections_max: int = CONNECTIONS_MAX


@asynccontextmanager
async def serving(app: ApiApplication, endpoint: Endpoint) -> AsyncIterator[str]:
    """Serve the application inside the block; yields the URL. Leaving ends watches, lets requests finish, closes."""
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
        """Signals belong to the command that runs us."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.up.set()


class _LimitedProtocol(HttpToolsProtocol):
    """One connection, with bounds on the head of a request and on the time it takes to arrive."""

    connections_max = CONNECTIONS_MAX
    _head_bytes = 0
    _in_head = True
    _head_deadline: asyncio.TimerHandle | None = None
    _user: User | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.connections_max:
            transport.write(_TOO_MANY)
            transport.close()
            return
        _detect_vanished_peers(transport.get_extra_info("socket"))
        self._user = _certificate_user(transport.get_extra_info("ssl_object"))
        self._head_deadline = self.loop.call_later(HEAD_TIME_MAX_S, self._head_is_late)

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_is_complete()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        self._head_bytes += len(data)
        super().data_received(data)
        if self._in_head and not self.transport.is_closing():
            if self._head_bytes > HEAD_BYTES_MAX:
                self.transport.write(_HEAD_TOO_LARGE)
                self.transport.close()
            elif self._head_deadline is None:
                self._head_deadline = self.loop.call_later(HEAD_TIME_MAX_S, self._head_is_late)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = True

    def on_headers_complete(self) -> None:
        self._in_head, self._head_bytes = False, 0
        self._head_is_complete()
        if self._user is not None:
            self.scope["extensions"] = {"user": {"user": self._user}}
        super().on_headers_complete()

    def _head_is_complete(self) -> None:
        if self._head_deadline is not None:
            self._head_deadline.cancel()
            self._head_deadline = None

    def _head_is_late(self) -> None:
        self._head_deadline = None
        self.transport.abort()


def _configuration(app: ApiApplication, endpoint: Endpoint) -> uvicorn.Config:
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
        http=type("Protocol", (_LimitedProtocol,), {"connections_max": endpoint.connections_max}),
        loop="none",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=GRACE_S,
        **tls,
    )


def _bind(endpoint: Endpoint) -> socket.socket:
    family = socket.AF_INET6 if ":" in endpoint.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((endpoint.host, endpoint.port))
    except OSError:
        listener.close()
        raise
    listener.setblocking(False)
    return listener


def _url(endpoint: Endpoint, listener: socket.socket) -> str:
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    return f"{'https' if endpoint.tls else 'http'}://{host}:{listener.getsockname()[1]}"


def _detect_vanished_peers(connection: socket.socket | None) -> None:
    """Notice a peer whose machine died: nobody else would tell a watch that its reader is gone."""
    if connection is None:
        return
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, seconds in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, option):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), seconds)


def _certificate_user(connection: ssl.SSLObject | None) -> User | None:
    """The user of a client certificate that our authority signed: CN is the name, every O a group."""
    encoded = connection.getpeercert(binary_form=True) if connection is not None else None
    if not encoded:
        return None
    subject = x509.load_der_x509_certificate(encoded).subject
    names = [str(attribute.value) for attribute in subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    groups = tuple(str(attribute.value) for attribute in subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME))
    return User(name=names[0], groups=(*groups, AUTHENTICATED)) if names else None
