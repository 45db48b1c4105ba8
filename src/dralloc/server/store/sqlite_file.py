"""The database file of the SQLite store: opens, checks and loads it, and commits batches of events. Knows no event
loop.

One row for each kept revision, so a write is an append and loading is one scan; reads are served from memory, so there
is no index. Each row has a checksum, rows after the compaction have consecutive revisions, and the number of older rows
is recorded: damage and missing rows are detected when the file is opened. The checksums depend on the identity of the store, so
that rows of another one are damage, too: SQLite takes any write-ahead log that lies beside the file. A missing end is detected by
the high-water mark, a file of its own.

A store that lost writes or was restored from a backup gets a new history: a new identity, and new revisions for all records,
higher than any revision that was given out before. So clients notice that what they know is outdated.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from dralloc.primitives.clock import Clock
from dralloc.primitives.new_history import first_of_history
from dralloc.server.store.disk import Disk, log_path
from dralloc.server.store.errors import CorruptStore, StoreError, StoreFull, StoreInUse, StoreUnavailable
from dralloc.server.store.high_water_mark import Mark, MarkFile, read_mark, write_mark
from dralloc.server.store.interface import FIRST_REVISION, HistoryLimits
from dralloc.server.store.lost_writes import (
    loss_after_mark,
    loss_behind_log,
    loss_of_empty_file,
    read_without_log,
    refusal,
)
from dralloc.server.store.records import Record, StoreEvent
from dralloc.server.store.revisioned_map import RevisionedMap
from dralloc.server.store.version_rows import ROWS_PER_STATEMENT_MAX, TABLE, DamagedRow, VersionRows, salt_of
from dralloc.system_clock import SystemClock

APPLICATION_ID = 0x64726163
SCHEMA_VERSION = 2
"""Files of version 1 have checksums without the identity, and may have no identity; they are changed when they are opened."""
IDENTITY_BYTES = 16
NEW_IDENTITY = f"randomblob({IDENTITY_BYTES})"
"""Random bytes of SQLite itself, which a simulation can decide."""
WAL_PAGES_MAX = 4000
"""Pages in the write-ahead log before a checkpoint: 16 MB, so that hot pages are rarely moved."""
LOG_BYTES_MAX = 32 + WAL_PAGES_MAX * (24 + 4096)
"""The log with so many pages: it has a header, and so has each page."""

SCHEMA = f"""
    BEGIN IMMEDIATE;
    {TABLE};
    CREATE TABLE compaction (revision INTEGER NOT NULL, survivors INTEGER NOT NULL);
    INSERT INTO compaction VALUES ({FIRST_REVISION}, 0);
    CREATE TABLE identity (id BLOB NOT NULL);
    INSERT INTO identity VALUES (x'%s');
    PRAGMA application_id = {APPLICATION_ID};
    PRAGMA user_version = {SCHEMA_VERSION};
    COMMIT;
"""

# After these errors nothing was written, and a retry is safe. After any other error, of fsync above all, the state on
# disk is unknown until the file is reopened.
HARMLESS_ERRORS = frozenset({"SQLITE_FULL", "SQLITE_IOERR_WRITE"})
CORRUPTION_ERRORS = ("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_ERROR", "SQLITE_SCHEMA", "SQLITE_MISMATCH")

_logger = logging.getLogger(__name__)


class Compaction(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a compaction step."""

    revision: int
    events: int
    """Number of events that left the log; their rows now count as old rows."""
    unreachable: tuple[int, ...]
    """Revisions whose rows are no longer readable."""


