"""What carries a request to an API server: one narrow interface, two implementations (`http`, `in_process`)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from msgspec import Struct, field


class ClientRequest(Struct, frozen=True, kw_only=True, gc=False):
    """One request. `path` begins with a slash and is not escaped."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


class ClientResponse(Struct, frozen=True, kw_only=True, gc=False):
    """An answer, read completely. `warnings` are the texts of its Warning headers."""

    status: int
    body: bytes
    warnings: tuple[str, ...] = ()


class TransportError(Exception):
    """The server was not reached, or went away in the middle of an answer: try again."""


class Transport(Protocol):
    """Sends requests. Both methods raise `TransportError` where there is no answer."""

    async def send(self, request: ClientRequest) -> ClientResponse: ...

    def stream(self, request: ClientRequest) -> AbstractAsyncContextManager[Stream]:
        """Open a long answer; leaving the context closes it, also in the middle."""
        ...

    async def close(self) -> None: ...


class Stream(Protocol):
    """A long answer: its status at once, its pieces as they come."""

    @property
    def status(self) -> int: ...

    def pieces(self) -> AsyncIterator[bytes]: ...


async def split_lines(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The lines of a stream. A line may be as long as it likes: a full slice is larger than most buffers.

    What follows the last line break is dropped: it is the half of a line that a broken connection left.
    """
    pending: list[bytes] = []
    async for piece in pieces:
        head, *rest = piece.split(b"\n")
        pending.append(head)
        for line in rest:
            whole = b"".join(pending)
            pending = [line]
            if whole:
                yield whole
