"""TLS handshakes, a few in each turn of the event loop.

A handshake takes a millisecond of the loop, and begins when the client has sent its first bytes: without turns, clients that connect at
the same moment would all get theirs in one turn, and every request would wait for it. Addresses share the turns equally. Clients that
connect and send nothing take no turn.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Final

from dralloc.apiserver.http.fair_queue import FairQueue

HANDSHAKES_PER_TURN: Final = 4


class HandshakeTurns:
    """Decides when the handshake of a connection begins."""

    def __init__(self) -> None:
        self._waiting: FairQueue[asyncio.Future[None]] = FairQueue()

    async def wait(self, client: socket.socket, address: str) -> None:
        """Returns when the client has sent something, or has disconnected, and it is its turn."""
        loop = asyncio.get_running_loop()
        has_sent = loop.create_future()
        loop.add_reader(client, _resolve, has_sent)
        try:
            await has_sent
        finally:
            loop.remove_reader(client)
        turn = loop.create_future()
        if not self._waiting:
            loop.call_soon(self._give)
        self._waiting.push((address,), turn)
        await turn

    def _give(self) -> None:
        for _ in range(min(HANDSHAKES_PER_TURN, len(self._waiting))):
            _resolve(self._waiting.pop()[1])
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._give)
        else:
            self._waiting.forget()


def _resolve(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
