"""Answers to what is no request, as they are sent; the connection ends with them."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final


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
