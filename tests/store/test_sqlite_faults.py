"""The SQLite store with a failing disk, a damaged file or a second process: a clear error, and nothing lost."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import resource
import shutil
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dralloc.server.store import sqlite_file
from dralloc.server.store.disk import Disk, log_path
from dralloc.server.store.errors import CorruptStore, StoreError, StoreFull, StoreInUse, StoreUnavailable
from dralloc.server.store.interface import HistoryLimits
from dralloc.server.store.records import Record
from dralloc.server.store.sqlite import SqliteStore
from dralloc.server.store.sqlite_file import SqliteFile
from dralloc.server.store.store_url import open_store
from tests.support.small_disk import SmallDisk


def test_a_full_disk_rejects_writes_until_there_is_space_and_loses_nothing(small_disk: SmallDisk) -> None:
    path = small_disk.directory / "store.db"

    async def run() -> list[Record]:
        async with await SqliteStore.open(path) as store:
            watch = await store.watch("/", after_revision=1)
            kept = [await store.create(f"/before/{number:02}", bytes(4000)) for number in range(20)]
            small_disk.fill()
            failing = (store.create(f"/during/{number:03}", bytes(4000)) for number in range(300))
            outcomes = await asyncio.gather(*failing, return_exceptions=True)
            kept += [outcome for outcome in outcomes if isinstance(outcome, Record)]
            errors = [outcome for outcome in outcomes if not isinstance(outcome, Record)]
            assert errors
            for error in errors:
                assert isinstance(error, StoreFull | StoreUnavailable)
                assert str(path) in str(error)
            with pytest.raises((StoreFull, StoreUnavailable)):
                await store.update(kept[0].key, bytes(4000), expected_revision=kept[0].revision)
            assert list((await store.list_prefix("/")).records) == kept
            small_disk.free()
            after = await store.create("/later", b"")
            assert after.revision == kept[-1].revision + 1
            kept.append(after)
            assert [event.record for event in await watch.next()] == kept
        return kept

    async def read() -> list[Record]:
        async with await SqliteStore.open(path) as store:
            return list((await store.list_prefix("/")).records)

    assert asyncio.run(run()) == asyncio.run(read())


def test_a_store_on_a_read_only_disk_is_refused_with_the_reason(small_disk: SmallDisk) -> None:
    path = small_disk.directory / "store.db"

    async def open_and_close() -> int:
        async with await SqliteStore.open(path) as store:
            return (await store.list_prefix("/")).revision

    revision = asyncio.run(open_and_close())
    small_disk.make_read_only()
    with pytest.raises(StoreUnavailable, match=r"cannot open .*store.db: (Read-only file system|Permission denied)"):
        asyncio.run(open_and_close())
    small_disk.make_writable()
    assert asyncio.run(open_and_close()) == revision


def test_a_commit_succeeds_if_there_is_no_room_for_the_checkpoint_after_it(
    small_disk: SmallDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_file, "WAL_PAGES_MAX", 30)
    path = small_disk.directory / "store.db"

    async def run() -> None:
        async with await SqliteStore.open(path) as store:
            await store.create("/before", b"")
            Disk().extend(log_path(path), 1 << 20)
            small_disk.fill()
            size = path.stat().st_size
            for number in range(60):
                await store.create(f"/during/{number:02}", bytes(300))
            assert path.stat().st_size == size, "a checkpoint found room"
            small_disk.free()
            await store.create("/later", b"")
        async with await SqliteStore.open(path) as store:
            assert len((await store.list_prefix("/")).records) == 62

    asyncio.run(run())


def test_writes_go_on_if_no_file_can_be_opened(tmp_path: Path) -> None:
    async def run() -> None:
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        async with await SqliteStore.open(tmp_path / "store.db") as store:
            await store.create("/a", b"")
            resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
            try:
                store._file.make_log_room()
                await store.create("/b", b"")
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, limits)
            await store.create("/c", b"")

    asyncio.run(run())


def test_creating_a_store_on_a_full_disk_fails(small_disk: SmallDisk) -> None:
    path = small_disk.directory / "store.db"
    if small_disk.mounted:
        small_disk.fill()
        with pytest.raises((StoreFull, StoreUnavailable), match=r"store\.db"):
            asyncio.run(create_one(path))
        small_disk.free()
    asyncio.run(create_one(path))


async def create_one(path: Path) -> None:
    async with await SqliteStore.open(path) as store:
        await store.create("/a", b"")


def test_an_unknown_disk_state_ends_all_writing(tmp_path: Path) -> None:
    file = SqliteFile(tmp_path / "store.db")
    revisioned = file.load(HistoryLimits())
    file._connection.execute("DROP TABLE version")

    async def run() -> None:
        store = SqliteStore(file, revisioned)
        with pytest.raises(CorruptStore, match=r"store\.db is corrupt: no such table"):
            await store.create("/a", b"")
        with pytest.raises(StoreUnavailable, match=r"store\.db: writing stopped"):
            await store.create("/a", b"")
        assert await store.get("/a") is None
        await store.close()

    asyncio.run(run())


@pytest.fixture(scope="module")
def sound_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with history, deletions and a compaction."""
    path = tmp_path_factory.mktemp("sound") / "store.db"

    async def fill() -> None:
        async with await SqliteStore.open(path) as store:
            records = [await store.create(f"/{number}", b"%d" % number * 200) for number in range(40)]
            for record in records[:20]:
                await store.update(record.key, b"new", expected_revision=record.revision)
            for record in records[30:]:
                await store.delete(record.key, expected_revision=record.revision)
            await store.compact(await store.current_revision() - 15)
            await store.create("/last", b"")

    asyncio.run(fill())
    return path


