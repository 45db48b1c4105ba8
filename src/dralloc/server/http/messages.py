"""Requests and responses as values, independent of how they are carried.

The network side (`application`) and in-process clients use the same pair, so both see the same behaviour.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from functools import lru_cache
from typing import Final, Protocol
from urllib.parse import parse_qsl

from msgspec import Struct

from dralloc.server.access.users import User

JSON: Final = "application/json"
TEXT: Final = "text/plain; charset=utf-8"
PROTOBUF: Final = "application/vnd.kubernetes.protobuf"


class HttpRequest(Struct, gc=False):
    """A complete request. Header names are lower case."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[bytes, bytes]
    body: bytes
    user: User
    # The headers that ask to serve the request as another user; empty for almost all requests.
    impersonation: tuple[tuple[bytes, bytes], ...] = ()

    def header(self, name: bytes) -> str:
        return self.headers.get(name, b"").decode("latin-1")

    @property
    def media_type(self) -> str:
        """The media type of the body, without parameters."""
        return _media_type(self.headers.get(b"content-type", b""))


@lru_cache(maxsize=256)
def _media_type(content_type: bytes) -> str:
    return content_type.decode("latin-1").partition(";")[0].strip().lower()


class Sink(Protocol):
    """The connection that a stream is pushed to, for streams that need no task of their own to be sent."""

    @property
    def is_paused(self) -> bool:
        """True while the client does not read."""
        ...

    def push(self, piece: bytes) -> None:
        """Send a piece, without waiting for the client."""
        ...

    async def send(self, piece: bytes) -> None:
        """Send a piece, when the client has read those before."""
        ...

    def listen(self, *, on_writable: Callable[[], None], on_gone: Callable[[], None]) -> None:
        """Call these when the client reads again, and when it has disconnected."""
        ...


class HttpResponse(Struct):
    """A response with a body or a stream; closing the stream's generator ends it early.

    `push` sends the same stream to a sink, and returns at its end.
    """

    status: int = 200
    body: bytes = b""
    content_type: str = JSON
    headers: tuple[tuple[bytes, bytes], ...] = ()
    stream: AsyncGenerator[bytes, None] | None = None
    push: Callable[[Sink], Awaitable[None]] | None = None


def parse_query(query: bytes) -> dict[str, str]:
    """The parameters of a URL; the first of a repeated parameter counts, as in Kubernetes."""
    if not query:
        return {}
    parameters: dict[str, str] = {}
    for name, value in parse_qsl(query.decode("latin-1"), keep_blank_values=True):
        parameters.setdefault(name, value)
    return parameters


# --- Warning headers ------------------------------------------------------------------------------------------------
# Warnings about accepted requests, as HTTP headers.


# The limit of Kubernetes, for clients and proxies that bound the size of headers.
WARNINGS_BYTES_MAX: Final = 4096


def warning_headers(warnings: Iterable[str]) -> tuple[tuple[bytes, bytes], ...]:
    """One header for each distinct warning, as many as fit."""
    headers: list[tuple[bytes, bytes]] = []
    room = WARNINGS_BYTES_MAX
    for text in dict.fromkeys(warnings):
        value = _quoted(text)
        room -= len(value)
        if room < 0:
            break
        headers.append((b"warning", value))
    return tuple(headers)


def _quoted(text: str) -> bytes:
    printable = "".join(character if character.isprintable() else " " for character in text)
    escaped = printable.replace("\\", "\\\\").replace('"', '\\"')
    return f'299 - "{escaped}"'.encode()
