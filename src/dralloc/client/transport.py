"""The interface that sends requests to an API server; implemented by `http_transport` and `in_process_transport`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from msgspec import Struct, field


class ClientRequest(Struct, frozen=True, kw_only=True, gc=False):
    """A request. `path` begins with a slash and is not escaped."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


class ClientResponse(Struct, frozen=True, kw_only=True, gc=False):
    """A complete answer. `warnings` are the texts of its Warning headers."""

    status: int
    body: bytes
    warnings: tuple[str, ...] = ()


class TransportError(Exception):
    """The server was not reached, or disconnected during the answer: retry."""


class Transport(Protocol):
    """Sends requests. Both methods raise `TransportError` if there is no answer."""

    async def send(self, request: ClientRequest) -> ClientResponse: ...

    def stream(self, request: ClientRequest) -> AbstractAsyncContextManager[Stream]:
        """Opens a stream; leaving the context closes it."""
        ...

    async def close(self) -> None: ...


class Stream(Protocol):
    """A long answer: the status is available at once, the pieces as they arrive."""

    @property
    def status(self) -> int: ...

    def pieces(self) -> AsyncIterator[bytes]: ...


async def split_lines(pieces: AsyncIterator[bytes]) -> AsyncIterator[list[bytes]]:
    """Yields the lines of a stream, those that end in one piece together. Lines may have any length: a full slice is larger than most
    buffers.

    An incomplete last line of a broken connection is dropped.
    """
    pending: list[bytes] = []
    async for piece in pieces:
        head, *rest = piece.split(b"\n")
        pending.append(head)
        if rest:
            lines = [b"".join(pending), *rest]
            pending = [lines.pop()]
            yield [line for line in lines if line]
