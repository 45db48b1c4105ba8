"""Reads requests from the bytes of a connection: llhttp's parser, with bounds and with rules of RFC 9112 that it leaves to others.

Trailers are dropped: no header of the API may be one, and a proxy that removes headers of its clients may let trailers pass. No other
protocol is spoken here, so a request to upgrade the connection is an ordinary request (RFC 9110, 7.8).
"""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Final, NoReturn, Protocol
from urllib.parse import unquote

import httptools
from msgspec import Struct

Headers = list[tuple[bytes, bytes]]

_METHODS: Final = tuple(f"{name} ".encode() for name in ("GET", "PUT", "POST", "PATCH", "DELETE", "HEAD", "OPTIONS"))
_METHOD: Final = re.compile(rb"([A-Z]{1,32}) /")
# Known to the parser, and without a meaning for it or for the API.
_STAND_IN: Final = b"UNLINK"
# A colon, a space and the end of the line.
_BYTES_OF_LINE: Final = 4


class RequestHead(Struct, gc=False):
    """A request before its body. Names of headers are lower case."""

    method: str
    path: str
    query: bytes
    headers: Headers
    keeps_alive: bool = True
    # HTTP/1.0
    is_old: bool = False
    expects_continue: bool = False


class RequestReceiver(Protocol):
    """The connection (`limited_connection`)."""

    def begin_request(self, head: RequestHead) -> None:
        """A head has arrived. May raise `NotARequest`."""
        ...

    def feed_body(self, piece: bytes) -> None: ...

    def end_request(self, *, is_last: bool) -> None:
        """All of the request has arrived; after the last one, nothing more is read."""
        ...