class SqliteFile:
    """An open database, locked against other processes. Used by one thread at a time."""

    def __init__(
        self,
        path: Path,
        *,
        synchronous: str = "FULL",
        disk: Disk | None = None,
        accept_lost_writes: bool = False,
        clock: Clock | None = None,
    ) -> None:
        """Opens or creates the file; raises StoreUnavailable, StoreFull or CorruptStore."""
        self._path = path
        # A user of `normal` has accepted that a power failure loses writes.
        self._accepts_loss = accept_lost_writes or synchronous.upper() == "NORMAL"
        self._clock = clock or SystemClock()
        self._disk = disk = disk or Disk()
        self._survivors = 0
        # Why nothing is committed any more: what is on the disk is not known.
        self.failure: StoreError | None = None
        self._mark: MarkFile | None = None
        # What is known to be lost before anything is read through the log.
        self._loss: str | None = None
        self._log_room = LogRoom(log_path(path), disk, bytes_max=LOG_BYTES_MAX)
        with self._explaining_errors():
            # SQLite deletes the log of an empty file.
            if disk.is_empty(path):
                self._check_new()
            self._lock = disk.lock(path)
            self._without_log = read_without_log(path, disk)
            try:
                self._connection = disk.connect(path, cached_statements=2 * ROWS_PER_STATEMENT_MAX)
            except BaseException:
                self._lock.close()
                raise
            self._rows = VersionRows(self._connection)
        try:
            with self._explaining_errors():
                self._prepare(synchronous)
        except StoreInUse:
            # The log is that of another process.
            self.close()
            raise
        except BaseException:
            self.close_unchanged()
            raise

    def load(self, limits: HistoryLimits) -> RevisionedMap:
        """Loads everything in the file; raises CorruptStore if any of it is damaged or missing.

        Raises LostWrites if only the end is missing; if that is accepted, a new history starts.
        """
        with self._explaining_errors():
            (version,) = self._connection.execute("PRAGMA user_version").fetchone()
            self._rows.salt = salt_of(self._identity()) if version == SCHEMA_VERSION else 0
        revisioned = self._load(limits)
        with self._explaining_errors():
            mark = read_mark(self._path, self._disk)
            # A store that was made without marks has no identity.
            is_marked = mark is not None or self._has_identity()
            found = Mark(identity=self._identity(), revision=revisioned.revision)
            loss = self._loss or loss_behind_log(self._path, self._without_log, found)
            if loss is None and is_marked:
                loss = loss_after_mark(self._path, mark, found)
            if loss is not None and not self._accepts_loss:
                raise refusal(self._path, loss, self._disk)
            if loss is not None:
                _logger.warning("%s: %s; going on without these writes", self._path, loss)
                newest = max(known.revision for known in (mark, self._without_log, found) if known is not None)
                records = revisioned.page("", revision=None, limit=None, token=None).records
                found = self.begin_history(records, first_revision=first_of_history(newest, self._clock.now()))
                revisioned = self._load(limits)
            elif not self._rows.salt:
                self._renew(found.identity)
            if mark is None or mark.identity != found.identity:
                write_mark(self._path, found, self._disk)
            self._mark = MarkFile(self._path, self._disk)
            # Readers see writes that were committed before a kill and never acknowledged.
            self.mark(revisioned.revision)
        return revisioned

    def begin_history(self, records: Iterable[Record], *, first_revision: int) -> Mark:
        """Replaces everything in the file by these records, with revisions from the first one on in their old order, and a new
        identity. Returns the mark that belongs to the file now.
        """
        ordered = sorted(records, key=lambda record: record.revision)
        events = [
            StoreEvent(revision=revision, key=record.key, record=record, previous=None)
            for revision, record in enumerate(ordered, first_revision)
        ]
        with self._explaining_errors():
            (identity,) = self._connection.execute(f"SELECT {NEW_IDENTITY}").fetchone()
            self._rows.salt = salt_of(identity)
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.execute("DELETE FROM version")
            self._rows.append(events)
            newest = events[-1].revision if events else first_revision
            self._connection.execute("UPDATE compaction SET revision = ?, survivors = ?", (newest, len(events)))
            self._connection.execute("CREATE TABLE IF NOT EXISTS identity (id BLOB NOT NULL)")
            self._connection.execute("DELETE FROM identity")
            self._connection.execute("INSERT INTO identity VALUES (?)", (identity,))
            self._connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
            self._connection.execute("COMMIT")
            # A file and a log with different identities are of two stores.
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        return Mark(identity=identity, revision=newest)

    def _renew(self, identity: bytes) -> None:
        """Changes a sound file of version 1, in one transaction."""
        self._connection.execute("BEGIN IMMEDIATE")
        self._rows.change_salt(salt_of(identity))
        self._connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        self._connection.execute("COMMIT")

    def _load(self, limits: HistoryLimits) -> RevisionedMap:
        with self._explaining_errors(), _all_kept():
            compacted, self._survivors = self._compaction()
            records = [self._survivor(*row) for row in self._rows.read("revision <= ?", compacted)]
            revisioned = RevisionedMap(limits=limits, records=records, compacted=compacted)
            if not len(revisioned) == len(records) == self._survivors:
                raise self._corrupt(f"{len(records)} records up to revision {compacted}, expected {self._survivors}")
            revisioned.apply(self._events(revisioned))
            return revisioned

    def commit(self, events: Sequence[StoreEvent], compaction: Compaction | None) -> None:
        """Commits atomically, or raises StoreFull or StoreUnavailable; returns when it is on disk."""
        if self.failure is not None:
            raise self.failure.with_traceback(None)
        with self._explaining_errors():
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                self._rows.append(events)
                if compaction is not None:
                    self._discard(compaction)
                self._connection.execute("COMMIT")
            except sqlite3.Error as error:
                with contextlib.suppress(sqlite3.Error):
                    self._connection.execute("ROLLBACK")
                if _name(error) not in HARMLESS_ERRORS:
                    self.failure = StoreUnavailable(f"{self._path}: writing stopped after a failure: {error}")
                raise
        if compaction is not None:
            self._survivors = self._survivors_after(compaction)
        self._log_room.check()

    @property
    def needs_log_room(self) -> bool:
        return self._log_room.is_used_up

    def make_log_room(self) -> None:
        """Makes the next commits quicker. If it fails, no commit succeeds any more."""
        try:
            self._log_room.extend()
        except OSError as error:
            self.failure = StoreUnavailable(f"{self._path}: writing stopped after a failure: {error.strerror}")

    def mark(self, revision: int) -> None:
        """Notes that everything up to this revision is committed and will be acknowledged."""
        if self._mark is not None:
            with self._without_mark_on_failure():
                self._mark.advance(revision)

    def sync_mark(self) -> None:
        """Makes the high-water mark survive a power failure. May run beside a commit."""
        if self._mark is not None:
            with self._without_mark_on_failure():
                self._mark.sync()

    def close(self) -> None:
        if self.failure is not None:
            # SQLite would move writes that are not on the disk into the database, and delete a log that a power failure brings back
            # without them.
            self.close_unchanged()
        else:
            self._close()

    def _close(self) -> None:
        self._connection.close()
        self._lock.close()
        if self._mark is not None:
            self._mark.close()

    def close_unchanged(self) -> None:
        """Closes a file that cannot be used, for a person to look at: SQLite would move its log, which may be that of another
        store, into the database, and delete it.
        """
        with self._disk.keeping(log_path(self._path)):
            # Nothing is moved by a connection that is interrupted.
            self._connection.interrupt()
            self._close()

    @contextlib.contextmanager
    def _without_mark_on_failure(self) -> Iterator[None]:
        # The write itself is safe, and a mark that is behind is harmless.
        try:
            yield
        except OSError as error:
            _logger.warning("%s: cannot write the high-water mark: %s", self._path, error.strerror)
            self._mark = None

    def _check_new(self) -> None:
        """Raises LostWrites if a file without any content is not that of a new store. Called before anything is written."""
        # SQLite deletes the log of an empty file, which shows it the first time.
        self._loss = self._loss or loss_of_empty_file(self._path, self._disk)
        if self._loss is not None and not self._accepts_loss:
            raise refusal(self._path, self._loss, self._disk)

    def _prepare(self, synchronous: str) -> None:
        execute = self._connection.execute
        # Without other processes, the log's index lives in memory, and the file stays locked.
        execute("PRAGMA locking_mode = EXCLUSIVE")
        (application_id,), (version,) = (
            execute("PRAGMA application_id").fetchone(),
            execute("PRAGMA user_version").fetchone(),
        )
        (tables,) = execute("SELECT count(*) FROM sqlite_master").fetchone()
        is_new = application_id == 0 and tables == 0
        if not is_new and application_id != APPLICATION_ID:
            raise StoreUnavailable(f"{self._path} is a database of a different program")
        if version > SCHEMA_VERSION:
            raise StoreUnavailable(
                f"{self._path} was written by a newer version (format {version}, known: {SCHEMA_VERSION})"
            )
        if is_new:
            self._check_new()
            (identity,) = execute(f"SELECT {NEW_IDENTITY}").fetchone()
            if self._loss is None:
                write_mark(self._path, Mark(identity=identity, revision=FIRST_REVISION), self._disk)
        # A new file changes to the log with a rollback journal. If its deletion is not synced, a power failure brings the journal back,
        # and SQLite rolls the file back to nothing.
        execute("PRAGMA synchronous = EXTRA")
        execute("PRAGMA journal_mode = WAL")
        execute(f"PRAGMA synchronous = {synchronous}")
        # On macOS a plain fsync stops at the drive's cache; elsewhere this is a no-op.
        execute("PRAGMA fullfsync = ON")
        execute(f"PRAGMA wal_autocheckpoint = {WAL_PAGES_MAX}")
        if is_new:
            self._connection.executescript(SCHEMA % identity.hex())
        execute("BEGIN IMMEDIATE")
        execute("COMMIT")
        # If an earlier process failed to sync, the system shows writes of the log that are not on the disk and that no later sync
        # writes there. Nothing is served or committed before the disk has all that the log shows.
        self._disk.write_again(log_path(self._path))

    def _identity(self) -> bytes:
        """Returns the identity of the store; gives one to a file that has none: it is new, or of an earlier version."""
        execute = self._connection.execute
        if not self._has_identity():
            execute("BEGIN IMMEDIATE")
            execute("CREATE TABLE IF NOT EXISTS identity (id BLOB NOT NULL)")
            execute(f"INSERT INTO identity VALUES ({NEW_IDENTITY})")
            execute("COMMIT")
        rows = execute("SELECT id FROM identity").fetchall()
        if len(rows) != 1 or not isinstance(rows[0][0], bytes) or len(rows[0][0]) != IDENTITY_BYTES:
            raise self._corrupt("its identity is damaged")
        return rows[0][0]

    def _has_identity(self) -> bool:
        execute = self._connection.execute
        (tables,) = execute("SELECT count(*) FROM sqlite_master WHERE name = 'identity'").fetchone()
        return bool(tables and execute("SELECT count(*) FROM identity").fetchone()[0])

    def _compaction(self) -> tuple[int, int]:
        rows = self._connection.execute("SELECT revision, survivors FROM compaction").fetchall()
        if len(rows) != 1:
            raise self._corrupt("the record of the last compaction is missing")
        return rows[0][0], rows[0][1]

    def _survivor(self, revision: int, key: str, value: bytes | None) -> Record:
        if value is None:
            raise self._corrupt(
                f"the note of its last compaction is damaged: the deletion at revision {revision} should be gone"
            )
        return Record(key=key, value=value, revision=revision)

    def _events(self, revisioned: RevisionedMap) -> Iterator[StoreEvent]:
        """Yields the events after the compaction; each is built once the earlier ones are applied."""
        get = revisioned.get
        for expected, (revision, key, value) in enumerate(
            self._rows.read("revision > ?", revisioned.revision), revisioned.revision + 1
        ):
            previous = get(key)
            if revision != expected or (value is None and previous is None):
                raise self._corrupt(f"there is a gap before revision {revision}")
            key = previous.key if previous else key
            record = None if value is None else Record(key=key, value=value, revision=revision)
            yield StoreEvent(revision=revision, key=key, record=record, previous=previous)

    def _discard(self, compaction: Compaction) -> None:
        self._rows.delete(compaction.unreachable)
        note = (compaction.revision, self._survivors_after(compaction))
        self._connection.execute("UPDATE compaction SET revision = ?, survivors = ?", note)

    def _survivors_after(self, compaction: Compaction) -> int:
        return self._survivors + compaction.events - len(compaction.unreachable)

    def _corrupt(self, what: str) -> CorruptStore:
        return CorruptStore(f"{self._path} is corrupt: {what}; restore it from a backup or move it away")

    @contextlib.contextmanager
    def _explaining_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StoreUnavailable(f"cannot open {self._path}: {error.strerror}") from error
        except sqlite3.Error as error:
            raise self._explain(error) from error
        except UnicodeDecodeError as error:
            raise self._corrupt("a text column holds something else") from error
        except DamagedRow as error:
            raise self._corrupt(
                f"the record at revision {error.revision} is damaged, or of another store, whose write-ahead log "
                f"{log_path(self._path).name} lies here"
            ) from error

    def _explain(self, error: sqlite3.Error) -> StoreError:
        name = _name(error)
        if name == "SQLITE_FULL":
            return StoreFull(f"{self._path}: {error}")
        if name == "SQLITE_BUSY":
            return StoreInUse(f"{self._path} is in use by another process")
        if name.startswith(CORRUPTION_ERRORS):
            return self._corrupt(str(error))
        return StoreUnavailable(f"{self._path}: {error}")


