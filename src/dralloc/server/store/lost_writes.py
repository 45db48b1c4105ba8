"""How the files of a SQLite store show that acknowledged writes are missing. Each rule returns what is wrong, or None."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

from dralloc.server.store.disk import Disk, log_path, mark_path, restoring_path
from dralloc.server.store.errors import LostWrites
from dralloc.server.store.high_water_mark import Mark, read_mark
from dralloc.server.store.interface import FIRST_REVISION
from dralloc.server.store.version_rows import DamagedRow, VersionRows, salt_of


def loss_of_empty_file(path: Path, disk: Disk) -> str | None:
    """A file without any content must be that of a new store. Asked before anything is written."""
    mark, log = read_mark(path, disk), log_path(path)
    files = (path, log, mark_path(path))
    if mark is not None and mark.revision > FIRST_REVISION:
        return (
            f"it is empty, but writes up to revision {mark.revision} were acknowledged: the file or its write-ahead log "
            f"{log.name} is missing or damaged"
        )
    # The mark of a new store is written before anything else.
    if mark is None and not all(map(disk.is_empty, files)):
        return (
            f"it is empty, and {mark_path(path).name} is missing or damaged: the file or its write-ahead log "
            f"{log.name} is of a store that had more"
        )
    return None


def loss_behind_log(path: Path, without_log: Mark | None, found: Mark) -> str | None:
    """The write-ahead log must not hide anything that the file has."""
    if without_log is None or (without_log.identity == found.identity and without_log.revision <= found.revision):
        return None
    return (
        f"its write-ahead log {log_path(path).name} is of another store or of an earlier time: without it, the file has "
        f"revision {without_log.revision}, and with it revision {found.revision}"
    )


def loss_after_mark(path: Path, mark: Mark | None, found: Mark) -> str | None:
    """The file must have everything up to its mark, which exists once the file has an identity."""
    if mark is None:
        return (
            f"{mark_path(path).name} is missing or damaged, and nothing else shows whether the file and its "
            f"write-ahead log {log_path(path).name} are complete; the file ends at revision {found.revision}"
        )
    if mark.identity != found.identity:
        return f"it is not the file that {mark_path(path).name} belongs to, which had revision {mark.revision}"
    if mark.revision > found.revision:
        return (
            f"it ends at revision {found.revision}, but writes up to revision {mark.revision} were acknowledged: "
            f"the end of the write-ahead log {log_path(path).name} is missing or damaged"
        )
    return None


def refusal(path: Path, loss: str, disk: Disk) -> LostWrites:
    """The error of a store that is not opened, and what to do."""
    remedy = (
        "put the missing file back, restore a backup with `dralloc restore`, or go on without these writes with "
        "--accept-lost-writes"
    )
    mark, restored = read_mark(path, disk), read_without_log(restoring_path(path), disk)
    # Before it replaces the mark, an interrupted restore has changed nothing but what it leaves behind.
    if mark is not None and restored is not None and mark.identity == restored.identity:
        remedy = "a `dralloc restore` was interrupted; repeat it"
    return LostWrites(f"{path} lost acknowledged writes: {loss}; {remedy}")


# --- File without log -----------------------------------------------------------------------------------------------
# What the database file of a SQLite store has without its write-ahead log.
#
# SQLite takes any log that lies beside the file: a complete one of another store, or of an earlier time, hides what
# the file has, and replaces it when the store is closed. The log of a file has all that the file has, so the file
# alone is never newer.


def read_without_log(path: Path, disk: Disk) -> Mark | None:
    """The identity and the newest revision in the file, which no connection of this process may have open.

    None if the file says nothing: everything is in the log, or a process was killed while it moved the log into the file.
    """
    try:
        with contextlib.closing(disk.connect_without_log(path)) as connection:
            return _read(connection)
    except (sqlite3.Error, DamagedRow, UnicodeDecodeError):
        return None


def _read(connection: sqlite3.Connection) -> Mark | None:
    ((form,),) = connection.execute("PRAGMA user_version").fetchall()
    identities = connection.execute("SELECT id FROM identity").fetchall()
    ((newest,),) = connection.execute("SELECT max(revision) FROM version").fetchall()
    if len(identities) != 1 or not isinstance(identities[0][0], bytes) or newest is None:
        return None
    mark, rows = Mark(identity=identities[0][0], revision=newest), VersionRows(connection)
    # Files of version 1 have checksums without the identity.
    rows.salt = salt_of(mark.identity) if form > 1 else 0
    return mark if any(rows.read("revision >= ?", newest)) else None
