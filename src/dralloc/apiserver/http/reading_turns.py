"""Connections whose bytes take long to parse, such as heads of thousands of headers and bodies in chunks of one byte: one is read in each turn
of the event loop.

To parse what arrived takes up to ten milliseconds, before it is known whose request it is. Without turns, each request would wait for the
bytes of all such clients. Others are read at once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, Protocol

# A request takes less, and a piece of a body that is sent as it is, too.
PARSED_SOON_S: Final = 0.001


class TurnTaker(Protocol):
    def wait_for_turn(self) -> None:
        """Read nothing more until the turn."""
        ...

    def take_turn(self) -> None: ...


class ReadingTurns:
    """Which connections wait for their next turn to be read."""

    def __init__(self) -> None:
        self._waiting: deque[TurnTaker] = deque()

    def charge(self, connection: TurnTaker, seconds: float) -> None:
        """The bytes of the connection took so long to parse."""
        if seconds <= PARSED_SOON_S:
            return
        connection.wait_for_turn()
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._give)
        self._waiting.append(connection)

    def _give(self) -> None:
        self._waiting.popleft().take_turn()
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._give)
