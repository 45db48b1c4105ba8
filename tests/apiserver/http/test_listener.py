"""The server on real sockets: authentication, and limits against bad clients."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from dralloc.apiserver.credentials.certificates import (
    retire_authorities,
    rotate_authority,
    rotate_server_certificate,
)
from dralloc.apiserver.http.listener_limits import ListenerLimits
from dralloc.apiserver.server_process import BadServerSettings, RunningServer, ServerSettings, run_server
from tests.support.client_certificates import client_certificate
from tests.support.local_api import CLAIMS, claim_document

pytestmark = pytest.mark.slow

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
# Long enough for a well-behaved client on a busy machine.
CUT_OFF_S = 3.0
PATIENT = ListenerLimits()


class Site:
    """A server and the connections that a test opens to it."""

    def __init__(self, server: RunningServer) -> None:
        self.server = server
        self._writers: list[asyncio.StreamWriter] = []

    async def connect(self, tls: ssl.SSLContext | None = None) -> Streams:
        return self._keep(*await asyncio.open_connection("127.0.0.1", self._port, ssl=tls))

    async def connect_reluctant(self) -> Streams:
        """A client that takes only a few bytes before it is asked to read. The kernel would take megabytes for it."""
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)
        connection.setblocking(False)
        await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", self._port))
        return self._keep(*await asyncio.open_connection(sock=connection, limit=1024))

    @property
    def _port(self) -> int:
        return int(self.server.url.rsplit(":", 1)[1])

    def _keep(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Streams:
        self._writers.append(writer)
        return reader, writer

    async def is_well(self) -> bool:
        """True if a well-behaved client is served."""
        return (await send(await self.connect(), "GET", CLAIMS))[0] == 200

    async def close(self) -> None:
        for writer in self._writers:
            writer.close()
            with suppress(OSError, ssl.SSLError):
                await writer.wait_closed()


@asynccontextmanager
async def running(directory: Path, limits: ListenerLimits = PATIENT, *, plain: bool = True) -> AsyncIterator[Site]:
    settings = ServerSettings(data_dir=directory, port=0, store="memory://", insecure_http=plain, limits=limits)
    async with asyncio.timeout(60), run_server(settings) as server:
        site = Site(server)
        try:
            yield site
        finally:
            await site.close()


def on_sockets(
    limits: ListenerLimits = PATIENT,
) -> Callable[[Callable[[Site], Coroutine[Any, Any, None]]], Callable[[Path], None]]:
    """A test that gets a server with these limits, over plain http."""

    def decorate(test: Callable[[Site], Coroutine[Any, Any, None]]) -> Callable[[Path], None]:
        async def main(directory: Path) -> None:
            async with running(directory, limits) as site:
                await test(site)

        def wrapper(tmp_path: Path) -> None:
            asyncio.run(main(tmp_path))

        return wrapper

    return decorate


async def send(streams: Streams, method: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, bytes]:
    """Sends one request on a connection; returns the response."""
    reader, writer = streams
    lines = [f"{method} {path} HTTP/1.1", f"content-length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in {"host": "localhost", **headers}.items()]
    writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length:", 1)[1].split(b"\r\n", 1)[0])
    return int(head.split(b" ", 2)[1]), await reader.readexactly(length)


async def closed(reader: asyncio.StreamReader) -> bytes:
    """Everything until the server closes or resets the connection."""
    heard = b""
    with suppress(ConnectionResetError):
        while piece := await reader.read(1 << 16):
            heard += piece
    return heard


async def until_open_watches(streams: Streams, count: int) -> None:
    """Waits until the server has this number of watches; the test's time limit bounds this."""
    while (
        f'apiserver_longrunning_requests{{verb="WATCH"}} {count}\n'.encode()
        not in (await send(streams, "GET", "/metrics"))[1]
    ):
        await asyncio.sleep(0)


# --- who is let in ------------------------------------------------------------------------------------------


def test_tls_and_tokens(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path, plain=False) as site:
            trusting = ssl.create_default_context(cafile=str(tmp_path / "tls" / "ca.crt"))
            streams = await site.connect(trusting)
            code, body = await send(streams, "GET", CLAIMS)
            assert (code, json.loads(body)["reason"]) == (401, "Unauthorized")
            assert (await send(streams, "GET", "/metrics"))[0] == 401
            assert (await send(streams, "GET", "/healthz"))[0] == 401
            assert (await send(streams, "GET", "/healthz", authorization=f"Bearer {site.server.token}"))[0] == 200
            assert (await send(streams, "GET", CLAIMS, authorization="Bearer nope"))[0] == 401
            assert (await send(streams, "GET", CLAIMS, authorization=f"Bearer {site.server.token}"))[0] == 200
            streams[1].close()
            with pytest.raises(ssl.SSLError):
                await site.connect(ssl.create_default_context())

    asyncio.run(main())


