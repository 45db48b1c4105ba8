"""The rows of a SQLite store: one for each kept revision, with a checksum that shows damage and rows of another store."""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Final

from dralloc.server.store.records import StoreEvent

ROWS_PER_STATEMENT_MAX: Final = 128
TABLE: Final = (
    "CREATE TABLE version (revision INTEGER PRIMARY KEY, key TEXT NOT NULL, value BLOB, checksum INTEGER NOT NULL)"
)


class DamagedRow(Exception):
    """The row is damaged, or of another store."""

    def __init__(self, revision: object) -> None:
        super().__init__(revision)
        self.revision = revision


class VersionRows:
    """The rows of an open database. Checksums depend on the salt, which is that of the store; 0 in files of version 1."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.salt = 0

    def append(self, events: Sequence[StoreEvent]) -> None:
        # One statement for many rows: Python's sqlite3 releases the GIL at every statement, and reacquiring it from a
        # busy event loop takes milliseconds.
        for start in range(0, len(events), ROWS_PER_STATEMENT_MAX):
            part = events[start : start + ROWS_PER_STATEMENT_MAX]
            columns = [column for event in part for column in _row(event, self.salt)]
            self._connection.execute(_insert(len(part)), columns)

    def read(self, condition: str, bound: int) -> Iterator[tuple[int, str, bytes | None]]:
        """Yields revision, key and value, None for a deletion; raises DamagedRow."""
        query = f"SELECT revision, key, value, checksum FROM version WHERE {condition} ORDER BY revision"
        for revision, key, value, checksum in self._connection.execute(query, (bound,)):
            try:
                intact = checksum == checksum_of(revision, key, value, self.salt)
            except (AttributeError, TypeError):
                intact = False  # Damage can change a column's type, too.
            if not intact:
                raise DamagedRow(revision)
            yield revision, key, value

    def delete(self, revisions: Sequence[int]) -> None:
        for start in range(0, len(revisions), ROWS_PER_STATEMENT_MAX):
            part = revisions[start : start + ROWS_PER_STATEMENT_MAX]
            self._connection.execute(f"DELETE FROM version WHERE revision IN ({', '.join('?' * len(part))})", part)

    def change_salt(self, salt: int) -> None:
        """Gives all rows checksums with this salt."""
        self.salt = salt
        execute = self._connection.execute
        for (revision,) in execute("SELECT revision FROM version").fetchall():
            key, value = execute("SELECT key, value FROM version WHERE revision = ?", (revision,)).fetchone()
            checksum = checksum_of(revision, key, value, salt)
            execute("UPDATE version SET checksum = ? WHERE revision = ?", (checksum, revision))


def salt_of(identity: bytes) -> int:
    # Not 0, which is the salt of version 1.
    return zlib.crc32(identity) or 1


def checksum_of(revision: int, key: str, value: bytes | None, salt: int) -> int:
    """Detects damaged and swapped rows, and those of another store; a deletion differs from an empty value."""
    head = zlib.crc32(key.encode(), (revision ^ salt) & 0xFFFFFFFF)
    return head if value is None else zlib.crc32(value, head ^ 1)


def _row(event: StoreEvent, salt: int) -> tuple[int, str, bytes | None, int]:
    value = event.record.value if event.record else None
    return event.revision, event.key, value, checksum_of(event.revision, event.key, value, salt)


@cache
def _insert(rows: int) -> str:
    return "INSERT INTO version (revision, key, value, checksum) VALUES " + ", ".join(["(?, ?, ?, ?)"] * rows)
