"""The etcd store when servers stop, compact or reject."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import itertools
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from dralloc.server.store.errors import (
    Compacted,
    CorruptStore,
    KeyExists,
    Restored,
    RevisionConflict,
    StoreFull,
    StoreUnavailable,
    ValueTooLarge,
)
from dralloc.server.store.interface import HistoryLimits, Store, Watch
from dralloc.server.store.records import Record, StoreEvent
from dralloc.server.store.store_url import open_store
from tests.support.etcd_server import CALL_TIMEOUT_S, EtcdServer, etcd_program
from tests.support.ports import free_port

TEST_TIMEOUT_S = 60.0


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[EtcdServer]:
    """A server that only this test uses, and may stop."""
    with EtcdServer(tmp_path / "etcd") as server:
        yield server


async def read(watch: Watch, count: int) -> list[StoreEvent]:
    events: list[StoreEvent] = []
    while len(events) < count:
        events.extend(await watch.next())
    return events


async def create_when_possible(store: Store, key: str) -> None:
    """Creates a key; retries as long as the server does not answer."""
    while True:
        try:
            await store.create(key, b"")
        except StoreUnavailable:
            continue
        except KeyExists:
            # The write succeeded although its answer was lost.
            return
        return


def etcdctl(server: EtcdServer, *arguments: str) -> str:
    program = Path(etcd_program()).with_name("etcdctl")
    patience = ("--dial-timeout=60s", "--command-timeout=60s")
    command = [str(program), f"--endpoints={server.endpoint}", *patience, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.slow
def test_a_watch_resumes_without_gap_or_repeat_after_a_server_crash(own_server: EtcdServer) -> None:
    async def run() -> None:
        async with asyncio.timeout(TEST_TIMEOUT_S), await open_store(own_server.url("/r")) as store:
            start = await store.current_revision()
            watch = await store.watch("/", after_revision=start)
            await store.create("/1", b"")
            assert [event.key for event in await read(watch, 1)] == ["/1"]
            await store.create("/2", b"")
            own_server.kill()
            own_server.start()
            await create_when_possible(store, "/3")
            await create_when_possible(store, "/4")
            assert [event.key for event in await read(watch, 3)] == ["/2", "/3", "/4"]
            assert len((await store.list_prefix("/")).records) == 4

    asyncio.run(run())


@pytest.mark.slow
def test_a_watch_that_missed_compacted_events_ends_and_the_next_one_works(own_server: EtcdServer) -> None:
    async def run() -> None:
        async with asyncio.timeout(TEST_TIMEOUT_S), await open_store(own_server.url("/r")) as store:
            first = await store.create("/1", b"")
            watch = await store.watch("/", after_revision=first.revision)
            own_server.kill()
            own_server.start()
            # Meanwhile, another client writes and compacts.
            etcdctl(own_server, "put", "/r/1", "new")
            etcdctl(own_server, "put", "/r/2", "new")
            etcdctl(own_server, "compact", str(first.revision + 2))
            with pytest.raises(Compacted):
                await read(watch, 1)
            page = await store.list_prefix("/")
            with await store.watch("/", after_revision=page.revision) as again:
                record = await store.create("/3", b"")
                assert [event.record for event in await read(again, 1)] == [record]

    asyncio.run(run())


@pytest.mark.slow
def test_a_restored_etcd_ends_all_watches(own_server: EtcdServer, tmp_path: Path) -> None:
    async def main() -> None:
        async with await open_store(own_server.url()) as store:
            first = await store.create("/a", b"")
            etcdctl(own_server, "snapshot", "save", str(tmp_path / "snapshot"))
            lost = [await store.create(f"/lost/{number}", b"") for number in range(100)]
            watch = await store.watch("/", after_revision=lost[-1].revision)
            early = await store.watch("/", after_revision=first.revision - 1)
            assert len(await read(early, 101)) == 101
            own_server.kill()
            own_server.restore(tmp_path / "snapshot")
            own_server.start()
            with pytest.raises(Restored):
                await watch.next()
            with pytest.raises(Restored):
                await early.next()
            for before in (lost[-1].revision, first.revision - 1):
                with pytest.raises(Restored):
                    await store.watch("/", after_revision=before)
                with pytest.raises(Restored):
                    await store.list_prefix("/", revision=before)
            page = await store.list_prefix("/a")
            assert [record.value for record in page.records] == [b""]
            assert page.records[0].revision > lost[-1].revision
            with await store.watch("/", after_revision=page.revision) as again:
                new = await store.create("/new", b"")
                assert [event.record for event in await read(again, 1)] == [new]

    asyncio.run(main())


@pytest.mark.slow
def test_no_write_from_before_a_restore_is_accepted_after_it(own_server: EtcdServer, tmp_path: Path) -> None:
    """Whether the server knows of the restore, or was started after it; also when a backup is restored a second time."""

    async def main() -> None:
        async with await open_store(own_server.url("/r")) as running, await open_store(own_server.url("/r")) as idle:
            first = await running.create("/a", b"1")
            stale = [first]
            etcdctl(own_server, "snapshot", "save", str(tmp_path / "snapshot"))
            stale.append(await running.update("/a", b"2", expected_revision=first.revision))
            for _ in range(2):
                own_server.kill()
                own_server.restore(tmp_path / "snapshot")
                own_server.start()
                async with await open_store(own_server.url("/r")) as started:
                    for store, record in itertools.product((idle, running, started), stale):
                        with pytest.raises(RevisionConflict):
                            await when_reachable(
                                lambda: store.update("/a", b"stale", expected_revision=record.revision)  # noqa: B023
                            )
                        with pytest.raises(RevisionConflict):
                            await store.delete("/a", expected_revision=record.revision)
                    now = await running.get("/a")
                    assert now is not None
                    assert (now, now.value) == (await started.get("/a"), b"1")
                    assert now.revision > max(record.revision for record in stale)
                    stale += [now, await idle.update("/a", b"3", expected_revision=now.revision)]

    asyncio.run(main())


@pytest.mark.slow
def test_a_server_remembers_an_etcd_that_is_restored_with_the_same_token_while_it_is_stopped(
    own_server: EtcdServer, tmp_path: Path
) -> None:
    async def main() -> None:
        url, memory = own_server.url("/r"), tmp_path / "seen"
        async with await open_store(url, memory=memory) as store:
            first = await store.create("/a", b"1")
            etcdctl(own_server, "snapshot", "save", str(tmp_path / "snapshot"))
            second = await store.update("/a", b"2", expected_revision=first.revision)
        own_server.kill()
        own_server.restore(tmp_path / "snapshot", token="etcd-cluster")
        own_server.start()
        async with await open_store(url, memory=memory) as store:
            for stale in (first, second):
                with pytest.raises(RevisionConflict):
                    await store.update("/a", b"stale", expected_revision=stale.revision)
            now = await store.get("/a")
            assert now is not None
            assert now.revision > second.revision
        # A higher revision than time or etcd would lead to: one that an operator has raised.
        seen = msgspec.json.decode(memory.read_bytes())
        memory.write_bytes(msgspec.json.encode({**seen, "revision": 10**16}))
        async with await open_store(url, memory=memory) as store:
            assert await store.current_revision() > seen["history"]["base"] + 10**16
        memory.write_bytes(b"{")
        with pytest.raises(CorruptStore, match="cannot be read"):
            await open_store(url, memory=memory)

    asyncio.run(main())


async def when_reachable(write: Callable[[], Awaitable[Record]]) -> Record:
    """Repeats a write whose connection breaks. None of these is committed, so a repetition shows the same."""
    while True:
        with suppress(StoreUnavailable):
            return await write()


@pytest.mark.slow
def test_a_call_to_a_stopped_server_is_a_clear_error(own_server: EtcdServer) -> None:
    async def run() -> None:
        # A server that has just started has no leader yet, and rejects calls until it has.
        async with await open_store(own_server.url()):
            pass
        async with await open_store(f"etcd://{own_server.endpoint}?timeout=5") as store:
            own_server.kill()
            with pytest.raises(StoreUnavailable, match=own_server.endpoint):
                await store.get("/a")

    asyncio.run(run())


@pytest.mark.slow
def test_many_calls_to_a_stopped_server_fail_after_one_timeout(own_server: EtcdServer) -> None:
    """Each of them reads the history first, and they do so together."""

    async def main() -> None:
        url = own_server.url("/r").replace(f"timeout={CALL_TIMEOUT_S}", "timeout=3")
        async with await open_store(url) as store:
            own_server.stop()
            async with asyncio.timeout(40):
                for _ in range(2):
                    reads = (store.get("/a") for _ in range(50))
                    writes = (store.create(f"/{number}", b"") for number in range(50))
                    failed = await asyncio.gather(*reads, *writes, return_exceptions=True)
                    assert {isinstance(each, StoreUnavailable) for each in failed} == {True}

    asyncio.run(main())


@pytest.mark.slow
def test_calls_fail_over_to_the_next_server(etcd_server: EtcdServer, etcd_url: str) -> None:
    gone = f"127.0.0.1:{free_port()}"

    async def run() -> None:
        async with await open_store(etcd_url.replace("etcd://", f"etcd://{gone},")) as store:
            await store.create("/a", b"")
            assert await store.get("/a")

    asyncio.run(run())


def test_two_stores_on_one_etcd_see_each_others_writes(etcd_url: str) -> None:
    async def run() -> None:
        async with await open_store(etcd_url) as one, await open_store(etcd_url) as other:
            watch = await one.watch("/", after_revision=await one.current_revision())
            record = await other.create("/a", b"1")
            assert await one.get("/a") == record
            assert [event.record for event in await read(watch, 1)] == [record]
            await one.update("/a", b"2", expected_revision=record.revision)
            with pytest.raises(RevisionConflict):
                await other.update("/a", b"3", expected_revision=record.revision)

    asyncio.run(run())


def test_roots_keep_stores_apart(etcd_server: EtcdServer) -> None:
    async def run() -> None:
        one_url, other_url = etcd_server.url("/one"), etcd_server.url("/one-more")
        async with await open_store(one_url) as one, await open_store(other_url) as other:
            watch = await one.watch("", after_revision=await one.current_revision())
            await other.create("/a", b"other")
            record = await one.create("/a", b"one")
            assert [event.record for event in await read(watch, 1)] == [record]
            assert list((await one.list_prefix("/")).records) == [record]
            async with await open_store(etcd_server.url()) as everything:
                keys = [found.key for found in (await everything.list_prefix("")).records]
                assert {"/one/a", "/one-more/a"} <= set(keys)

    asyncio.run(run())


@pytest.mark.slow
def test_long_lists_are_complete_and_of_one_revision(etcd_url: str) -> None:
    async def run() -> None:
        async with await open_store(etcd_url) as store:
            created = await asyncio.gather(*(store.create(f"/{number:04}", bytes(6000)) for number in range(1500)))
            page = await store.list_prefix("/")
            assert list(page.records) == created
            assert page.next is None

    asyncio.run(run())


def test_a_value_too_large_for_etcd_is_rejected(etcd_url: str) -> None:
    async def run() -> None:
        async with await open_store(etcd_url) as store:
            with pytest.raises(ValueTooLarge):
                await store.create("/a", bytes(3 << 20))
            assert await store.get("/a") is None

    asyncio.run(run())


def test_a_watch_before_the_shared_stream_gets_everything(etcd_url: str) -> None:
    async def run() -> None:
        async with await open_store(etcd_url) as store:
            start = await store.current_revision()
            records = [await store.create(f"/{number}", b"") for number in range(5)]
        async with await open_store(etcd_url, limits=HistoryLimits(events_max=10)) as store:
            watch = await store.watch("/", after_revision=start)
            records.append(await store.create("/5", b""))
            assert [event.record for event in await read(watch, 6)] == records
            watch.close()
            left_open = await store.watch("/", after_revision=start)
        with pytest.raises(StoreUnavailable):
            await read(left_open, 7)

    asyncio.run(run())


def test_etcd_is_compacted_as_it_grows(etcd_url: str) -> None:
    async def run() -> None:
        async with (
            asyncio.timeout(TEST_TIMEOUT_S),
            await open_store(etcd_url, limits=HistoryLimits(events_max=20)) as store,
        ):
            first = record = await store.create("/a", b"")
            while await is_kept(store, first.revision):
                record = await store.update("/a", b"", expected_revision=record.revision)
            assert record.revision - first.revision >= 20
            assert await is_kept(store, record.revision - 10)

    async def is_kept(store: Store, revision: int) -> bool:
        try:
            await store.list_prefix("/", revision=revision, limit=1)
        except Compacted:
            return False
        return True

    asyncio.run(run())


@pytest.mark.slow
def test_a_full_etcd_raises_store_full(tmp_path: Path) -> None:
    async def run(url: str) -> None:
        async with await open_store(url) as store:
            kept: list[Record] = []
            # One after the other: etcd compares its size with the quota before it proposes a write,
            # so that any number of writes at the same moment may pass.
            with pytest.raises(StoreFull):
                await fill(store, kept)
            assert kept
            assert set(kept) <= set((await store.list_prefix("/")).records)

    async def fill(store: Store, kept: list[Record]) -> None:
        while len(kept) < 40:
            kept.append(await store.create(f"/{len(kept)}", bytes(1 << 20)))

    with EtcdServer(tmp_path, arguments=["--quota-backend-bytes=8000000"]) as server:
        asyncio.run(run(server.url()))


@pytest.mark.slow
def test_mutual_tls(tmp_path: Path) -> None:
    ca, cert, key = write_certificates(tmp_path)
    tls = [f"--cert-file={cert}", f"--key-file={key}", f"--trusted-ca-file={ca}", "--client-cert-auth"]

    async def run(url: str) -> None:
        async with await open_store(url) as store:
            await store.create("/a", b"")

    with EtcdServer(tmp_path / "etcd", arguments=tls) as server:
        asyncio.run(run(f"{server.url()}&ca={ca}&cert={cert}&key={key}"))
        with pytest.raises(StoreUnavailable):
            asyncio.run(run(f"etcd://{server.endpoint}?ca={ca}&timeout=1"))


def write_certificates(directory: Path) -> tuple[Path, Path, Path]:
    """A self-signed certificate for server and client, and its key."""
    private = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "etcd")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(private.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(private, hashes.SHA256())
    )
    cert, key = directory / "cert.pem", directory / "key.pem"
    cert.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    key.write_bytes(
        private.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    return cert, cert, key
