"""The server on real sockets: authentication, and limits against bad clients."""

from __future__ import annotations

import asyncio
import json
import ssl
from contextlib import suppress
from pathlib import Path

import pytest

from dralloc.server.http.listener_limits import ListenerLimits
from tests.server.http.listener_site import CUT_OFF_S, Site, closed, on_sockets, running, send, until_open_watches
from tests.support.client_certificates import client_certificate
from tests.support.local_api import CLAIMS, claim_document

pytestmark = pytest.mark.slow


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


def test_a_handshake_has_a_time_limit(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with running(tmp_path, ListenerLimits(handshake_time_max_s=0.2), plain=False) as site:
            reader, _ = await site.connect()
            assert await closed(reader) == b""

    asyncio.run(main())
    assert [record.getMessage() for record in caplog.records] == ["connection of 127.0.0.1 closed in the TLS handshake"]


def test_a_client_certificate_that_is_not_accepted_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with running(tmp_path, ListenerLimits(), plain=False) as site:
            tls = ssl.create_default_context(cafile=str(tmp_path / "tls" / "ca.crt"))
            tls.load_cert_chain(*client_certificate(tmp_path, None, "alice", "everybody"))
            reader, _ = await site.connect(tls)
            assert await closed(reader) == b""

    asyncio.run(main())
    assert [record.getMessage() for record in caplog.records] == [
        "client certificate of 127.0.0.1 not accepted, self-signed certificate"
    ]


@pytest.mark.parametrize("begun", [b"", b"\x16\x03\x01\x02\x00\x01"])
def test_a_client_that_leaves_in_its_handshake_is_not_told(
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


def test_little_waits_for_each_watcher_that_does_not_read(tmp_path: Path) -> None:
    """With TLS, where asyncio would keep half a megabyte for each: none is disconnected for the sake of memory."""

    async def main() -> None:
        async with running(tmp_path, plain=False) as site:
            tls = ssl.create_default_context(cafile=str(tmp_path / "tls" / "ca.crt"))
            bearer = f"Bearer {(tmp_path / 'admin.token').read_text().strip()}"
            watch = f"GET {CLAIMS}?watch=1 HTTP/1.1\r\nhost: localhost\r\nauthorization: {bearer}\r\n\r\n".encode()
            for streams in [await site.connect_reluctant(tls) for _ in range(10)]:
                streams[1].write(watch)
                await streams[0].readuntil(b"\r\n\r\n")
            good_reader, good_writer = await site.connect(tls)
            good_writer.write(watch)
            await good_reader.readuntil(b"\r\n\r\n")
            seen = asyncio.ensure_future(_read_names(good_reader, 150))
            streams = await site.connect(tls)
            for number in range(150):
                body = claim_document(f"c{number:03}", annotations={"filling": "x" * 50_000})
                created = await send(streams, "POST", CLAIMS, json.dumps(body).encode(), authorization=bearer)
                assert created[0] == 201
            await seen
            assert b'verb="WATCH"} 11\n' in (await send(streams, "GET", "/metrics", authorization=bearer))[1]

    asyncio.run(main())


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