def test_a_client_certificate_of_the_servers_authority_is_a_user(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path, plain=False) as site:
            for signer, code in ((tmp_path / "tls", 403), (None, None)):
                context = ssl.create_default_context(cafile=str(tmp_path / "tls" / "ca.crt"))
                context.load_cert_chain(*client_certificate(tmp_path, signer, "system:node:n1", "system:nodes"))
                if code is None:
                    with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
                        await send(await site.connect(context), "GET", CLAIMS)
                    continue
                streams = await site.connect(context)
                pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
                foreign = {"metadata": {"name": "s"}, "spec": {"driver": "d", "nodeName": "n2", "pool": pool}}
                path = "/apis/resource.k8s.io/v1/resourceslices"
                assert (await send(streams, "POST", path, json.dumps(foreign).encode()))[0] == code
                assert (await send(streams, "GET", f"{path}?fieldSelector=spec.nodeName%3Dn1"))[0] == 200
                streams[1].close()

    asyncio.run(main())


@pytest.mark.slow
def test_a_retired_authority_ends_the_connections_of_its_clients(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path, plain=False) as site:
            directory = tmp_path / "tls"
            token = f"Bearer {site.server.token}"
            trusting = ssl.create_default_context(cafile=str(directory / "ca.crt"))
            by_token = await site.connect(trusting)
            assert (await send(by_token, "GET", CLAIMS, authorization=token))[0] == 200
            trusting.load_cert_chain(*client_certificate(tmp_path, directory, "system:node:n1", "system:nodes"))
            by_certificate = await site.connect(trusting)
            assert (await send(by_certificate, "GET", "/version"))[0] == 200
            now = datetime.now(UTC)
            rotate_authority(directory, now)
            rotate_server_certificate(directory, now)
            newer = ssl.create_default_context(cafile=str(directory / "ca.crt"))
            newer.load_cert_chain(*client_certificate(tmp_path, directory, "system:node:n2", "system:nodes"))
            with_new_certificate = await until_answered(site, newer)
            assert retire_authorities(directory) == 1
            await closed(by_certificate[0])
            assert (await send(by_token, "GET", CLAIMS, authorization=token))[0] == 200
            assert (await send(with_new_certificate, "GET", "/version"))[0] == 200

    asyncio.run(main())


async def until_answered(site: Site, context: ssl.SSLContext) -> Streams:
    """A connection with an answer, when the server has read its new certificates; the test's time limit bounds this."""
    while True:
        with suppress(ssl.SSLError, ConnectionError, asyncio.IncompleteReadError):
            streams = await site.connect(context)
            await send(streams, "GET", "/version")
            return streams


def test_plain_http_is_limited_to_loopback(tmp_path: Path) -> None:
    async def main() -> None:
        settings = ServerSettings(data_dir=tmp_path, bind="0.0.0.0", port=0, store="memory://", insecure_http=True)
        with pytest.raises(BadServerSettings, match=r"0\.0\.0\.0"):
            async with run_server(settings):
                pass

    asyncio.run(main())


@pytest.mark.parametrize(
    ("accepted", "headers"),
    [
        (True, {"host": "localhost:8642"}),
        (True, {"host": "localhost:8642", "origin": "http://localhost:8642"}),
        (False, {"host": "rebound.example.com:8642"}),
        (False, {"host": "localhost:8642", "origin": "http://example.com"}),
    ],
)
def test_plain_http_refuses_other_sites_with_and_without_a_token(
    tmp_path: Path, accepted: bool, headers: dict[str, str]
) -> None:
    async def main() -> None:
        async with running(tmp_path) as site:
            for credential in ({}, {"authorization": f"Bearer {site.server.token}"}):
                for method, path, code in (("GET", CLAIMS, 200), ("POST", CLAIMS, 201), ("GET", "/healthz", 200)):
                    sent = json.dumps(claim_document(f"c{len(credential)}")).encode() if method == "POST" else b""
                    answer, body = await send(await site.connect(), method, path, sent, **headers, **credential)
                    assert answer == (code if accepted else 403), body
                    assert accepted or b"plain http" in body

    asyncio.run(main())


