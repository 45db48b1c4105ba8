"""Reads request bodies, and bounds their size and the time for them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from contextlib import suppress
from typing import Final, Protocol

from dralloc.primitives.errors import ApiError, BadRequest, RequestEntityTooLarge


class Body(Protocol):
    """A body that arrives (`exchange`)."""

    @property
    def has_arrived(self) -> bool:
        """True when nothing is left to wait for."""
        ...

    def receive(self) -> Awaitable[tuple[bytes, bool]]:
        """The next piece, and whether more may follow. Raises `BadRequest` if the client leaves before."""
        ...


# The limit of Kubernetes.
BODY_BYTES_MAX: Final = 3 * 1024 * 1024
BODY_TIME_MAX_S: Final = 60.0
# What is read and dropped after an early answer: a connection that is closed while its client sends is reset, and the answer lost.
DRAINED_BYTES_MAX: Final = 64 * 1024 * 1024
DRAIN_TIME_MAX_S: Final = 5.0


async def read_body(body: Body, headers: Mapping[bytes, bytes]) -> bytes:
    """All of the body; raises `RequestEntityTooLarge`, or `BadRequest` if it does not arrive."""
    if int(headers.get(b"content-length", b"0")) > BODY_BYTES_MAX:
        raise too_large()
    if body.has_arrived:
        piece, _ = await body.receive()
        if len(piece) > BODY_BYTES_MAX:
            raise too_large()
        return piece
    try:
        async with asyncio.timeout(BODY_TIME_MAX_S):
            pieces, size, more = list[bytes](), 0, True
            while more:
                piece, more = await body.receive()
                pieces.append(piece)
                size += len(piece)
                if size > BODY_BYTES_MAX:
                    raise too_large()
            return b"".join(pieces)
    except TimeoutError:
        raise BadRequest(f"the request body did not arrive within {BODY_TIME_MAX_S:.0f} seconds") from None


async def drain(body: Body) -> None:
    """Read and drop the rest of a body, within limits."""
    left, more = DRAINED_BYTES_MAX, True
    with suppress(TimeoutError, ApiError):
        async with asyncio.timeout(DRAIN_TIME_MAX_S):
            while left > 0 and more:
                piece, more = await body.receive()
                left -= len(piece)


def too_large() -> RequestEntityTooLarge:
    return RequestEntityTooLarge(f"Request entity too large: limit is {BODY_BYTES_MAX}")
