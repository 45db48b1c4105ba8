"""HTTP on a connection: how requests arrive, and how their responses are framed."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest
import uvloop

from dralloc.server.access.users import ADMINISTRATOR
from dralloc.server.http.application import ApiApplication
from dralloc.server.http.authentication import Authenticator
from dralloc.server.http.connection_gate import ConnectionGate
from dralloc.server.http.exchange import Exchange
from dralloc.server.http.limited_connection import ConnectionHost, LimitedConnection
from dralloc.server.http.listener import ListenAddress, listen
from dralloc.server.http.listener_limits import ListenerLimits
from dralloc.server.http.messages import HttpResponse
from tests.support.api_server import api_server

HOST = b"host: localhost\r\n"
NAMESPACE = b'{"kind":"Namespace","apiVersion":"v1","metadata":{"generateName":"n"}}'


@dataclass(frozen=True, slots=True)
class Case:
    what: str
    sent: tuple[bytes, ...]
    # What the responses contain, in this order, and what they do not.
    answered: tuple[bytes, ...]
    absent: tuple[bytes, ...] = ()


def request(line: bytes, *headers: bytes, body: bytes = b"") -> bytes:
    return line + b"\r\n" + HOST + b"".join(header + b"\r\n" for header in headers) + b"\r\n" + body


CLOSE = b"connection: close"
LENGTH = b"content-length: %d" % len(NAMESPACE)
JSON = b"content-type: application/json"
CASES = (
    Case(
        "two requests, the second one ends the connection",
        (request(b"GET /healthz HTTP/1.1") + request(b"GET /livez HTTP/1.1", CLOSE),),
        (b"HTTP/1.1 200 OK\r\n", b"\r\n\r\nok", b"HTTP/1.1 200 OK\r\n", b"connection: close\r\n\r\nok"),
    ),
    Case(
        "a request that arrives byte by byte",
        tuple(bytes((byte,)) for byte in request(b"GET /healthz HTTP/1.1", CLOSE)),
        (b"HTTP/1.1 200 OK\r\n", b"ok"),
    ),
    Case(
        "only the head",
        (request(b"HEAD /version HTTP/1.1", CLOSE),),
        (b"content-length: ", b"\r\n\r\n"),
        (b"gitVersion",),
    ),
    Case(
        "a stream of which only the head is wanted has no chunks",
        (request(b"HEAD /api/v1/namespaces?watch=1&timeoutSeconds=1 HTTP/1.1", CLOSE),),
        (b"HTTP/1.1 ",),
        (b"ADDED",),
    ),
    Case(
        "HTTP/1.0 ends the connection",
        (b"GET /healthz HTTP/1.0\r\nhost: localhost\r\n\r\n",),
        (b"200 OK", b"connection: close"),
    ),
    Case(
        "a stream for HTTP/1.0 has no chunks",
        (b"GET /api/v1/namespaces?watch=1&timeoutSeconds=1 HTTP/1.0\r\nhost: localhost\r\n\r\n",),
        (b"connection: close\r\n\r\n{", b'"type":"ADDED"'),
        (b"chunked", b"\r\n0\r\n\r\n"),
    ),
    Case(
        "a stream in chunks, then another request",
        (
            request(b"GET /api/v1/namespaces?watch=1&timeoutSeconds=1 HTTP/1.1"),
            request(b"GET /healthz HTTP/1.1", CLOSE),
        ),
        (b"transfer-encoding: chunked", b'"type":"ADDED"', b"\r\n0\r\n\r\n", b"200 OK", b"ok"),
    ),
    Case(
        "a body in chunks",
        (
            request(b"POST /api/v1/namespaces HTTP/1.1", JSON, CLOSE, b"transfer-encoding: chunked"),
            b"%x\r\n%b\r\n" % (20, NAMESPACE[:20]),
            b"%x\r\n%b\r\n0\r\n\r\n" % (len(NAMESPACE) - 20, NAMESPACE[20:]),
        ),
        (b"201 Created", b'"name":"n'),
    ),
    Case(
        "a client that waits to be told to go on",
        (request(b"POST /api/v1/namespaces HTTP/1.1", JSON, CLOSE, LENGTH, b"expect: 100-continue"), NAMESPACE),
        (b"HTTP/1.1 100 Continue\r\n\r\n", b"201 Created"),
    ),
    Case(
        "a body that came with its head needs no word to go on",
        (request(b"POST /api/v1/namespaces HTTP/1.1", JSON, CLOSE, LENGTH, b"expect: 100-continue", body=NAMESPACE),),
        (b"201 Created",),
        (b"100 Continue",),
    ),
    Case(
        "a body that is too large is refused before it arrives",
        (request(b"POST /api/v1/namespaces HTTP/1.1", JSON, b"content-length: 99999999", b"expect: 100-continue"), b""),
        (b"413 Request Entity Too Large", CLOSE),
        (b"100 Continue",),
    ),
    Case(
        "a request for an upgrade is an ordinary one",
        (
            request(b"GET /healthz HTTP/1.1", b"connection: upgrade", b"upgrade: websocket"),
            request(b"GET /livez HTTP/1.1", CLOSE),
        ),
        (b"200 OK", b"ok", b"200 OK", CLOSE),
    ),
    Case(
        "what is no request does not replace the answer to the request before it",
        (request(b"POST /api/v1/namespaces HTTP/1.1", JSON, LENGTH, body=NAMESPACE) + b"\x00",),
        (b"201 Created", b"HTTP/1.1 400 Bad Request", CLOSE),
    ),
    Case(
        "a body in wrong chunks",
        (request(b"POST /api/v1/namespaces HTTP/1.1", JSON, b"transfer-encoding: chunked"), b"x\r\n"),
        (b"HTTP/1.1 400 Bad Request", CLOSE),
        (b"201 Created",),
    ),
    Case(
        "a trailer that ends the connection",
        (
            request(b"POST /api/v1/namespaces HTTP/1.1", JSON, b"transfer-encoding: chunked"),
            b"%x\r\n%b\r\n0\r\nconnection: close\r\n\r\n" % (len(NAMESPACE), NAMESPACE)
            + request(b"GET /healthz HTTP/1.1"),
        ),
        (b"201 Created", CLOSE),
        (b"200 OK",),
    ),
    Case(
        "HTTP/1.0 knows no word to go on",
        (b"POST /api/v1/namespaces HTTP/1.0\r\nexpect: 100-continue\r\n%b%b\r\n\r\n" % (HOST, LENGTH), NAMESPACE),
        (b"HTTP/1.1 ", CLOSE),
        (b"100 Continue",),
    ),
    Case("a method of no standard", (request(b"BREW /api/v1/namespaces HTTP/1.1", CLOSE),), (b"HTTP/1.1 405 ",)),
    Case("no request", (b"\x16\x03\x01\r\n\r\n",), (b"HTTP/1.1 400 Bad Request", CLOSE)),
    Case("a URL that is none", (request(b"GET healthz HTTP/1.1"),), (b"HTTP/1.1 400 Bad Request", CLOSE)),
    Case(
        "more requests at once than are kept",
        (request(b"GET /healthz HTTP/1.1") * 100,),
        (b"HTTP/1.1 400 Bad Request", CLOSE),
    ),
    Case("an escaped path", (request(b"GET /health%7A HTTP/1.1", CLOSE),), (b"200 OK", b"ok")),
)


async def answered(port: int, pieces: tuple[bytes, ...]) -> bytes:
    """Everything that the server sends until it closes the connection; the pieces are sent one by one."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        async with asyncio.timeout(30):
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0.001)
            if len(pieces) == 2 and not pieces[1]:
                writer.write_eof()
            return await reader.read()
    finally:
        writer.close()