# --- bad clients --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x00\xff\xfe\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"x" * 500,
    ],
    ids=["bytes", "half a line", "another protocol", "TLS where there is none"],
)
def test_garbage_closes_only_its_own_connection(tmp_path: Path, garbage: bytes) -> None:
    async def main() -> None:
        async with running(tmp_path) as site:
            reader, writer = await site.connect()
            writer.write(garbage)
            await closed(reader)
            assert await site.is_well()

    asyncio.run(main())


@on_sockets(ListenerLimits(head_time_max_s=CUT_OFF_S))
async def test_an_endless_request_head_is_cut_off(site: Site) -> None:
    reader, writer = await site.connect()
    writer.write(b"GET / HTTP/1.1\r\n" + b"x-long: " + b"a" * 700_000)
    assert b" 431 " in await closed(reader)
    slow_reader, slow_writer = await site.connect()
    slow_writer.write(b"GET / HTTP/1.1\r\nx-slow: ")
    silent_reader, _ = await site.connect()
    assert (await closed(slow_reader), await closed(silent_reader)) == (b"", b"")
    assert await site.is_well()


@on_sockets()
async def test_a_body_that_is_too_large_is_refused_before_it_is_read(site: Site) -> None:
    streams = await site.connect()
    reader, writer = streams
    writer.write(b"POST %b HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n" % CLAIMS.encode())
    piece = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
    for _ in range(60):
        writer.write(piece)
    assert b" 413 " in await reader.readuntil(b"\r\n\r\n")
    writer.close()
    assert (await send(await site.connect(), "POST", CLAIMS, b"x" * 3_200_000))[0] == 413
    assert await site.is_well()


@on_sockets()
async def test_a_client_that_sends_a_large_body_to_its_end_reads_the_413(site: Site) -> None:
    reader, writer = await site.connect()
    writer.write(b"POST %b HTTP/1.1\r\nhost: localhost\r\ncontent-length: 20000000\r\n\r\n" % CLAIMS.encode())
    for _ in range(20):
        writer.write(b"x" * 1_000_000)
        await writer.drain()
    assert b" 413 " in await closed(reader)


