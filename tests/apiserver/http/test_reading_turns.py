"""Bytes that take long to parse are spread over turns of the loop, one connection in each."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
import uvloop

from dralloc.access.users import ADMINISTRATOR
from dralloc.apiserver.http import reading_turns
from dralloc.apiserver.http.application import ApiApplication
from dralloc.apiserver.http.authentication import Authenticator
from dralloc.apiserver.http.limited_connection import LimitedConnection
from dralloc.apiserver.http.listener import ListenAddress, listen
from tests.support.api_server import api_server

CLIENTS = 6
HEAD = b"POST /api/v1/namespaces HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n"
PIECES = b"1\r\n \r\n" * 200_000


async def answer_to_tiny_pieces(port: int) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(HEAD + PIECES + b"0\r\n\r\n")
    answer = await reader.readuntil(b"\r\n")
    writer.close()
    return answer


def test_of_the_clients_whose_bytes_take_long_one_is_read_in_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    turn = 0
    read: dict[LimitedConnection, list[int]] = {}
    receive = LimitedConnection.data_received

    def count(self: LimitedConnection, data: bytes) -> None:
        read.setdefault(self, []).append(turn)
        receive(self, data)

    monkeypatch.setattr(LimitedConnection, "data_received", count)
    # However fast the machine is.
    monkeypatch.setattr(reading_turns, "PARSED_SOON_S", -1.0)

    async def main() -> list[bytes]:
        def next_turn() -> None:
            nonlocal turn
            turn += 1
            asyncio.get_running_loop().call_soon(next_turn)

        next_turn()
        async with (
            api_server() as server,
            listen(ApiApplication(server, Authenticator({}, without_credential=ADMINISTRATOR)), ListenAddress()) as url,
        ):
            port = int(url.rsplit(":", 1)[1])
            return await asyncio.gather(*(answer_to_tiny_pieces(port) for _ in range(CLIENTS)))

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        answers = runner.run(main())
    # Not an object, and answered to all.
    assert answers == [b"HTTP/1.1 400 Bad Request\r\n"] * CLIENTS
    # The first bytes of a connection are read at once.
    later = Counter(turn for turns in read.values() for turn in turns[1:])
    assert len(later) > CLIENTS
    assert max(later.values()) == 1
