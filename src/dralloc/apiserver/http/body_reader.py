"""Reads request bodies; bounds the size of each, of those of one user, and of all together."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Mapping
from contextlib import suppress
from typing import Final, Protocol

from dralloc.primitives.errors import ApiError, BadRequest, ErrorDetails, RequestEntityTooLarge, TooManyRequests


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
# Bounds the memory for bodies that arrive or are worked on.
BODIES_BYTES_MAX: Final = 256 * 1024 * 1024
BODIES_BYTES_OF_USER_MAX: Final = BODIES_BYTES_MAX // 4
# What is read and dropped after an early answer: a connection that is closed while its client sends is reset, and the answer lost.
DRAINED_BYTES_MAX: Final = 64 * 1024 * 1024
DRAIN_TIME_MAX_S: Final = 5.0


class BodyReader:
    def __init__(self) -> None:
        self._held: Counter[str] = Counter()

    async def read(self, body: Body, headers: Mapping[bytes, bytes], user: str) -> bytes:
        """The body. It counts as held until it is released."""
        if int(headers.get(b"content-length", b"0")) > BODY_BYTES_MAX:
            raise too_large()
        if body.has_arrived:
            piece, _ = await body.receive()
            self._hold(len(piece), 0, user)
            return piece
        try:
            async with asyncio.timeout(BODY_TIME_MAX_S):
                return await self._read_pieces(body, user)
        except TimeoutError:
            raise BadRequest(f"the request body did not arrive within {BODY_TIME_MAX_S:.0f} seconds") from None

    def release(self, user: str, size: int) -> None:
        self._held[user] -= size
        if not self._held[user]:
            del self._held[user]

    async def _read_pieces(self, body: Body, user: str) -> bytes:
        pieces: list[bytes] = []
        held, more = 0, True
        try:
            while more:
                piece, more = await body.receive()
                self._hold(len(piece), held, user)
                held += len(piece)
                pieces.append(piece)
            return b"".join(pieces)
        except BaseException:
            self.release(user, held)
            raise

    def _hold(self, size: int, before: int, user: str) -> None:
        """Count a piece of this size, if it is not too much with what came before it, and with other bodies."""
        if before + size > BODY_BYTES_MAX:
            raise too_large()
        if self._held[user] + size > BODIES_BYTES_OF_USER_MAX or self._held.total() + size > BODIES_BYTES_MAX:
            raise TooManyRequests(
                "too many large requests at once, please try again later", details=ErrorDetails(retry_after_s=1)
            )
        if size:
            self._held[user] += size


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
