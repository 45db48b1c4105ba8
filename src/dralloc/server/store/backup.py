"""Backups: every record of a store at one revision, as lines of text, and a new SQLite store made from them.

The first line has the revision and the number of records, each following line one record, and the last line a checksum of all
lines before it. A file that is cut off or damaged anywhere is refused as a whole.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from dralloc.primitives.clock import Clock
from dralloc.primitives.decoders import UNREADABLE
from dralloc.primitives.new_history import first_of_history
from dralloc.server.store.disk import Disk, log_path, mark_path, restoring_path
from dralloc.server.store.errors import StoreError
from dralloc.server.store.high_water_mark import read_mark, write_mark
from dralloc.server.store.interface import PageToken, Store
from dralloc.server.store.records import Record
from dralloc.server.store.sqlite_file import SqliteFile

FORMAT: Final = "dralloc-backup"
VERSION: Final = 1
# A piece is made and encrypted in one step, and has at least one record.
PIECE_BYTES: Final = 256 * 1024


class BadBackup(StoreError):
    """Not a backup, or a damaged one."""


class Header(msgspec.Struct, frozen=True, kw_only=True):
    format: str
    version: int
    revision: int
    records: int


class _Trailer(msgspec.Struct, frozen=True, kw_only=True):
    sha256: str


_HEADER: Final = msgspec.json.Decoder(Header)
_RECORD: Final = msgspec.json.Decoder(Record)
_TRAILER: Final = msgspec.json.Decoder(_Trailer)


async def backup_pieces(store: Store) -> AsyncGenerator[bytes, None]:
    """Yields a backup in pieces. Writes go on meanwhile and are not part of it. Raises Compacted on a store that changes
    faster than it can be read.
    """
    records, revision = await _read_everything(store)
    head = Header(format=FORMAT, version=VERSION, revision=revision, records=len(records))
    digest = hashlib.sha256()
    for piece in _lines(head, records):
        digest.update(piece)
        yield piece
        await asyncio.sleep(0)
    yield msgspec.json.encode(_Trailer(sha256=digest.hexdigest())) + b"\n"


class BackupReader:
    """Reads a backup line by line; `finish` raises BadBackup unless all of it was read."""

    def __init__(self) -> None:
        self.header: Header | None = None
        self._digest = hashlib.sha256()
        self._left = 0
        self._is_complete = False

    def read(self, line: bytes) -> Record | None:
        """Returns the record of a line without its end, if it has one; raises BadBackup."""
        try:
            if self.header is None:
                self._begin(line)
                return None
            if self._left:
                self._left -= 1
                record = _RECORD.decode(line)
                self._digest.update(line + b"\n")
                return record
            if self._is_complete or _TRAILER.decode(line).sha256 != self._digest.hexdigest():
                raise BadBackup("the backup is damaged: its checksum is wrong")
        except UNREADABLE as error:
            what = "it is not a backup" if self.header is None else "the backup is damaged"
            raise BadBackup(f"{what}: {error}") from error
        self._is_complete = True
        return None

    def finish(self) -> Header:
        if self.header is None or not self._is_complete:
            raise BadBackup("the backup is incomplete: its end is missing")
        return self.header

    def _begin(self, line: bytes) -> None:
        header = _HEADER.decode(line)
        if header.format != FORMAT:
            raise BadBackup("it is not a backup")
        if header.version > VERSION:
            raise BadBackup(f"the backup was written by a newer version (format {header.version}, known: {VERSION})")
        self._digest.update(line + b"\n")
        self.header, self._left = header, header.records


def read_backup(lines: Iterable[bytes]) -> tuple[Header, Sequence[Record]]:
    """Returns what a backup contains; raises BadBackup."""
    reader = BackupReader()
    records = [record for line in lines if (record := reader.read(line.removesuffix(b"\n"))) is not None]
    return reader.finish(), records


def restore_sqlite(path: Path, header: Header, records: Iterable[Record], *, clock: Clock, disk: Disk) -> int:
    """Makes a SQLite store from a backup, replacing one that exists; returns its revision.

    The store has a new identity, and revisions above all those that any server of the old one has given out. It is complete
    beside the old one before that is touched. If the process is killed or told to end in between, the old one is refused until the
    restore is repeated. No server can start meanwhile. Raises StoreInUse and StoreError.
    """
    with contextlib.closing(disk.lock(path)):
        known = read_mark(path, disk)
        newest = max(header.revision, known.revision if known else 0)
        unfinished = restoring_path(path)
        _remove_store(unfinished, disk)
        try:
            file = SqliteFile(unfinished, disk=disk)
            try:
                mark = file.begin_history(records, first_revision=first_of_history(newest, clock.now()))
            finally:
                file.close()
            write_mark(path, mark, disk)
            disk.remove(log_path(path))
            disk.rename(unfinished, path.resolve())
            _remove_store(unfinished, disk)
        except BaseException:
            # The disk may be full, or the user has ended the command. The file contains secrets. Once the old store has the mark of the
            # new one, it is refused, and this file tells why.
            if read_mark(path, disk) == known:
                _remove_store(unfinished, disk)
            raise
        finally:
            if disk.is_empty(path):
                disk.remove(path)
        return mark.revision


def _remove_store(path: Path, disk: Disk) -> None:
    for each in (path, log_path(path), mark_path(path)):
        disk.remove(each)


async def _read_everything(store: Store) -> tuple[list[Record], int]:
    records: list[Record] = []
    token: PageToken | None = None
    while True:
        page = await store.list_prefix("", limit=500, page=token)
        records.extend(page.records)
        token = page.next
        if token is None:
            return records, page.revision
        await asyncio.sleep(0)


def _lines(header: Header, records: Sequence[Record]) -> Iterator[bytes]:
    yield msgspec.json.encode(header) + b"\n"
    piece: list[bytes] = []
    size = 0
    for record in records:
        piece.append(msgspec.json.encode(record) + b"\n")
        size += len(piece[-1])
        if size >= PIECE_BYTES:
            yield b"".join(piece)
            piece, size = [], 0
    if piece:
        yield b"".join(piece)
