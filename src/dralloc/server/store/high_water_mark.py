"""The high-water mark: the newest acknowledged revision of a SQLite store, in a file beside the database.

SQLite cannot tell a write-ahead log that lost its end from one that ended there, so a missing or damaged end would silently
undo acknowledged writes. The mark is written after the log is synced and before a write is acknowledged. So it is never
ahead of the log, whenever the process is killed or the power fails, and a log that ends before it has lost writes. The mark
itself is synced in the background: after a power failure it may be some milliseconds old, which is harmless.
"""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import msgspec

from dralloc.server.store.disk import Disk, mark_path

SLOT_BYTES = 4096
"""One disk block for each slot, so that a torn write damages one of them only."""
_SLOT = struct.Struct(">4s16sQ")
_CHECKSUM = struct.Struct(">I")
_MAGIC = b"drhw"


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """The store with this identity has acknowledged every write up to the revision."""

    identity: bytes
    revision: int


def read_mark(database: Path, disk: Disk) -> Mark | None:
    """Returns the mark beside a database; None if there is no undamaged one."""
    newest = _newest(disk.read(mark_path(database)) or b"")
    return newest[0] if newest else None


def write_mark(database: Path, mark: Mark, disk: Disk) -> None:
    """Replaces the mark of a database that is not open."""
    disk.replace(mark_path(database), _encode(mark).ljust(2 * SLOT_BYTES, b"\0"))


class MarkFile:
    """The mark of an open store, which must exist."""

    def __init__(self, database: Path, disk: Disk) -> None:
        path = mark_path(database)
        newest = _newest(disk.read(path) or b"")
        assert newest is not None, "the mark exists"
        self._mark, self._slot = newest
        self._file = disk.open_file(path)

    def advance(self, revision: int) -> None:
        """Writes the mark, in the slot that does not have the newest one. Killing the process does not undo it."""
        self._slot = SLOT_BYTES - self._slot
        self._mark = Mark(identity=self._mark.identity, revision=revision)
        self._file.write(self._slot, _encode(self._mark))

    def sync(self) -> None:
        """Returns when the newest mark would survive a power failure."""
        self._file.sync()

    def close(self) -> None:
        self._file.close()


def _encode(mark: Mark) -> bytes:
    body = _SLOT.pack(_MAGIC, mark.identity, mark.revision)
    return body + _CHECKSUM.pack(zlib.crc32(body))


def _newest(content: bytes) -> tuple[Mark, int] | None:
    """Returns the newest undamaged mark in the content of a file, and its slot."""
    found: list[tuple[Mark, int]] = []
    for slot in (0, SLOT_BYTES):
        body = content[slot : slot + _SLOT.size]
        checksum = content[slot + _SLOT.size : slot + _SLOT.size + _CHECKSUM.size]
        if len(checksum) == _CHECKSUM.size and checksum == _CHECKSUM.pack(zlib.crc32(body)):
            magic, identity, revision = _SLOT.unpack(body)
            if magic == _MAGIC:
                found.append((Mark(identity=identity, revision=revision), slot))
    return max(found, key=lambda each: each[0].revision, default=None)
