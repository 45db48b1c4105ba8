"""Reads request bodies; bounds the size of each, of those of one user, and of all together."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from contextlib import nullcontext, suppress
from typing import Any, Final

from dralloc.primitives.errors import ApiError, BadRequest, ErrorDetails, RequestEntityTooLarge, TooManyRequests

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]

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

    async def read(self, receive: Receive, headers: Mapping[bytes, bytes], user: str) -> bytes:
        """The body. It counts as held until it is released."""
        if int(headers.get(b"content-length", b"0")) > BODY_BYTES_MAX:
            raise too_large()
        first = await receive()
        try:
            # Most bodies arrive in one piece and need no timer.
            async with asyncio.timeout(BODY_TIME_MAX_S) if first.get("more_body") else nullcontext():
                return await self._read_pieces(receive, first, user)
        except TimeoutError:
            raise BadRequest(f"the request body did not arrive within {BODY_TIME_MAX_S:.0f} seconds") from None

    def release(self, user: str, size: int) -> None:
        self._held[user] -= size
        if not self._held[user]:
            del self._held[user]

    async def _read_pieces(self, receive: Receive, message: Message, user: str) -> bytes:
        pieces: list[bytes] = []
        size = 0
        try:
            while True:
                piece = _piece(message)
                pieces.append(piece)
                size += len(piece)
                self._held[user] += len(piece)
                self._check(size, user)
                if not message.get("more_body"):
                    return b"".join(pieces)
                message = await receive()
        except BaseException:
            self.release(user, size)
            raise

    def _check(self, size: int, user: str) -> None:
        if size > BODY_BYTES_MAX:
            raise too_large()
        if self._held[user] > BODIES_BYTES_OF_USER_MAX or self._held.total() > BODIES_BYTES_MAX:
            raise TooManyRequests(
                "too many large requests at once, please try again later", details=ErrorDetails(retry_after_s=1)
            )


async def drain(receive: Receive) -> None:
    """Read and drop the rest of a body, within limits."""
    left = DRAINED_BYTES_MAX
    with suppress(TimeoutError, ApiError):
        async with asyncio.timeout(DRAIN_TIME_MAX_S):
            while left > 0:
                message = await receive()
                left -= len(_piece(message))
                if not message.get("more_body"):
                    return


def too_large() -> RequestEntityTooLarge:
    return RequestEntityTooLarge(f"Request entity too large: limit is {BODY_BYTES_MAX}")


def _piece(message: Message) -> bytes:
    if message["type"] == "http.disconnect":
        raise BadRequest("the client disconnected before the end of the body")
    piece: bytes = message.get("body", b"")
    return piece