@contextlib.contextmanager
def _all_kept() -> Iterator[None]:
    """Disables the garbage collector inside the block, because everything it allocates is kept."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _name(error: sqlite3.Error) -> str:
    return getattr(error, "sqlite_errorname", None) or "SQLITE_CORRUPT"


# --- Log room -------------------------------------------------------------------------------------------------------
# Room in the write-ahead log of a SQLite store, so that most commits replace bytes of the file instead of making it
# longer.
#
# The length of a file is in the journal of its file system, which a sync of a longer file must write, too: it takes
# a third more. So zeros are written behind the end of the log when there is time. SQLite ends a log at the first
# bytes that are no page of it, and uses the file from its start again after a checkpoint. Nothing is lost if there
# is no room; a sync that fails is as bad as that of a commit, because it may be the one that has what SQLite wrote
# behind its last sync.


# Small stores, of tests above all, stay small.
BYTES_MIN: Final = 256 * 1024
STEP_BYTES: Final = 4 << 20


class LogRoom:
    """Used by the thread that commits. `bytes_max`: the length of a log that has as many pages as make a checkpoint."""

    def __init__(self, log: Path, disk: Disk, *, bytes_max: int) -> None:
        self._log = log
        self._disk = disk
        self._bytes_max = bytes_max
        self._bytes = BYTES_MIN
        # The log is longer than it was made.
        self.is_used_up = False

    def check(self) -> None:
        """Called after a commit."""
        self.is_used_up = self._disk.size(self._log) > self._bytes

    def extend(self) -> None:
        """Writes zeros behind the log, which takes some milliseconds. Raises OSError if that cannot be synced."""
        size = self._disk.size(self._log)
        self._bytes = max(size, min(size + STEP_BYTES, self._bytes_max))
        self.is_used_up = False
        self._disk.extend(self._log, self._bytes)