@pytest.mark.slow
def test_requests_and_responses() -> None:
    async def main() -> None:
        async with (
            api_server() as server,
            listen(ApiApplication(server, Authenticator({}, without_credential=ADMINISTRATOR)), ListenAddress()) as url,
        ):
            for case in CASES:
                heard = await answered(int(url.rsplit(":", 1)[1]), case.sent)
                place = 0
                for text in case.answered:
                    assert text in heard[place:], (case.what, text, heard)
                    place = heard.index(text, place) + len(text)
                assert not [text for text in case.absent if text in heard], (case.what, heard)

    asyncio.run(main())


Serve = Callable[[Exchange], Awaitable[None]]


async def with_client(serve: Serve, act: Callable[[LimitedConnection, socket.socket], Awaitable[Any]]) -> list[str]:
    """Let a connection answer one request; returns the errors of the event loop."""
    loop = asyncio.get_running_loop()
    errors: list[str] = []
    loop.set_exception_handler(lambda _, context: errors.append(context["message"]))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        ours, _ = listener.accept()
    host = ConnectionHost(serve, ConnectionGate(10), ListenerLimits())
    _, connection = await loop.create_connection(lambda: LimitedConnection(host, ours), sock=ours)
    client.send(request(b"GET / HTTP/1.1"))
    async with asyncio.timeout(30):
        await act(connection, client)
        while host.tasks or host.open:
            await asyncio.sleep(0.001)
    return errors


def run(work: Awaitable[list[str]]) -> list[str]:
    async def main() -> list[str]:
        return await work

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main())


def test_a_response_to_a_client_that_left_is_dropped() -> None:
    left = asyncio.Event()

    async def serve(exchange: Exchange) -> None:
        await left.wait()
        await exchange.begin(HttpResponse())
        await exchange.send(b"piece")
        exchange.push(b"piece")
        exchange.end()

    async def act(connection: LimitedConnection, client: socket.socket) -> None:
        client.close()
        while not connection.is_gone:
            await asyncio.sleep(0.001)
        left.set()

    assert run(with_client(serve, act)) == []


def all_heard(serve: Serve) -> bytes:
    """What a client hears until the server closes the connection, after its request is served so."""
    heard: list[bytes] = []

    async def act(_: LimitedConnection, client: socket.socket) -> None:
        client.setblocking(False)
        while piece := await asyncio.get_running_loop().sock_recv(client, 4096):
            heard.append(piece)

    assert run(with_client(serve, act)) == []
    return b"".join(heard)


@pytest.mark.parametrize(
    ("begins", "want"), [(False, b"HTTP/1.1 500 Internal Server Error"), (True, b"HTTP/1.1 200 OK")]
)
def test_a_fault_of_the_server_ends_the_connection(begins: bool, want: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async def serve(exchange: Exchange) -> None:
        if begins:
            await exchange.begin(HttpResponse())
        raise ZeroDivisionError

    heard = all_heard(serve)
    assert heard.startswith(want)
    assert b"0\r\n\r\n" not in heard
    assert "GET /" in caplog.text
    assert "ZeroDivisionError" in caplog.text


def test_a_header_that_would_be_two_is_not_sent() -> None:
    async def serve(exchange: Exchange) -> None:
        await exchange.respond(HttpResponse(headers=((b"warning", b"a\r\nset-cookie: b"),)))

    heard = all_heard(serve)
    assert heard.startswith(b"HTTP/1.1 500 ")
    assert b"set-cookie" not in heard