def contents(path: Path) -> object:
    """Returns everything in a store, or CorruptStore."""
    file = SqliteFile(path)
    try:
        revisioned = file.load(HistoryLimits())
        newest = revisioned.page("", revision=None, limit=None, token=None)
        return newest.records, revisioned.revision, revisioned.log.between(0, revisioned.revision)
    finally:
        file.close()


def flip_bits(image: bytearray, rng: random.Random) -> None:
    image[rng.randrange(len(image))] ^= rng.randrange(1, 256)


def blank_a_stretch(image: bytearray, rng: random.Random) -> None:
    start = rng.randrange(len(image))
    end = min(len(image), start + rng.choice([16, 512, 4096]))
    image[start:end] = bytes(end - start)


def cut_off_the_end(image: bytearray, rng: random.Random) -> None:
    del image[rng.randrange(1, len(image)) :]


def scramble_a_page(image: bytearray, rng: random.Random) -> None:
    start = rng.randrange(len(image) // 4096) * 4096
    image[start : start + 4096] = rng.randbytes(4096)


@pytest.mark.slow
@pytest.mark.parametrize("damage", [flip_bits, blank_a_stretch, cut_off_the_end, scramble_a_page])
def test_damage_is_detected_or_harmless(
    damage: Callable[[bytearray, random.Random], None], sound_file: Path, tmp_path: Path
) -> None:
    sound, image = contents(sound_file), sound_file.read_bytes()
    noticed = 0
    for seed in range(200):
        damaged = bytearray(image)
        damage(damaged, random.Random(seed))
        path = tmp_path / f"damaged-{seed}.db"
        path.write_bytes(damaged)
        try:
            found = contents(path)
        except StoreError as error:
            noticed += str(path) in str(error)
        else:
            assert found == sound
    assert noticed > 10


def write_text(path: Path) -> None:
    path.write_text("no database at all\n" * 100)


def make_foreign(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE shopping (item TEXT)")


def alter(statement: str) -> Callable[[Path], None]:
    def apply(path: Path) -> None:
        asyncio.run(create_one(path))
        with contextlib.closing(sqlite3.connect(path)) as database:
            database.executescript(statement)

    return apply


REFUSALS: dict[str, tuple[Callable[[Path], object], type[StoreError], str]] = {
    "a file of another kind": (write_text, CorruptStore, "not a database"),
    "the database of another program": (make_foreign, StoreUnavailable, "a different program"),
    "a newer format": (alter("PRAGMA user_version = 99"), StoreUnavailable, "newer version"),
    "a record that is missing": (alter("DELETE FROM version WHERE revision = 2; INSERT INTO version VALUES (3, '/a', '', 0)"), CorruptStore, "damaged"),
    "a value that was changed": (alter("UPDATE version SET value = 'x'"), CorruptStore, "damaged"),
    "a record of the compacted past that is missing": (alter("UPDATE compaction SET survivors = 1, revision = 1"), CorruptStore, "expected 1"),
    "no note of the compaction": (alter("DELETE FROM compaction"), CorruptStore, "compaction"),
    "a table that is missing": (alter("DROP TABLE version"), CorruptStore, "no such table"),
    "a directory": (Path.mkdir, StoreUnavailable, "unable to open"),
    "a directory that does not exist": (lambda path: path.parent.rmdir(), StoreUnavailable, "No such file"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSALS)
def test_invalid_store_files_are_rejected_by_name(name: str, tmp_path: Path) -> None:
    prepare, kind, words = REFUSALS[name]
    path = tmp_path / "sub" / "store.db"
    path.parent.mkdir()
    prepare(path)
    with pytest.raises(kind, match=words) as refusal:
        asyncio.run(open_store(str(path)))
    assert str(path) in str(refusal.value)


def test_a_deletion_before_the_noted_compaction_is_damage(tmp_path: Path) -> None:
    """A compaction removes deletions with what they have deleted: without one, the object would be back."""
    path = tmp_path / "store.db"

    async def fill() -> None:
        async with await SqliteStore.open(path) as store:
            record = await store.create("/a", b"")
            await store.create("/b", b"")
            await store.compact(await store.current_revision())
            await store.delete("/a", expected_revision=record.revision)

    asyncio.run(fill())
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.executescript("UPDATE compaction SET revision = revision + 1")
    with pytest.raises(CorruptStore, match="the note of its last compaction is damaged: the deletion at revision 4"):
        contents(path)


def test_a_file_can_be_opened_only_once(tmp_path: Path) -> None:
    path = tmp_path / "store.db"

    async def run() -> None:
        async with await SqliteStore.open(path) as store:
            await store.create("/a", b"")
            with pytest.raises(StoreInUse, match="in use"):
                await SqliteStore.open(path)
            opening = "import asyncio, sys; from dralloc.server.store.store_url import open_store; asyncio.run(open_store(sys.argv[1]))"
            other = subprocess.run(
                [sys.executable, "-c", opening, str(path)], capture_output=True, text=True, timeout=60, check=False
            )
            assert f"StoreInUse: {path} is in use by another process" in other.stderr
            assert sorted(os.listdir(tmp_path)) == ["store.db", "store.db-mark", "store.db-wal"]
            await store.create("/b", b"")
        await create_three(path)

    async def create_three(path: Path) -> None:
        async with await SqliteStore.open(path) as store:
            assert len((await store.list_prefix("/")).records) == 2

    asyncio.run(run())


def test_files_are_private_and_every_commit_is_synced(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    file = SqliteFile(path)
    file.load(HistoryLimits())
    assert file._connection.execute("PRAGMA synchronous").fetchone() == (2,)
    assert file._connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    for name in os.listdir(tmp_path):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
    file.close()


def test_compaction_keeps_the_file_small(tmp_path: Path) -> None:
    path = tmp_path / "store.db"

    async def run() -> None:
        limits = HistoryLimits(events_max=200)
        async with await SqliteStore.open(path, limits=limits) as store:
            records = await asyncio.gather(*(store.create(f"/{number}", b"0") for number in range(50)))
            for _ in range(40):
                records = await asyncio.gather(
                    *(store.update(each.key, b"1", expected_revision=each.revision) for each in records)
                )
        async with await SqliteStore.open(path, limits=limits) as store:
            assert list((await store.list_prefix("/")).records) == sorted(records, key=lambda each: each.key)

    asyncio.run(run())
    with contextlib.closing(sqlite3.connect(path)) as database:
        (rows,) = database.execute("SELECT count(*) FROM version").fetchone()
    assert 50 < rows < 50 + 2 * 200 + 300


def test_a_cancelled_writer_does_not_affect_its_write_or_the_store(tmp_path: Path) -> None:
    async def run() -> None:
        async with await SqliteStore.open(tmp_path / "store.db") as store:
            writes = [asyncio.create_task(store.create(f"/{number}", b"")) for number in range(10)]
            await asyncio.sleep(0)
            writes[3].cancel()
            outcomes = await asyncio.gather(*writes, return_exceptions=True)
            assert sum(isinstance(outcome, Record) for outcome in outcomes) == 9
            assert len((await store.list_prefix("/")).records) == 10

    asyncio.run(run())


def test_closing_waits_for_pending_writes(tmp_path: Path) -> None:
    path = tmp_path / "store.db"

    async def write() -> None:
        store = await SqliteStore.open(path)
        writes = [asyncio.create_task(store.create(f"/{number}", b"")) for number in range(50)]
        await asyncio.sleep(0)
        await store.close()
        assert all(isinstance(outcome, Record) for outcome in await asyncio.gather(*writes))

    async def count() -> int:
        async with await SqliteStore.open(path) as store:
            return len((await store.list_prefix("/")).records)

    asyncio.run(write())
    assert asyncio.run(count()) == 50


def test_a_copy_of_the_files_of_a_running_store_opens_at_the_last_commit(tmp_path: Path) -> None:
    (tmp_path / "copy").mkdir()

    async def run() -> None:
        async with await SqliteStore.open(tmp_path / "store.db") as store:
            record = await store.create("/a", b"1")
            for name in ("store.db", "store.db-wal", "store.db-mark"):
                shutil.copy(tmp_path / name, tmp_path / "copy" / name)
        async with await SqliteStore.open(tmp_path / "copy" / "store.db") as copy:
            assert await copy.get("/a") == record

    asyncio.run(run())
