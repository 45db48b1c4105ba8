"""A SQLite store that lost acknowledged writes is refused, and goes on only if told to, at a higher revision."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import sqlite3
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from dralloc.server.store import sqlite_file
from dralloc.server.store.disk import Disk
from dralloc.server.store.errors import Compacted, CorruptStore, LostWrites, StoreError
from dralloc.server.store.high_water_mark import SLOT_BYTES
from dralloc.server.store.interface import HistoryLimits
from dralloc.server.store.lost_writes import read_without_log
from dralloc.server.store.records import Record
from dralloc.server.store.sqlite import SqliteStore
from dralloc.server.store.sqlite_file import SCHEMA_VERSION, SqliteFile
from dralloc.server.store.version_rows import checksum_of

WRITES = 300
# A page of the log with its header.
FRAME = 24 + 4096


class Crashed:
    """The files of a store whose process was killed after it acknowledged 300 writes, half of them before a checkpoint.

    If its log `is_extended`, there is room behind what is written.
    """

    def __init__(self, directory: Path, *, is_extended: bool) -> None:
        self.directory = directory
        self._is_extended = is_extended
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sqlite_file, "STEP_BYTES", 256 * 1024)
            asyncio.run(self._write())

    async def _write(self) -> None:
        origin = self.directory / "origin"
        origin.mkdir()
        async with await SqliteStore.open(origin / "s.db") as store:
            self.records = [await store.create(f"/{number:03}", b"x" * 500) for number in range(WRITES // 2)]
            store._file._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            for number in range(WRITES // 2, WRITES):
                self.records.append(await store.create(f"/{number:03}", b"x" * 500))
                if self._is_extended and number % 10 == 0:
                    store._file.make_log_room()
            self.files = {path.name: path.read_bytes() for path in origin.iterdir()}
        shutil.rmtree(origin)
        assert self.files.keys() == {"s.db", "s.db-wal", "s.db-mark"}
        # The store may have made room by itself.
        log = self.files["s.db-wal"]
        self.files["s.db-wal"] = log[: 32 + -(-(len(log.rstrip(b"\0")) - 32) // FRAME) * FRAME]
        self.room = len(log) - len(self.files["s.db-wal"])
        assert self.room or not self._is_extended

    def with_files(self, **changes: bytes | None) -> Path:
        """Returns the path of the database in a directory with these files; None leaves one out."""
        directory = self.directory / f"copy-{random.randrange(1 << 40):x}"
        directory.mkdir()
        for name, content in {**self.files, **{f"s.db{key}": value for key, value in changes.items()}}.items():
            if content is not None:
                room = bytes(self.room) if name == "s.db-wal" and self._is_extended else b""
                (directory / name).write_bytes(content + room)
        return directory / "s.db"


@pytest.fixture(scope="module", params=[False, True], ids=["", "extended"])
def crashed(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Crashed:
    return Crashed(tmp_path_factory.mktemp("crashed"), is_extended=request.param)


def contents(path: Path, *, accept: bool = False) -> list[Record]:
    async def read() -> list[Record]:
        async with await SqliteStore.open(path, accept_lost_writes=accept) as store:
            return list((await store.list_prefix("/")).records)

    return asyncio.run(read())


def files_of(path: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in path.parent.iterdir()}


def test_the_files_of_a_killed_process_have_every_acknowledged_write(crashed: Crashed) -> None:
    assert contents(crashed.with_files()) == crashed.records


def wal_cut(kept: float) -> Callable[[bytes], bytes | None]:
    return lambda log: log[: int(len(log) * kept)]


def last_frame_damaged(log: bytes) -> bytes:
    return log[:-1000] + bytes([log[-1000] ^ 1]) + log[-999:]


DAMAGE: dict[str, Callable[[bytes], bytes | None]] = {
    "no log": lambda _: None,
    "an empty log": lambda _: b"",
    "half a log": wal_cut(0.5),
    "a log without its last byte": lambda log: log[:-1],
    "a log without its last frame": lambda log: log[:-FRAME],
    "a bit of the last frame": last_frame_damaged,
    "zeros": lambda log: bytes(len(log)),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_or_missing_end_of_the_log_is_refused_and_left_as_it_is(crashed: Crashed, name: str) -> None:
    path = crashed.with_files(**{"-wal": DAMAGE[name](crashed.files["s.db-wal"])})
    before = files_of(path)
    for _ in range(2):
        with pytest.raises(LostWrites) as refusal:
            contents(path)
        said = str(refusal.value)
        assert f"writes up to revision {crashed.records[-1].revision} were acknowledged" in said
        assert f"{path.name}-wal" in said
        assert "--accept-lost-writes" in said
        assert files_of(path).get("s.db-wal", b"") == before.get("s.db-wal", b"")
        assert files_of(path)["s.db-mark"] == before["s.db-mark"]
        assert not any(name.endswith(".kept") for name in files_of(path))
    # The log is found: nothing was lost.
    (path.parent / "s.db-wal").write_bytes(crashed.files["s.db-wal"])
    assert contents(path) == crashed.records


def test_random_damage_of_the_log_is_noticed_or_harmless(crashed: Crashed) -> None:
    log, noticed = crashed.files["s.db-wal"], 0
    for seed in range(100):
        rng = random.Random(seed)
        damaged = bytearray(log)
        start = rng.randrange(len(log))
        end = start + rng.choice((1, 24, 512, 4096))
        damaged[start:end] = rng.randbytes(len(damaged[start:end]))
        try:
            assert contents(crashed.with_files(**{"-wal": bytes(damaged)})) == crashed.records
        except CorruptStore:
            noticed += 1
    assert noticed > 50


@pytest.mark.parametrize(
    "changes",
    [
        {"": None, "-wal": None},
        {"": b"", "-wal": None},
    ],
    ids=["missing", "empty"],
)
def test_a_missing_database_is_refused(crashed: Crashed, changes: dict[str, bytes | None]) -> None:
    path = crashed.with_files(**changes)
    with pytest.raises(LostWrites, match="it is empty, but writes up to revision 301 were acknowledged"):
        contents(path)
    assert contents(path, accept=True) == []


@pytest.mark.parametrize("database", [None, b""], ids=["no database", "an empty database"])
def test_a_damaged_mark_without_a_database_is_refused(crashed: Crashed, database: bytes | None) -> None:
    """As of a file system that lost the content of the files: a new store has no mark, or a sound one."""
    path = crashed.with_files(**{"": database, "-wal": None, "-mark": bytes(2 * SLOT_BYTES)})
    with pytest.raises(LostWrites, match=r"it is empty, and s\.db-mark is missing or damaged"):
        contents(path)
    assert contents(path, accept=True) == []
    assert contents(path) == []


def test_a_log_that_has_the_whole_store_can_be_put_back(tmp_path: Path) -> None:
    path = tmp_path / "copy" / "s.db"
    path.parent.mkdir()

    async def write() -> tuple[Record, bytes]:
        async with await SqliteStore.open(tmp_path / "s.db") as store:
            record = await store.create("/a", b"")
            for suffix in ("", "-mark"):
                shutil.copy(tmp_path / f"s.db{suffix}", path.with_name(f"s.db{suffix}"))
            return record, (tmp_path / "s.db-wal").read_bytes()

    record, log = asyncio.run(write())
    with pytest.raises(LostWrites, match="writes up to revision 2 were acknowledged"):
        contents(path)
    path.with_name("s.db-wal").write_bytes(log)
    assert contents(path) == [record]


def test_the_database_of_another_store_is_refused(crashed: Crashed, tmp_path: Path) -> None:
    other = Crashed(tmp_path, is_extended=False)
    path = crashed.with_files(**{"": other.files["s.db"], "-wal": other.files["s.db-wal"]})
    with pytest.raises(LostWrites, match=r"it is not the file that s\.db-mark belongs to"):
        contents(path)


def files_without_checkpoint(directory: Path, writes: int) -> dict[str, bytes]:
    """Of a store that has everything in its log."""

    async def write() -> dict[str, bytes]:
        async with await SqliteStore.open(directory / "s.db") as store:
            for number in range(writes):
                await store.create(f"/other-{number}", b"")
            return files_of(directory / "s.db")

    directory.mkdir()
    return asyncio.run(write())


@pytest.mark.parametrize("writes", [1, WRITES + 50], ids=["younger", "older"])
def test_a_whole_log_of_another_store_with_its_mark_is_refused(crashed: Crashed, tmp_path: Path, writes: int) -> None:
    other = files_without_checkpoint(tmp_path / "other", writes)
    path = crashed.with_files(**{each: other[f"s.db{each}"] for each in ("-wal", "-mark")})
    before = files_of(path)
    for _ in range(2):
        with pytest.raises(
            LostWrites, match=r"s\.db-wal is of another store or of an earlier time: without it, .* revision 151,"
        ):
            contents(path)
        assert files_of(path) == before
    for suffix in ("-wal", "-mark"):
        path.with_name(f"s.db{suffix}").write_bytes(crashed.files[f"s.db{suffix}"])
    assert contents(path) == crashed.records


@pytest.mark.parametrize("directory", ["{}", "/{}", "{}/a?b#c%41"], ids=["usual", "two slashes", "like a URI"])
def test_a_whole_log_of_an_earlier_time_with_its_mark_is_refused(tmp_path: Path, directory: str) -> None:
    path, earlier = Path(directory.format(tmp_path)) / "s.db", tmp_path / "earlier"
    path.parent.mkdir(exist_ok=True)
    earlier.mkdir()

    async def write() -> Record:
        async with await SqliteStore.open(path) as store:
            await store.create("/a", b"")
            for suffix in ("-wal", "-mark"):
                shutil.copy(path.with_name(f"s.db{suffix}"), earlier)
            return await store.create("/b", b"")

    newest = asyncio.run(write())
    for suffix in ("-wal", "-mark"):
        shutil.copy(earlier / f"s.db{suffix}", path.parent)
    with pytest.raises(LostWrites, match="without it, the file has revision 3, and with it revision 2"):
        contents(path)
    kept = contents(path, accept=True)
    assert [each.key for each in kept] == ["/a"]
    assert kept[0].revision > newest.revision


@pytest.mark.skipif(sys.platform == "darwin", reason="names of files are UTF-8")
def test_a_file_is_read_without_its_log_whatever_its_name(tmp_path: Path) -> None:
    async def write() -> None:
        async with await SqliteStore.open(path) as store:
            await store.create("/a", b"")

    path = tmp_path / os.fsdecode(b"\xff.db")
    asyncio.run(write())
    found = read_without_log(path, Disk())
    assert found is not None
    assert found.revision == 2


def test_accepting_the_loss_can_be_interrupted_at_any_moment(crashed: Crashed, tmp_path: Path) -> None:
    path = crashed.with_files(**{"-wal": wal_cut(0.5)(crashed.files["s.db-wal"])})
    moments: list[dict[str, bytes]] = []
    file = SqliteFile(path, disk=ObservedDisk(lambda: moments.append(files_of(path))), accept_lost_writes=True)
    file.load(HistoryLimits())
    file.close_unchanged()
    assert len(moments) > 20
    kept = [each.key for each in contents(path)]
    for number, files in enumerate(moments):
        directory = tmp_path / f"{number}"
        directory.mkdir()
        for name, content in files.items():
            (directory / name).write_bytes(content)
        assert [each.key for each in contents(directory / "s.db", accept=True)] == kept
        assert [each.key for each in contents(directory / "s.db")] == kept


def test_accepting_the_loss_starts_a_new_history_at_a_higher_revision(crashed: Crashed) -> None:
    path = crashed.with_files(**{"-wal": None})
    newest = crashed.records[-1].revision

    async def go_on() -> int:
        async with await SqliteStore.open(path, accept_lost_writes=True) as store:
            records = (await store.list_prefix("/")).records
            kept = crashed.records[: WRITES // 2]
            assert [(each.key, each.value) for each in records] == [(each.key, each.value) for each in kept]
            # Every revision that a client knows is refused, also those of records that are unchanged.
            assert min(each.revision for each in records) > newest
            assert [each.revision for each in records] == sorted(each.revision for each in records)
            for known in (kept[0].revision, kept[-1].revision, newest):
                with pytest.raises(Compacted):
                    await store.watch("/", after_revision=known)
                with pytest.raises(Compacted):
                    await store.list_prefix("/", revision=known)
            await store.update("/000", b"new", expected_revision=records[0].revision)
            return await store.current_revision()

    revision = asyncio.run(go_on())
    assert len(contents(path)) == WRITES // 2
    # A second loss is noticed, too, and its history starts above the first one's.
    (path.parent / "s.db").write_bytes(crashed.files["s.db"])
    with pytest.raises(LostWrites):
        contents(path)
    assert min(each.revision for each in contents(path, accept=True)) > revision


def test_a_mark_that_is_behind_is_no_alarm(crashed: Crashed) -> None:
    mark = crashed.files["s.db-mark"]
    # The power failed: a slot was not written, or only in part.
    behind = (mark[:SLOT_BYTES].ljust(2 * SLOT_BYTES, b"\0"), bytes(SLOT_BYTES) + mark[SLOT_BYTES:])
    for content in (*behind, mark[:100]):
        path = crashed.with_files(**{"-mark": content})
        assert contents(path) == crashed.records
        # The mark is written again and protects the next start.
        (path.parent / "s.db").write_bytes(crashed.files["s.db"])
        with pytest.raises(LostWrites):
            contents(path)


@pytest.mark.parametrize("log", [True, False])
def test_a_copy_without_a_mark_is_refused(crashed: Crashed, log: bool) -> None:
    """As of `cp state.db` from a running server: half of the writes are in the log."""
    mark = crashed.files["s.db-mark"]
    for content in (None, b"", mark[:20] + bytes(2 * SLOT_BYTES - 20)):
        path = crashed.with_files(**{"-mark": content, **({} if log else {"-wal": None})})
        with pytest.raises(LostWrites, match=r"s\.db-mark is missing or damaged"):
            contents(path)
        kept = contents(path, accept=True)
        assert len(kept) == (WRITES if log else WRITES // 2)
        assert min(each.revision for each in kept) > crashed.records[-1].revision
        # The new mark protects the next start.
        assert contents(path) == kept


def test_a_mark_that_is_put_back_is_enough(crashed: Crashed) -> None:
    path = crashed.with_files(**{"-mark": None})
    with pytest.raises(LostWrites):
        contents(path)
    path.with_name("s.db-mark").write_bytes(crashed.files["s.db-mark"])
    assert contents(path) == crashed.records


@pytest.mark.parametrize(
    "kept", [("",), ("-wal",), ("", "-wal")], ids=["the database", "the log", "the database and the log"]
)
def test_a_part_of_a_store_that_has_all_its_content_in_the_log_is_refused(tmp_path: Path, kept: Sequence[str]) -> None:
    """As of `cp state.db` soon after the first start: nothing was moved into the database yet."""
    path = tmp_path / "copy" / "s.db"
    path.parent.mkdir()

    async def write_and_copy() -> None:
        async with await SqliteStore.open(tmp_path / "s.db") as store:
            await store.create("/a", b"")
            for suffix in kept:
                shutil.copy(tmp_path / f"s.db{suffix}", path.with_name(f"s.db{suffix}"))

    asyncio.run(write_and_copy())
    before = files_of(path)
    with pytest.raises(LostWrites, match=r"s\.db-mark is missing or damaged"):
        contents(path)
    # SQLite makes an empty log where there is none.
    assert {name: content for name, content in files_of(path).items() if content} == before
    records = contents(path, accept=True)
    assert len(records) == len(kept) - 1
    assert [each.key for each in contents(path)] == [each.key for each in records]

    async def watch_from_before() -> None:
        async with await SqliteStore.open(path) as store:
            with pytest.raises(Compacted):
                await store.watch("/", after_revision=2)

    asyncio.run(watch_from_before())


class ObservedDisk(Disk):
    """Calls a function before each step of a store, which may be the last of its process."""

    def __init__(self, observe: Callable[[], None]) -> None:
        self._observe = observe

    def create_private(self, path: Path) -> None:
        self._observe()
        super().create_private(path)

    def connect(self, path: Path, *, cached_statements: int) -> sqlite3.Connection:
        self._observe()
        connection = super().connect(path, cached_statements=cached_statements)
        connection.set_trace_callback(lambda _: self._observe())
        return connection

    def replace(self, path: Path, content: bytes) -> None:
        self._observe()
        super().replace(path, content)

    def write_again(self, path: Path) -> None:
        self._observe()
        super().write_again(path)


def test_a_store_that_was_killed_while_it_was_made_is_a_new_one(tmp_path: Path) -> None:
    path = tmp_path / "s" / "s.db"
    path.parent.mkdir()
    moments: list[dict[str, bytes]] = []
    file = SqliteFile(path, disk=ObservedDisk(lambda: moments.append(files_of(path))))
    file.load(HistoryLimits())
    file.close_unchanged()
    assert len(moments) > 20
    for number, files in enumerate([*moments, files_of(path)]):
        directory = tmp_path / f"{number}"
        directory.mkdir()
        for name, content in files.items():
            (directory / name).write_bytes(content)
        assert contents(directory / "s.db") == []


def make_earlier_version(path: Path, *, has_identity: bool) -> None:
    """Gives a file the format of version 1."""

    async def change() -> None:
        async with await SqliteStore.open(path) as store:
            execute = store._file._connection.execute
            for revision, key, value in execute("SELECT revision, key, value FROM version").fetchall():
                checksum = checksum_of(revision, key, value, salt=0)
                execute("UPDATE version SET checksum = ? WHERE revision = ?", (checksum, revision))
            if not has_identity:
                execute("DROP TABLE identity")
            execute("PRAGMA user_version = 1")

    asyncio.run(change())
    if not has_identity:
        path.with_name("s.db-mark").unlink()


@pytest.mark.parametrize("has_identity", [True, False])
def test_a_store_of_an_earlier_version_gets_a_mark_and_the_format_of_this_one(
    crashed: Crashed, has_identity: bool
) -> None:
    path = crashed.with_files()
    make_earlier_version(path, has_identity=has_identity)
    assert contents(path) == crashed.records
    assert contents(path) == crashed.records
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION,)
    connection.close()
    path.write_bytes(crashed.files["s.db"])
    with pytest.raises(StoreError):
        contents(path)


def test_the_log_of_another_store_is_refused(tmp_path: Path) -> None:
    ours, them = (make_crashed(tmp_path / name, name.encode()) for name in ("ours", "them"))
    ours.with_name("s.db-wal").write_bytes(them.with_name("s.db-wal").read_bytes())
    before = files_of(ours)
    with pytest.raises(CorruptStore, match=r"or of another store, whose write-ahead log s\.db-wal lies here"):
        contents(ours)
    assert files_of(ours) == before


def make_crashed(directory: Path, content: bytes) -> Path:
    """The files of a store whose process was killed with a few writes in its log."""

    async def write() -> dict[str, bytes]:
        async with await SqliteStore.open(running / "s.db") as store:
            for number in range(40):
                await store.create(f"/{number:03}", content * 100)
                if number == 35:
                    store._file._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            return files_of(running / "s.db")

    running = directory.with_name(f"{directory.name}-running")
    directory.mkdir()
    running.mkdir()
    for name, bytes_ in asyncio.run(write()).items():
        (directory / name).write_bytes(bytes_)
    return directory / "s.db"


def test_a_store_that_need_not_be_synced_starts_a_new_history_by_itself(crashed: Crashed) -> None:
    path = crashed.with_files(**{"-wal": None})

    async def read() -> list[Record]:
        async with await SqliteStore.open(path, synchronous="normal") as store:
            return list((await store.list_prefix("/")).records)

    assert min(each.revision for each in asyncio.run(read())) > crashed.records[-1].revision
