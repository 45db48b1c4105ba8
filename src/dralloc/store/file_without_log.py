"""What the database file of a SQLite store has without its write-ahead log.

SQLite takes any log that lies beside the file: a complete one of another store, or of an earlier time, hides what the file has, and
replaces it when the store is closed. The log of a file has all that the file has, so the file alone is never newer.
"""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

from dralloc.store.disk import Disk
from dralloc.store.high_water_mark import Mark
from dralloc.store.version_rows import DamagedRow, VersionRows, salt_of


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