class RequestParser:
    """The requests of one connection."""

    def __init__(self, receiver: RequestReceiver, head_bytes_max: int) -> None:
        self._receiver = receiver
        self._head_bytes_max = head_bytes_max
        self._parser = httptools.HttpRequestParser(self)
        # Answer the first of several requests even if it closes the connection.
        self._parser.set_dangerous_leniencies(lenient_data_after_close=True)
        # False between requests, and in the body.
        self.in_head = True
        self._between_requests = True
        self._refusal: HttpRefusal | None = None
        self._url = b""
        self._headers: Headers = []
        self._hosts = 0
        self._coding = b""
        self._expects_continue = False
        self._has_trailers = False
        # The size of the head and the trailers, and of what arrived since the parser has told of anything.
        self._head_bytes = self._partial_bytes = 0
        # A method that the parser does not know.
        self._unknown_method = ""
        # A request whose upgrade is ignored, and its head without it.
        self._ignores_upgrade = False
        self._plain_head = b""

    def feed(self, data: bytes) -> None:
        """Raises `NotARequest` if this is no request."""
        if self._between_requests and not data.startswith(_METHODS):
            data = self._with_known_method(data)
        self._partial_bytes += len(data)
        try:
            self._feed(data)
        except httptools.HttpParserError:
            raise NotARequest(self._refusal or NO_REQUEST) from None
        if self._partial_bytes > self._head_bytes_max:
            raise NotARequest(HEAD_TOO_LARGE)

    # --- events of the parser ---------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._url = self._coding = b""
        self._headers = []
        self._expects_continue = self._has_trailers = self._ignores_upgrade = False
        self._hosts = self._head_bytes = self._partial_bytes = 0
        self.in_head, self._between_requests = True, False

    def on_url(self, url: bytes) -> None:
        self._url += url
        self._count(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value) + _BYTES_OF_LINE)
        if not self.in_head:
            self._has_trailers = True
            return
        name = name.lower()
        if name == b"host":
            self._hosts += 1
        elif name == b"transfer-encoding":
            self._coding = value.lower()
        elif name == b"expect" and value.lower() == b"100-continue":
            self._expects_continue = True
        elif name == b"upgrade":
            self._ignores_upgrade = True
            return
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        parser = self._parser
        version = parser.get_http_version()
        if self._ignores_upgrade and parser.should_upgrade():
            lines = [b"%b %b HTTP/%b" % (parser.get_method(), self._url, version.encode())]
            lines += [b"%b: %b" % header for header in self._headers]
            self._plain_head = b"\r\n".join([*lines, b"", b""])
            return
        is_old = version == "1.0"
        self._check_head(version, is_old=is_old)
        url = httptools.parse_url(self._url)
        # That of `http://HOST` is empty.
        path = (url.path or b"/").decode("ascii")
        head = RequestHead(
            self._unknown_method or parser.get_method().decode("ascii"),
            unquote(path) if "%" in path else path,
            url.query or b"",
            self._headers,
            not is_old and parser.should_keep_alive(),
            is_old,
            self._expects_continue and not is_old,
        )
        self.in_head, self._partial_bytes, self._unknown_method = False, 0, ""
        try:
            self._receiver.begin_request(head)
        except NotARequest as error:
            self._refuse(error.refusal)

    def on_body(self, body: bytes) -> None:
        self._partial_bytes = 0
        self._receiver.feed_body(body)

    def on_message_complete(self) -> None:
        self._partial_bytes = 0
        self._between_requests = True
        if self._plain_head:
            return
        # A trailer can end the connection, too; the parser reads nothing after it.
        self._receiver.end_request(is_last=self._has_trailers and not self._parser.should_keep_alive())

    # --- what the parser does not do --------------------------------------------------------------------------

    def _feed(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            # The parser leaves what follows such a head to the other protocol.
            if head := self._plain_head:
                self._plain_head = b""
                self._feed(head + data[upgrade.args[0] :])

    def _with_known_method(self, data: bytes) -> bytes:
        """The request under a method that the parser accepts: an unknown one is refused by the API, after the user is known."""
        method = _METHOD.match(data)
        if method is None:
            return data
        self._unknown_method = method[1].decode("ascii")
        return _STAND_IN + data[method.end(1) :]

    def _count(self, size: int) -> None:
        self._partial_bytes = 0
        self._head_bytes += size
        if self._head_bytes > self._head_bytes_max:
            self._refuse(HEAD_TOO_LARGE)

    def _check_head(self, version: str, *, is_old: bool) -> None:
        """RFC 9112, 2.3, 3.2 and 6.1."""
        if not is_old and version != "1.1":
            self._refuse(UNKNOWN_VERSION)
        if self._hosts > 1 or (not self._hosts and not is_old):
            self._refuse(HOST)
        if self._coding and is_old:
            self._refuse(OLD_CODING)
        if self._coding and self._coding != b"chunked":
            self._refuse(UNKNOWN_CODING)

    def _refuse(self, refusal: HttpRefusal) -> NoReturn:
        # The parser reports some exceptions of its callbacks as faults of its own.
        self._refusal = refusal
        raise NotARequest(refusal)


# --- Refusals -------------------------------------------------------------------------------------------------------
# Answers to what is no request, as they are sent; the connection ends with them.


class HttpRefusal:
    """What a client is told."""

    __slots__ = ("wire",)

    def __init__(self, status: HTTPStatus, text: str) -> None:
        body = f"{text}\n".encode()
        self.wire = (
            b"HTTP/1.1 %d %b\r\ncontent-type: text/plain; charset=utf-8\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%b"
            % (status, status.phrase.encode(), len(body), body)
        )


class NotARequest(Exception):
    """What arrives is not read any further."""

    def __init__(self, refusal: HttpRefusal) -> None:
        super().__init__(refusal)
        self.refusal = refusal


NO_REQUEST: Final = HttpRefusal(HTTPStatus.BAD_REQUEST, "Invalid HTTP request received.")
HOST: Final = HttpRefusal(HTTPStatus.BAD_REQUEST, "A request of HTTP/1.1 has one Host header.")
OLD_CODING: Final = HttpRefusal(HTTPStatus.BAD_REQUEST, "A request of HTTP/1.0 has no Transfer-Encoding.")
TOO_MANY: Final = HttpRefusal(HTTPStatus.BAD_REQUEST, "Too many requests were sent before the first was answered.")
UNKNOWN_CODING: Final = HttpRefusal(HTTPStatus.NOT_IMPLEMENTED, "The only known Transfer-Encoding is chunked.")
UNKNOWN_VERSION: Final = HttpRefusal(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "Use HTTP/1.1.")
HEAD_TOO_LARGE: Final = HttpRefusal(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "The headers are too large.")
