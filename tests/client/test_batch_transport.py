"""Writes that are sent at the same time share requests; each has its own answer or error."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import msgspec
import pytest

from dralloc.client.batch_transport import BYTES_MAX, UNDER_WAY_MAX, WRITES_MAX, BatchTransport
from dralloc.client.transport import ClientRequest, ClientResponse, Stream, TransportError
from dralloc.kube.dralloc_v1 import BATCH_PATH, EXTENSIONS_PATH
from dralloc.testing.virtual_time import run_virtual


class Server:
    """Answers after a second, in virtual time. Each write is answered with its own body."""

    def __init__(self, batch_status: int = 200, *, has_extension: bool = True) -> None:
        self.batch_status = batch_status
        self.has_extension = has_extension
        self.is_down = False
        # In place of the responses to a batch.
        self.answer: bytes | None = None
        # The numbers of writes in each request.
        self.requests: list[int] = []

    async def send(self, request: ClientRequest) -> ClientResponse:
        if request.path == EXTENSIONS_PATH:
            extensions = ["batch"] if self.has_extension else []
            return ClientResponse(status=200, body=msgspec.json.encode({"extensions": extensions}))
        writes: list[Any] = msgspec.json.decode(request.body)["requests"] if request.path == BATCH_PATH else [{}]
        self.requests.append(len(writes))
        await asyncio.sleep(1)
        if self.is_down:
            raise TransportError("no answer")
        if request.path != BATCH_PATH:
            return ClientResponse(status=200, body=request.body)
        if self.batch_status != 200:
            return ClientResponse(status=self.batch_status, body=b"{}")
        if self.answer is not None:
            return ClientResponse(status=200, body=self.answer)
        responses = [{"status": 200, "body": write["body"]} for write in writes]
        return ClientResponse(status=200, body=msgspec.json.encode({"responses": responses}))

    def stream(self, request: ClientRequest) -> AbstractAsyncContextManager[Stream]:
        raise AssertionError("only writes are sent")

    async def close(self) -> None:
        pass


def write(number: int, *, size: int = 1) -> ClientRequest:
    headers = {"Content-Type": "application/merge-patch+json"}
    body = (b"%d" % number).ljust(size)
    return ClientRequest(method="PATCH", path="/api/v1/pods/p", headers=headers, body=body)


def with_server(server: Server, test: Callable[[BatchTransport], Awaitable[Any]]) -> None:
    async def main() -> None:
        await test(BatchTransport(server))

    run_virtual(main())


async def send_all(transport: BatchTransport, count: int) -> list[ClientResponse | BaseException]:
    return await asyncio.gather(*(transport.send(write(number)) for number in range(count)), return_exceptions=True)


def numbers(answers: list[ClientResponse | BaseException]) -> list[int]:
    return [int(answer.body) for answer in answers if isinstance(answer, ClientResponse)]


def test_writes_of_one_turn_are_sent_together_and_answered_one_by_one() -> None:
    server = Server()

    async def test(transport: BatchTransport) -> None:
        assert numbers(await send_all(transport, 200)) == list(range(200))

    with_server(server, test)
    assert server.requests == [WRITES_MAX, WRITES_MAX, WRITES_MAX, 200 - 3 * WRITES_MAX]


def test_a_single_write_is_sent_as_it_is_and_others_wait_for_an_answer() -> None:
    server = Server()

    async def test(transport: BatchTransport) -> None:
        alone = [asyncio.ensure_future(transport.send(write(number))) for number in range(1)]
        await asyncio.sleep(0.1)
        more = asyncio.ensure_future(send_all(transport, 3))
        await asyncio.sleep(0.1)
        last = asyncio.ensure_future(send_all(transport, 5))
        await asyncio.gather(*alone, more, last)

    with_server(server, test)
    assert UNDER_WAY_MAX == 2
    assert server.requests == [1, 3, 5]


@pytest.mark.parametrize("server", [Server(404), Server(405), Server(has_extension=False)], ids=["404", "405", "none"])
def test_other_servers_get_the_writes_one_by_one(server: Server) -> None:
    async def test(transport: BatchTransport) -> None:
        assert numbers(await send_all(transport, 3)) == [0, 1, 2]

    with_server(server, test)
    assert server.requests[-3:] == [1, 1, 1]


def test_a_batch_without_an_answer_leaves_each_write_without_one() -> None:
    server = Server()
    server.is_down = True

    async def test(transport: BatchTransport) -> None:
        answers = await send_all(transport, 3)
        assert [type(answer) for answer in answers] == [TransportError] * 3
        server.is_down = False
        assert numbers(await send_all(transport, 3)) == [0, 1, 2]

    with_server(server, test)
    assert server.requests == [3, 3]


@pytest.mark.parametrize(
    "answer",
    [b'{"responses":[{"status":200,"body":{}}]}', b'{"responses":[]}', b'{"responses":[{', b"\xff", b"[]", b""],
    ids=["too few", "none", "incomplete", "no text", "a list", "empty"],
)
def test_writes_have_no_answer_if_that_of_their_batch_cannot_be_assigned(answer: bytes) -> None:
    server = Server()
    server.answer = answer

    async def test(transport: BatchTransport) -> None:
        answers = await send_all(transport, 3)
        assert [type(each) for each in answers] == [TransportError] * 3

    with_server(server, test)


def test_a_batch_is_not_larger_than_a_server_takes() -> None:
    server = Server()

    async def test(transport: BatchTransport) -> None:
        sizes = [BYTES_MAX // 2, BYTES_MAX // 4, BYTES_MAX // 2, 2 * BYTES_MAX, 1, 1]
        sent = (transport.send(write(number, size=size)) for number, size in enumerate(sizes))
        assert numbers(await asyncio.gather(*sent)) == list(range(len(sizes)))

    with_server(server, test)
    assert server.requests == [2, 1, 1, 2]


def test_writes_that_wait_are_not_sent_after_all_were_abandoned() -> None:
    server = Server()

    async def test(transport: BatchTransport) -> None:
        sent = []
        for number in range(UNDER_WAY_MAX + 2):
            sent.append(asyncio.ensure_future(transport.send(write(number))))
            await asyncio.sleep(0.1)
        await transport.abandon()
        await asyncio.sleep(2)
        assert all(each.cancelled() for each in sent)

    with_server(server, test)
    assert server.requests == [1] * UNDER_WAY_MAX


def test_the_refusal_of_a_batch_is_the_answer_to_each_write() -> None:
    async def test(transport: BatchTransport) -> None:
        answers = await send_all(transport, 3)
        assert [answer.status for answer in answers if isinstance(answer, ClientResponse)] == [429] * 3

    with_server(Server(429), test)


def test_a_write_that_is_cancelled_before_it_is_sent_is_not_sent() -> None:
    server = Server()

    async def test(transport: BatchTransport) -> None:
        under_way = []
        for number in range(UNDER_WAY_MAX):
            under_way.append(asyncio.ensure_future(transport.send(write(number))))
            await asyncio.sleep(0.1)
        waiting = asyncio.ensure_future(transport.send(write(9)))
        await asyncio.sleep(0.1)
        waiting.cancel()
        await asyncio.gather(*under_way)
        await asyncio.sleep(2)

    with_server(server, test)
    assert server.requests == [1] * UNDER_WAY_MAX
