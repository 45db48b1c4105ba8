"""A bounded queue of bytes between a connection and its consumer."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

PIECES_MAX: Final = 64


class PieceQueue:
    """Pieces in order, then an end. A full queue makes its producer wait; the end is never lost."""

    def __init__(self) -> None:
        self._pieces: deque[bytes] = deque()
        self._is_ended = False
        self._changed = asyncio.Condition()

    async def put(self, piece: bytes) -> None:
        """Add a piece; after the end it is dropped."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._is_ended or len(self._pieces) < PIECES_MAX)
            if piece and not self._is_ended:
                self._pieces.append(piece)
            self._changed.notify_all()

    async def end(self) -> None:
        async with self._changed:
            self._is_ended = True
            self._changed.notify_all()

    async def get(self) -> bytes:
        """The next piece; empty at the end."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._is_ended or bool(self._pieces))
            piece = self._pieces.popleft() if self._pieces else b""
            self._changed.notify_all()
            return piece
