"""The connection of one client: an uvicorn protocol with bounds on heads, pipelining and the time for sending and reading."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import ssl
import time
from collections.abc import Callable, Collection
from typing import Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from dralloc.access.users import User, authenticated
from dralloc.apiserver.credentials.tls_context import is_issued_by
from dralloc.apiserver.http.connection_gate import ConnectionGate
from dralloc.apiserver.http.listener_limits import ListenerLimits

# Requests that a client may send on one connection before it reads the response to the first.
PIPELINED_MAX: Final = 64

_METHODS: Final = tuple(f"{name} ".encode() for name in ("GET", "PUT", "POST", "PATCH", "DELETE", "HEAD", "OPTIONS"))
_METHOD: Final = re.compile(rb"([A-Z]{1,32}) /")
# Known to the parser, and without a meaning for it or for the API.
_STAND_IN: Final = b"SOURCE"
_HEAD_TOO_LARGE: Final = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
)


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


class StalledReaders:
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
        self._send(piece)

    def flush(self) -> None:
        if self._head:
            head, self._head = self._head, b""
            self._send(head)

    def close(self) -> None:
        self.flush()
        self._transport.close()

    def _send(self, piece: bytes) -> None:
        # The client may have left since; a closed transport of uvloop raises.
        if not self._transport.is_closing():
            self._transport.write(piece)


class _UpgradedConnection(asyncio.StreamReaderProtocol):
    """The rest of a connection whose request was an upgrade."""

    def __init__(self, reader: asyncio.StreamReader, request: LimitedConnection) -> None:
        super().__init__(reader)
        self._request = request

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._request.connection_lost(exc)


class LimitedConnection(HttpToolsProtocol):
    """One connection, with bounds on the size of request heads and on the time for sending and reading."""

    gate: ConnectionGate
    stalled: StalledReaders
    connection: ClientSocket
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

    # --- for certificates ------------------------------------------------------------------------------------

    def end_unless_issued_by(self, authorities: Collection[bytes]) -> None:
        """Disconnect a client whose certificate none of the authorities has issued, whatever it is doing."""
        connection = self.transport.get_extra_info("ssl_object")
        if self._user is not None and not is_issued_by(connection.getpeercert(binary_form=True), authorities):
            self.transport.abort()

    # --- for upgrades ---------------------------------------------------------------------------------------

    def take_over(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """The bare connection, for the protocol of an upgrade. This protocol handles no more bytes of it."""
        # Otherwise the listener would complete the response.
        self.cycle.disconnected = True
        self._output.flush()
        reader = asyncio.StreamReader(loop=self.loop)
        protocol = _UpgradedConnection(reader, self)
        self.transport.set_protocol(protocol)
        protocol.connection_made(self.transport)
        self.flow.resume_reading()
        return reader, asyncio.StreamWriter(self.transport, protocol, reader, self.loop)

    def _unsupported_upgrade_warning(self) -> None:
        """An upgrade is decided after its request is authorized; most are refused there."""

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
