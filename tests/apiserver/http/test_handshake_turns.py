"""Handshakes of clients that connect at the same moment are spread over turns of the loop."""

from __future__ import annotations

import asyncio
import functools
import socket
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

from dralloc.apiserver.http.handshake_turns import HANDSHAKES_PER_TURN, HandshakeTurns


class Clients:
    """Connections that wait for their handshakes; `begun` has the address of each that began, with the number of the turn."""

    def __init__(self) -> None:
        self.begun: list[tuple[int, str]] = []
        self._turn = 0
        self._handshakes = HandshakeTurns()
        self._sockets: list[socket.socket] = []

    def connect(self, address: str, *, sends: bytes = b"\x16") -> asyncio.Task[None]:
        client, accepted = socket.socketpair()
        self._sockets += (client, accepted)
        accepted.setblocking(False)
        client.send(sends)
        return asyncio.create_task(self._begin(accepted, address))

    def count_turns(self) -> None:
        self._turn += 1
        asyncio.get_running_loop().call_soon(self.count_turns)

    def close(self) -> None:
        for each in self._sockets:
            each.close()

    async def _begin(self, accepted: socket.socket, address: str) -> None:
        await self._handshakes.wait(accepted, address)
        self.begun.append((self._turn, address))


def in_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Run a test in an event loop of its own."""

    @functools.wraps(test)
    def run() -> None:
        asyncio.run(test())

    return run


@contextmanager
def connected() -> Iterator[Clients]:
    clients = Clients()
    clients.count_turns()
    try:
        yield clients
    finally:
        clients.close()


@in_loop
async def test_a_turn_has_only_a_few_handshakes() -> None:
    with connected() as clients:
        await asyncio.gather(*(clients.connect("10.0.0.1") for _ in range(50)))
        in_turns = Counter(turn for turn, _ in clients.begun)
    assert len(clients.begun) == 50
    assert max(in_turns.values()) == HANDSHAKES_PER_TURN


@in_loop
async def test_a_client_of_another_address_does_not_wait_for_a_crowd() -> None:
    with connected() as clients:
        crowd = [clients.connect("10.0.0.1") for _ in range(50)]
        await asyncio.gather(*crowd, clients.connect("10.0.0.2"))
    assert [address for _, address in clients.begun].index("10.0.0.2") <= 2 * HANDSHAKES_PER_TURN


@in_loop
async def test_clients_that_send_nothing_take_no_turn() -> None:
    with connected() as clients:
        silent = [clients.connect("10.0.0.1", sends=b"") for _ in range(50)]
        await clients.connect("10.0.0.1")
        assert len(clients.begun) == 1
        for each in silent:
            each.cancel()
        await asyncio.gather(*silent, return_exceptions=True)


@in_loop
async def test_a_client_that_disconnects_while_it_waits_leaves_its_turn() -> None:
    with connected() as clients:
        crowd = [clients.connect("10.0.0.1") for _ in range(20)]
        while not clients.begun:
            await asyncio.sleep(0)
        for each in crowd[10:15]:
            each.cancel()
        await asyncio.gather(*crowd, return_exceptions=True)
        await clients.connect("10.0.0.1")
    assert len(clients.begun) == 16
