"""A disk in memory for the SQLite store: what was not synced may be lost, torn or reordered when the power fails.

SQLite reaches it through a VFS, which Python's own `sqlite3` does not offer; `apsw` does. The store's code is the real one: it gets
a connection that behaves like one of `sqlite3`, down to the names of errors.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, Final, cast

import apsw

from dralloc.server.store.disk import Disk, DiskFile, FileLock
from tests.simulator.apsw_connection import ApswConnection, as_sqlite3_errors, sqlite_error

SECTOR: Final = 512
DATABASE: Final = Path("/simulated/store.db")
LOG: Final = Path("/simulated/store.db-wal")

_numbers = itertools.count()


class _Content:
    """A file as programs see it, as the disk has it, and the writes in between."""

    def __init__(self, content: bytes = b"") -> None:
        self.seen = bytearray(content)
        self._durable = bytearray(content)
        # Writes (offset and bytes) and truncations (the size) since the last sync.
        self._unsynced: list[tuple[int, bytes] | int] = []
        # A new file is in its directory for good only after its first sync.
        self.is_linked = False

    def write(self, offset: int, content: bytes) -> None:
        _write(self.seen, offset, content)
        self._unsynced.append((offset, bytes(content)))

    def truncate(self, size: int) -> None:
        _truncate(self.seen, size)
        self._unsynced.append(size)

    def sync(self) -> None:
        for change in self._unsynced:
            _apply(self._durable, change)
        self._unsynced.clear()
        self.is_linked = True

    def fail_to_sync(self) -> None:
        """The system has dropped the writes, and will not try again."""
        self._unsynced.clear()

    def lose_power(self, random: Random) -> None:
        """Some of the unsynced writes arrived, in any order, some of them in part."""
        for change in self._unsynced:
            if random.random() < 0.5:
                continue
            if isinstance(change, tuple) and random.random() < 0.3:
                offset, content = change
                for start in range(0, len(content), SECTOR):
                    if random.random() < 0.5:
                        _apply(self._durable, (offset + start, content[start : start + SECTOR]))
            else:
                _apply(self._durable, change)
        self._unsynced.clear()
        self.seen = bytearray(self._durable)


class SimulatedDisk(Disk):
    """Files by path. A crash ends every connection and open file."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._files: dict[Path, _Content] = {}
        # Deleted, but not yet from the directory on the disk.
        self._deleted: dict[Path, _Content] = {}
        self._crashes = 0
        self._connections: list[ApswConnection] = []
        self.is_full = False
        self.fails_to_sync = False
        self._vfs = [_Vfs(self)]
        # SQLite's generator serves the whole process. From now on it starts with the bytes of the disk.
        apsw.randomness(0)

    def close(self) -> None:
        self.crash(power_loss=False)
        for connection in self._connections:
            connection.close()
        for vfs in self._vfs:
            vfs.unregister()

    # --- faults -------------------------------------------------------------------------------------------

    def crash(self, *, power_loss: bool) -> None:
        """The process is gone. Without a power loss, the system still has what it wrote."""
        self._crashes += 1
        # What the old process still does, such as closing its files, reaches nothing.
        self._vfs.append(_Vfs(self))
        self.fails_to_sync = False
        if power_loss:
            for path, content in list(self._files.items()):
                content.lose_power(self._random)
                if not content.is_linked and self._random.random() < 0.5:
                    del self._files[path]
            for path, content in self._deleted.items():
                if path not in self._files and self._random.random() < 0.5:
                    content.lose_power(self._random)
                    self._files[path] = content
            self._deleted.clear()

    def image(self) -> dict[Path, bytes]:
        """A copy of all files, as of a file system that takes snapshots."""
        return {path: bytes(content.seen) for path, content in self._files.items()}

    def load(self, image: dict[Path, bytes]) -> None:
        """Replace all files by those of an image."""
        self._files = {path: _Content(content) for path, content in image.items()}
        for content in self._files.values():
            content.sync()

    def damage_log(self) -> str:
        """Cut off the end of the write-ahead log, or overwrite a part of it; empty if there is none."""
        content = self._files.get(LOG)
        # What it was extended by has nothing to lose.
        size = len(content.seen.rstrip(b"\0")) if content is not None else 0
        if content is None or size < 2 * SECTOR:
            return ""
        place = self._random.randrange(size // 2, size)
        if self._random.random() < 0.1:
            del self._files[LOG]
            return "deleted the write-ahead log"
        if self._random.random() < 0.5:
            content.truncate(place)
        else:
            content.write(place, bytes(min(SECTOR, size - place)))
        content.sync()
        return f"damaged the write-ahead log at {place} of {size}"

    # --- what SQLite uses ---------------------------------------------------------------------------------

    def check(self, opened_at: int) -> None:
        if opened_at != self._crashes:
            raise sqlite_error("SQLITE_IOERR")

    def find(self, path: Path, *, create: bool = False) -> _Content | None:
        if path not in self._files and create:
            self._files[path] = _Content()
        return self._files.get(path)

    def unlink(self, path: Path, *, durably: bool) -> None:
        content = self._files.pop(path, None)
        if content is not None and not durably:
            self._deleted[path] = content
        elif durably:
            self._deleted.pop(path, None)

    @property
    def crashes(self) -> int:
        return self._crashes

    def random_bytes(self, count: int) -> bytes:
        """For the identities of stores and the salts of logs: on these depends how large rows are and what damage hits."""
        return self._random.randbytes(count)

    def has_room(self, content: _Content, size: int) -> bool:
        return not self.is_full or size <= len(content.seen)

    # --- the store's interface ----------------------------------------------------------------------------

    def connect(self, path: Path, *, cached_statements: int) -> sqlite3.Connection:
        with as_sqlite3_errors():
            opened = apsw.Connection(str(path), vfs=self._vfs[-1].name, statementcachesize=cached_statements)
        self._connections = [connection for connection in self._connections if not connection.closed]
        self._connections.append(ApswConnection(opened))
        return cast("sqlite3.Connection", self._connections[-1])

    def connect_without_log(self, path: Path) -> sqlite3.Connection:
        with as_sqlite3_errors():
            flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
            opened = apsw.Connection(f"file:{path}?immutable=1", flags=flags, vfs=self._vfs[-1].name)
        return cast("sqlite3.Connection", ApswConnection(opened))

    def lock(self, path: Path) -> FileLock:
        self.create_private(path)
        return _NoLock()

    def create_private(self, path: Path) -> None:
        content = self.find(path, create=True)
        assert content is not None, "it was created"
        content.is_linked = True

    def size(self, path: Path) -> int:
        content = self._files.get(path)
        return len(content.seen) if content is not None else 0

    def read(self, path: Path) -> bytes | None:
        content = self._files.get(path)
        return None if content is None else bytes(content.seen)

    def open_file(self, path: Path) -> DiskFile:
        content = self._files.get(path)
        if content is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", str(path))
        return _SimulatedFile(self, content)

    def replace(self, path: Path, content: bytes) -> None:
        if self.is_full:
            raise OSError(errno.ENOSPC, "no space left on device", str(path))
        replaced = _Content(content)
        replaced.sync()
        self._files[path] = replaced

    def write_again(self, path: Path) -> None:
        content = self._files.get(path)
        if content is None:
            return
        content.write(0, bytes(content.seen))
        if self.fails_to_sync:
            content.fail_to_sync()
            raise OSError(errno.EIO, "input/output error", str(path))
        content.sync()

    def extend(self, path: Path, size: int) -> None:
        content = self._files[path]
        if self.has_room(content, size):
            content.write(len(content.seen), bytes(max(0, size - len(content.seen))))
        if self.fails_to_sync:
            content.fail_to_sync()
            raise OSError(errno.EIO, "input/output error", str(path))
        content.sync()

    def rename(self, path: Path, to: Path) -> None:
        self._files[to] = self._files.pop(path)

    def remove(self, path: Path) -> None:
        self.unlink(path, durably=True)

    @contextlib.contextmanager
    def keeping(self, path: Path) -> Iterator[None]:
        content = self._files.get(path)
        try:
            yield
        finally:
            if content is not None:
                self._files[path] = content


class _NoLock(FileLock):
    """A simulated disk has one process at a time."""

    def __init__(self) -> None:
        pass

    def close(self) -> None:
        pass


class _SimulatedFile(DiskFile):
    def __init__(self, disk: SimulatedDisk, content: _Content) -> None:
        self._disk = disk
        self._content = content
        self._opened_at = disk.crashes

    def write(self, offset: int, content: bytes) -> None:
        self._check()
        if not self._disk.has_room(self._content, offset + len(content)):
            raise OSError(errno.ENOSPC, "no space left on device")
        self._content.write(offset, content)

    def sync(self) -> None:
        self._check()
        self._content.sync()

    def close(self) -> None:
        """No-op: the content is the disk's."""

    def _check(self) -> None:
        if self._opened_at != self._disk.crashes:
            raise OSError(errno.EIO, "the disk is gone")


class _Vfs(apsw.VFS):
    """Opens files of the disk; the time is that of the system."""

    def __init__(self, disk: SimulatedDisk) -> None:
        self._disk = disk
        self._opened_at = disk.crashes
        self.name = f"simulated-{next(_numbers)}"
        # SQLite asks the default one for random bytes, whichever a connection uses.
        super().__init__(self.name, base="", makedefault=True)

    def xOpen(self, name: Any, flags: list[int]) -> Any:
        self._disk.check(self._opened_at)
        path = Path(
            name.filename() if isinstance(name, apsw.URIFilename) else str(name or f"/temporary-{next(_numbers)}")
        )
        content = self._disk.find(path, create=bool(flags[0] & apsw.SQLITE_OPEN_CREATE))
        if content is None:
            raise sqlite_error("SQLITE_CANTOPEN")
        flags[1] = flags[0]
        return _VfsFile(self._disk, content)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        self._disk.check(self._opened_at)
        self._disk.unlink(Path(filename), durably=syncdir)

    def xAccess(self, pathname: str, flags: int) -> bool:
        return self._disk.find(Path(pathname)) is not None

    def xFullPathname(self, name: str) -> str:
        return name

    def xRandomness(self, numbytes: int) -> bytes:
        return self._disk.random_bytes(numbytes)


class _VfsFile:
    """The methods are those that SQLite calls."""

    def __init__(self, disk: SimulatedDisk, content: _Content) -> None:
        self._disk = disk
        self._content = content
        self._opened_at = disk.crashes

    def xRead(self, amount: int, offset: int) -> bytes:
        self._disk.check(self._opened_at)
        return bytes(self._content.seen[offset : offset + amount])

    def xWrite(self, data: bytes, offset: int) -> None:
        self._disk.check(self._opened_at)
        if not self._disk.has_room(self._content, offset + len(data)):
            raise sqlite_error("SQLITE_FULL")
        self._content.write(offset, data)

    def xTruncate(self, newsize: int) -> None:
        self._disk.check(self._opened_at)
        self._content.truncate(newsize)

    def xSync(self, flags: int) -> None:
        self._disk.check(self._opened_at)
        if self._disk.fails_to_sync:
            self._content.fail_to_sync()
            raise sqlite_error("SQLITE_IOERR_FSYNC")
        self._content.sync()

    def xFileSize(self) -> int:
        self._disk.check(self._opened_at)
        return len(self._content.seen)

    def xLock(self, level: int) -> None:
        """No-op: one process uses the file."""

    def xUnlock(self, level: int) -> None:
        """No-op: one process uses the file."""

    def xCheckReservedLock(self) -> bool:
        return False

    def xFileControl(self, op: int, ptr: int) -> bool:
        return False

    def xSectorSize(self) -> int:
        return SECTOR

    def xDeviceCharacteristics(self) -> int:
        return 0

    def xClose(self) -> None:
        """No-op: the content is the disk's."""


def _apply(content: bytearray, change: tuple[int, bytes] | int) -> None:
    if isinstance(change, int):
        _truncate(content, change)
    else:
        _write(content, *change)


def _write(content: bytearray, offset: int, written: bytes) -> None:
    if len(content) < offset:
        content.extend(bytes(offset - len(content)))
    content[offset : offset + len(written)] = written


def _truncate(content: bytearray, size: int) -> None:
    if len(content) > size:
        del content[size:]
    else:
        content.extend(bytes(size - len(content)))