@on_sockets(ListenerLimits(connections_max=8))
async def test_connections_in_use_are_bounded(site: Site) -> None:
    for _ in range(8):
        reader, writer = await site.connect()
        writer.write(f"GET {CLAIMS}?watch=1 HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
        await reader.readuntil(b"\r\n\r\n")
    refused, _ = await site.connect()
    assert b" 503 " in await closed(refused)
    writer.close()
    code = 503
    while code == 503:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            code, _ = await send(await site.connect(), "GET", "/healthz")
    assert code == 200


@on_sockets(ListenerLimits(connections_max=8))
async def test_an_idle_connection_gives_way_to_a_new_one(site: Site) -> None:
    held = [await site.connect() for _ in range(8)]
    for streams in held:
        assert (await send(streams, "GET", "/healthz"))[0] == 200
    assert await site.is_well()
    assert await closed(held[0][0]) == b""
    assert (await send(held[1], "GET", "/healthz"))[0] == 200


@pytest.mark.parametrize("plain", [True, False])
def test_clients_that_connect_and_are_silent_do_not_keep_others_out(tmp_path: Path, plain: bool) -> None:
    async def main() -> None:
        limits = ListenerLimits(connections_max=64, silent_max=16)
        async with running(tmp_path, limits, plain=plain) as site:
            tls = None if plain else ssl.create_default_context(cafile=str(tmp_path / "tls" / "ca.crt"))
            silent = [await site.connect() for _ in range(40)]
            streams = await site.connect(tls)
            bearer = "" if plain else f"Bearer {site.server.token}"
            headers: dict[str, Any] = {"authorization": bearer} if bearer else {}
            assert (await send(streams, "GET", CLAIMS, **headers))[0] == 200
            assert await closed(silent[0][0]) == b""

    asyncio.run(main())


def test_a_handshake_has_a_time_limit(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with running(tmp_path, ListenerLimits(handshake_time_max_s=0.2), plain=False) as site:
            reader, _ = await site.connect()
            assert await closed(reader) == b""

    asyncio.run(main())
    assert [record.getMessage() for record in caplog.records] == [
        "shed connections: 1 (closed in the TLS handshake: 1)"
    ]


@pytest.mark.parametrize("begun", [b"", b"\x16\x03\x01\x02\x00\x01"])
def test_a_client_that_leaves_in_its_handshake_is_not_shed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, begun: bytes
) -> None:
    """A driver that is killed, a command that is interrupted: nothing that an administrator must know."""

    async def main() -> None:
        async with running(tmp_path, plain=False) as site:
            tls = ssl.create_default_context(cafile=str(tmp_path / "tls" / "ca.crt"))
            bearer = f"Bearer {site.server.token}"
            _, leaving = await site.connect()
            leaving.write(begun)
            # Whole requests, so that the server has seen the beginning, and then the end, of the other connection.
            assert (await send(await site.connect(tls), "GET", "/healthz", authorization=bearer))[0] == 200
            leaving.transport.abort()
            assert (await send(await site.connect(tls), "GET", "/healthz", authorization=bearer))[0] == 200

    asyncio.run(main())
    assert caplog.records == []


@on_sockets(ListenerLimits(unread_bytes_max=2_000_000))
async def test_responses_that_are_not_read_are_bounded_in_memory(site: Site) -> None:
    streams = await site.connect()
    for number in range(24):
        body = claim_document(f"c{number:02}", annotations={"filling": "x" * 200_000})
        assert (await send(streams, "POST", CLAIMS, json.dumps(body).encode()))[0] == 201
    readers = []
    for _ in range(40):
        reader, writer = await site.connect_reluctant()
        writer.write(f"GET {CLAIMS} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode() * 4)
        readers.append(reader)
    # Every response has begun before one is read: a client that reads at once would be served in full. Lists are sent
    # piece by piece, so each client leaves only a piece unread.
    for reader in readers:
        with suppress(ConnectionResetError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
    for reader in readers:
        if await is_cut_off(reader, 4 * 24 * 200_000):
            break
    else:
        pytest.fail("every client gets all of its responses, however late it reads them")
    assert (await send(streams, "GET", f"{CLAIMS}/c00"))[0] == 200


async def is_cut_off(reader: asyncio.StreamReader, size: int) -> bool:
    """True if the connection ends before so many bytes."""
    with suppress(ConnectionResetError):
        while size > 0 and (piece := await reader.read(1 << 20)):
            size -= len(piece)
    return size > 0


@on_sockets(ListenerLimits(stalled_reader_s=CUT_OFF_S))
async def test_a_stalled_watcher_is_disconnected_and_others_are_not_affected(site: Site) -> None:
    stuck_reader, stuck_writer = await site.connect_reluctant()
    good_reader, good_writer = await site.connect()
    for writer in (stuck_writer, good_writer):
        writer.write(f"GET {CLAIMS}?watch=1 HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
    await stuck_reader.readuntil(b"\r\n\r\n")
    await good_reader.readuntil(b"\r\n\r\n")
    seen = asyncio.ensure_future(_read_names(good_reader, 80))
    streams = await site.connect()
    for number in range(80):
        body = claim_document(f"c{number:02}", annotations={"filling": "x" * 200_000})
        assert (await send(streams, "POST", CLAIMS, json.dumps(body).encode()))[0] == 201
    assert await seen == [f"c{number:02}" for number in range(80)]
    await until_open_watches(streams, 1)
    with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
        await stuck_reader.readexactly(80 * 200_000)


async def _read_names(reader: asyncio.StreamReader, count: int) -> list[str]:
    """The names in the first events of a watch, in order."""
    names: list[str] = []
    pending = b""
    while len(names) < count:
        size = int(await reader.readline(), 16)
        pending += (await reader.readexactly(size + 2))[:-2]
        *lines, pending = pending.split(b"\n")
        names += [json.loads(line)["object"]["metadata"]["name"] for line in lines if line]
    return names


@on_sockets()
async def test_a_disconnected_watcher_is_removed(site: Site) -> None:
    reader, writer = await site.connect()
    writer.write(f"GET {CLAIMS}?watch=1 HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
    await reader.readuntil(b"\r\n\r\n")
    streams = await site.connect()
    await until_open_watches(streams, 1)
    writer.close()
    await until_open_watches(streams, 0)


@on_sockets()
async def test_pipelined_requests(site: Site) -> None:
    reader, writer = await site.connect()
    writer.write(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n" * 50)
    for _ in range(50):
        assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
        assert await reader.readexactly(2) == b"ok"
