"""Short requests over sockets: connections are reused, answers are complete, and writes are not sent twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import pytest
import uvloop

from dralloc.client.http_transport import HttpTransport
from dralloc.client.kubeconfig import ConnectionConfig
from dralloc.client.transport import ClientRequest, TransportError

GET = ClientRequest(method="GET", path="/api/v1/pods/a b", query={"labelSelector": "a=b"})
POST = ClientRequest(
    method="POST", path="/api/v1/pods", headers={"Content-Type": "application/json"}, body=b'{"kind": "Pod"}'
)

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"
# At the end of an answer: the server then closes the connection.
HANG_UP = b"<end>"


class ScriptedServer:
    """Answers from a script, one entry per request, over any number of connections; records the requests."""

    def __init__(self, answers: Sequence[bytes]) -> None:
        self._answers = iter(answers)
        self.requests: list[bytes] = []
        self.connections = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            is_kept = True
            while is_kept:
                answer = await self._next(reader)
                is_kept = not answer.endswith(HANG_UP)
                writer.write(answer.removesuffix(HANG_UP))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _next(self, reader: asyncio.StreamReader) -> bytes:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next((line for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")), b":0")
        body = await reader.readexactly(int(length.split(b":")[1]))
        self.requests.append(head + body)
        return next(self._answers)


@asynccontextmanager
async def scripted(*answers: bytes) -> AsyncIterator[tuple[HttpTransport, ScriptedServer]]:
    script = ScriptedServer(answers)
    server = await asyncio.start_server(script.serve, "127.0.0.1", 0)
    transport = HttpTransport(
        ConnectionConfig(server=f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", token="t")
    )
    try:
        yield transport, script
    finally:
        await transport.close()
        server.close()
        await server.wait_closed()


def with_server(
    *answers: bytes,
) -> Callable[[Callable[[HttpTransport, ScriptedServer], Awaitable[None]]], Callable[[], None]]:
    def decorate(test: Callable[[HttpTransport, ScriptedServer], Awaitable[None]]) -> Callable[[], None]:
        async def main() -> None:
            async with scripted(*answers) as (transport, server):
                await test(transport, server)

        def run() -> None:
            asyncio.run(main())

        return run

    return decorate


@with_server(OK, OK, OK)
async def test_sequential_requests_share_a_connection(transport: HttpTransport, server: ScriptedServer) -> None:
    for _ in range(3):
        assert (await transport.send(GET)).body == b"{}"
    assert server.connections == 1


@with_server(*[OK] * 4)
async def test_concurrent_requests_have_separate_connections(transport: HttpTransport, server: ScriptedServer) -> None:
    await asyncio.gather(*(transport.send(GET) for _ in range(4)))
    assert server.connections == 4


@with_server(OK, OK)
async def test_json_is_the_default_accept_header(transport: HttpTransport, server: ScriptedServer) -> None:
    await transport.send(GET)
    await transport.send(ClientRequest(method="GET", path="/api", headers={"Accept": "application/json;as=Table"}))
    wanted = [[line for line in sent.split(b"\r\n") if line.startswith(b"Accept:")] for sent in server.requests]
    assert wanted == [[b"Accept: application/json"], [b"Accept: application/json;as=Table"]]


@with_server(OK, OK)
async def test_requests_are_sent_as_given(transport: HttpTransport, server: ScriptedServer) -> None:
    await transport.send(GET)
    await transport.send(POST)
    get, post = server.requests
    assert get.startswith(b"GET /api/v1/pods/a%20b?labelSelector=a%3Db HTTP/1.1\r\n")
    assert b"\r\nAuthorization: Bearer t\r\n" in get
    assert b"content-length" not in get.lower()
    assert post.endswith(b'Content-Type: application/json\r\nContent-Length: 15\r\n\r\n{"kind": "Pod"}')


@with_server(OK)
async def test_large_bodies_are_sent_whole(transport: HttpTransport, server: ScriptedServer) -> None:
    await transport.send(ClientRequest(method="POST", path="/", headers=POST.headers, body=b"x" * 3_000_000))
    head, _, body = server.requests[0].partition(b"\r\n\r\n")
    assert (b"Content-Length: 3000000" in head, len(body)) == (True, 3_000_000)


@with_server(
    b'HTTP/1.1 409 Conflict\r\ntransfer-encoding: chunked\r\nWarning: 299 - "old \\"field\\""\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n'
)
async def test_status_chunks_and_warnings_are_parsed(transport: HttpTransport, server: ScriptedServer) -> None:
    response = await transport.send(POST)
    assert (response.status, response.body, response.warnings) == (409, b"abcde", ('old "field"',))


@with_server(OK, HANG_UP, OK)
async def test_a_read_is_retried_if_a_kept_connection_is_closed(
    transport: HttpTransport, server: ScriptedServer
) -> None:
    await transport.send(GET)
    assert (await transport.send(GET)).status == 200
    assert server.connections == 2


@with_server(OK, HANG_UP, OK)
async def test_a_write_is_never_retried(transport: HttpTransport, server: ScriptedServer) -> None:
    await transport.send(GET)
    with pytest.raises(TransportError, match="closed the connection"):
        await transport.send(POST)
    assert len(server.requests) == 2


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_a_write_on_a_new_connection_is_never_retried(method: str) -> None:
    async def main() -> None:
        async with scripted(HANG_UP, OK) as (transport, server):
            with pytest.raises(TransportError, match="closed the connection"):
                await transport.send(ClientRequest(method=method, path="/", headers=POST.headers, body=POST.body))
            assert len(server.requests) == 1

    asyncio.run(main())


@pytest.mark.parametrize(
    "answer",
    [HANG_UP, b"HTTP/1.1 200 OK\r\ncontent-length: 20\r\n\r\nhalf" + HANG_UP, b"what?\r\n\r\n"],
    ids=["nothing", "half an answer", "something else"],
)
def test_an_invalid_answer_is_an_error(answer: bytes) -> None:
    async def main() -> None:
        async with scripted(answer) as (transport, _):
            with pytest.raises(TransportError):
                await transport.send(POST)

    asyncio.run(main())


@pytest.mark.parametrize("address", ["http://127.0.0.1:1", "localhost:6443", "/nowhere"])
def test_an_unreachable_server_is_named(address: str) -> None:
    async def main() -> None:
        transport = HttpTransport(ConnectionConfig(server=address))
        with pytest.raises(TransportError, match="no answer from"):
            await transport.send(GET)
        await transport.close()

    asyncio.run(main())


@pytest.mark.parametrize("turns", range(12))
@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_a_request_cancelled_while_connecting_does_not_block_closing(
    new_loop: Callable[[], asyncio.AbstractEventLoop], turns: int
) -> None:
    async def main() -> None:
        async with scripted(OK) as (transport, _):
            asking = asyncio.create_task(transport.send(GET))
            for _ in range(turns):
                await asyncio.sleep(0)
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            async with asyncio.timeout(60):
                await transport.close()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main())
