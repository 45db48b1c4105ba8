"""Backups are of one moment and complete, or refused; a restored store is told apart from every earlier one."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from dralloc.server.store.backup import PIECE_BYTES, BadBackup, backup_pieces, read_backup, restore_sqlite
from dralloc.server.store.disk import Disk, log_path
from dralloc.server.store.errors import Compacted, LostWrites, StoreInUse
from dralloc.server.store.interface import Store
from dralloc.server.store.memory import MemoryStore
from dralloc.server.store.records import Record
from dralloc.server.store.sqlite import SqliteStore
from dralloc.system_clock import SystemClock


async def backup_of(store: Store) -> bytes:
    return b"".join([piece async for piece in backup_pieces(store)])


def restore(backup: bytes, path: Path, *, disk: Disk | None = None, clock: object = None) -> int:
    header, records = read_backup(backup.splitlines(keepends=True))
    used = clock if isinstance(clock, FixedClock) else SystemClock()
    return restore_sqlite(path, header, records, clock=used, disk=disk or Disk())


class FixedClock:
    def now(self) -> datetime:
        return datetime(1999, 1, 1, tzinfo=UTC)


async def contents(path: Path) -> list[Record]:
    async with await SqliteStore.open(path) as store:
        return list((await store.list_prefix("/")).records)


@pytest.fixture(scope="module")
def sound_backup() -> bytes:
    async def make() -> bytes:
        async with MemoryStore() as store:
            for number in range(500):
                await store.create(f"/{number:03}", bytes([number % 256]) * 50)
            return await backup_of(store)

    return asyncio.run(make())


def test_a_backup_is_of_one_moment_while_writes_go_on(tmp_path: Path) -> None:
    async def main() -> None:
        async with await SqliteStore.open(tmp_path / "s.db") as store:
            # Each pair is written in order, so a backup never has the second of a newer pair than the first.
            records = [await store.create(f"/{side}/{number:03}", b"0") for side in "ab" for number in range(400)]
            writing = asyncio.create_task(write_pairs(store, {record.key: record for record in records}))
            for _ in range(5):
                header, found = read_backup((await backup_of(store)).splitlines())
                values = {record.key: int(record.value) for record in found}
                assert max(record.revision for record in found) <= header.revision
                assert len(found) == header.records == 800
                for number in range(400):
                    assert 0 <= values[f"/a/{number:03}"] - values[f"/b/{number:03}"] <= 1
            writing.cancel()

    asyncio.run(main())


async def write_pairs(store: Store, known: dict[str, Record]) -> None:
    rng = random.Random(1)
    while True:
        number = rng.randrange(400)
        for side in "ab":
            before = known[f"/{side}/{number:03}"]
            value = b"%d" % (int(before.value) + 1)
            known[before.key] = await store.update(before.key, value, expected_revision=before.revision)


def test_large_records_are_sent_one_by_one() -> None:
    async def main() -> list[bytes]:
        async with MemoryStore() as store:
            for number in range(20):
                await store.create(f"/{number:03}", bytes(PIECE_BYTES))
            return [piece async for piece in backup_pieces(store)]

    pieces = asyncio.run(main())
    assert len(read_backup(b"".join(pieces).splitlines())[1]) == 20
    # Of base64.
    assert max(map(len, pieces)) < 2 * PIECE_BYTES


def test_a_damaged_backup_is_refused(sound_backup: bytes) -> None:
    for seed in range(200):
        rng = random.Random(seed)
        damaged = bytearray(sound_backup)
        if seed % 2:
            del damaged[rng.randrange(len(damaged) - 1) :]
        else:
            damaged[rng.randrange(len(damaged) - 1)] ^= rng.randrange(1, 256)
        with pytest.raises(BadBackup):
            read_backup(bytes(damaged).splitlines(keepends=True))
    lines = sound_backup.splitlines(keepends=True)
    for broken in (lines[:-1], [*lines[:5], *lines[6:]], [*lines, lines[-1]], [b"my notes\n"], []):
        with pytest.raises(BadBackup):
            read_backup(broken)


def test_a_restored_store_is_above_every_revision_that_was_given_out(tmp_path: Path) -> None:
    path = tmp_path / "s.db"

    async def first_life() -> tuple[bytes, list[Record], int]:
        async with await SqliteStore.open(path) as store:
            kept = [await store.create(f"/{number}", b"kept") for number in range(5)]
            kept[2] = await store.update("/2", b"kept later", expected_revision=kept[2].revision)
            backup = await backup_of(store)
            for number in range(100):
                await store.create(f"/lost/{number}", b"")
            return backup, kept, await store.current_revision()

    backup, kept, known = asyncio.run(first_life())
    for clock in (None, None, FixedClock()):
        revision = restore(backup, path, clock=clock)

        async def next_life(revision: int = revision, known: int = known) -> int:
            async with await SqliteStore.open(path) as store:
                records = (await store.list_prefix("/")).records
                assert [(each.key, each.value) for each in records] == [(each.key, each.value) for each in kept]
                # In the order in which they were written.
                assert max(records, key=lambda each: each.revision).key == "/2"
                assert min(each.revision for each in records) > known
                assert await store.current_revision() == revision
                with pytest.raises(Compacted):
                    await store.watch("/", after_revision=known)
                await store.create("/more", b"")
                return await store.current_revision()

        known = asyncio.run(next_life())
    assert sorted(each.name for each in tmp_path.iterdir()) == ["s.db", "s.db-mark"]


def test_a_store_in_use_is_not_replaced(tmp_path: Path, sound_backup: bytes) -> None:
    async def main() -> None:
        async with await SqliteStore.open(tmp_path / "s.db") as store:
            await store.create("/a", b"")
            with pytest.raises(StoreInUse):
                restore(sound_backup, tmp_path / "s.db")
            await store.create("/b", b"")
        assert [each.key for each in await contents(tmp_path / "s.db")] == ["/a", "/b"]

    asyncio.run(main())


@pytest.mark.parametrize("is_new", [True, False])
def test_no_server_starts_while_its_store_is_replaced(tmp_path: Path, sound_backup: bytes, is_new: bool) -> None:
    """What it acknowledged would be in a file that the restore replaces."""
    path = tmp_path / "s.db"
    header, records = read_backup(sound_backup.splitlines(keepends=True))
    if not is_new:
        restore(sound_backup, path)

    def while_a_server_is_started() -> Iterator[Record]:
        with pytest.raises(StoreInUse):
            asyncio.run(contents(path))
        with pytest.raises(StoreInUse):
            restore(sound_backup, path)
        yield from records

    restore_sqlite(path, header, while_a_server_is_started(), clock=SystemClock(), disk=Disk())
    assert len(asyncio.run(contents(path))) == 500


def test_a_store_behind_a_symbolic_link_is_replaced_where_it_is(tmp_path: Path, sound_backup: bytes) -> None:
    """SQLite has its log there, too."""
    path, real = tmp_path / "data" / "s.db", tmp_path / "other disk" / "s.db"
    for each in (path, real):
        each.parent.mkdir()
    real.touch(0o600)
    path.symlink_to(real)

    async def write() -> None:
        async with await SqliteStore.open(path) as store:
            await store.create("/old", b"")
            assert log_path(path).stat().st_size > 0

    asyncio.run(write())
    restore(sound_backup, path)
    assert path.is_symlink()
    assert [each.name for each in real.parent.iterdir()] == ["s.db"]
    assert len(asyncio.run(contents(path))) == 500


@pytest.mark.parametrize("damage", ["", "x" * 5000])
def test_a_damaged_store_can_be_replaced(tmp_path: Path, sound_backup: bytes, damage: str) -> None:
    path = tmp_path / "s.db"
    restore(sound_backup, path)
    path.write_text(damage)
    restore(sound_backup, path)
    assert len(asyncio.run(contents(path))) == 500


def test_an_interrupted_restore_leaves_nothing_beside_the_old_store(tmp_path: Path, sound_backup: bytes) -> None:
    path = tmp_path / "s.db"
    restore(sound_backup, path)
    header, records = read_backup(sound_backup.splitlines(keepends=True))

    def until_interrupted() -> Iterator[Record]:
        assert list(tmp_path.glob("*.restoring"))
        yield records[0]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        restore_sqlite(path, header, until_interrupted(), clock=SystemClock(), disk=Disk())
    assert not list(tmp_path.glob("*.restoring*"))
    assert len(asyncio.run(contents(path))) == 500


class Crash(Exception):
    pass


class CrashingDisk(Disk):
    """Stops at the n-th change of a file or its name; if it `goes_on`, at this one only, as at Ctrl-C."""

    def __init__(self, left: int, *, goes_on: bool = False) -> None:
        self._left = left
        self._goes_on = goes_on

    def rename(self, path: Path, to: Path) -> None:
        self._count()
        super().rename(path, to)

    def remove(self, path: Path) -> None:
        self._count()
        super().remove(path)

    def replace(self, path: Path, content: bytes) -> None:
        self._count()
        super().replace(path, content)

    def _count(self) -> None:
        if self._left == 0:
            self._left -= self._goes_on
            raise Crash
        self._left -= 1


@pytest.mark.parametrize("goes_on", [False, True], ids=["killed", "told to end"])
@pytest.mark.parametrize("step", range(7))
def test_an_interrupted_restore_leaves_the_old_store_or_one_that_is_refused(
    tmp_path: Path, sound_backup: bytes, step: int, goes_on: bool
) -> None:
    path = tmp_path / "s.db"

    async def fill() -> None:
        async with await SqliteStore.open(path) as store:
            await store.create("/old", b"")

    asyncio.run(fill())
    with pytest.raises(Crash):
        restore(sound_backup, path, disk=CrashingDisk(step, goes_on=goes_on))
    if step <= 4:
        assert [each.key for each in asyncio.run(contents(path))] == ["/old"]
        assert not (goes_on and list(tmp_path.glob("*.restoring*")))
    else:
        with pytest.raises(LostWrites, match="a `dralloc restore` was interrupted; repeat it"):
            asyncio.run(contents(path))
    restore(sound_backup, path)
    assert len(asyncio.run(contents(path))) == 500


def test_what_an_interrupted_restore_left_is_no_reason_to_repeat_it_later(tmp_path: Path, sound_backup: bytes) -> None:
    """The store is in use again, and is newer than the backup."""
    path = tmp_path / "s.db"

    async def write() -> dict[str, bytes]:
        async with await SqliteStore.open(path) as store:
            await store.create("/new", b"")
            return {each.name: each.read_bytes() for each in tmp_path.glob("s.db*")}

    with pytest.raises(Crash):
        restore(sound_backup, path, disk=CrashingDisk(4))
    left = asyncio.run(write())
    assert "s.db.restoring" in left
    for name, content in left.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "s.db-wal").unlink()
    with pytest.raises(LostWrites, match="put the missing file back, restore a backup"):
        asyncio.run(contents(path))
