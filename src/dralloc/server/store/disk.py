"""Every access of the SQLite store to files. Simulations replace it with a disk that fails."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from dralloc.atomic_files import sync_directory, write_atomically
from dralloc.server.store.errors import StoreInUse

PIECE_BYTES = 1 << 20


class DiskFile:
    """A file of constant size, open for writing."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)

    def write(self, offset: int, content: bytes) -> None:
        os.pwrite(self._descriptor, content, offset)

    def sync(self) -> None:
        """Returns when everything written before is on the disk."""
        os.fdatasync(self._descriptor)

    def close(self) -> None:
        os.close(self._descriptor)


class FileLock:
    """Keeps other users of `Disk.lock` from a file."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def close(self) -> None:
        """Only when this process has no connection to the file any more: to close it releases the locks of SQLite."""
        os.close(self._descriptor)


class Disk:
    """The files of this machine."""

    def lock(self, path: Path) -> FileLock:
        """Locks a file, which is created if it does not exist. Raises StoreInUse, and OSError if it cannot be written.

        SQLite's own locks end with its connection, which cannot be open while the file and its log are replaced.
        """
        while True:
            self.create_private(path)
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            with contextlib.ExitStack() as closing:
                closing.callback(os.close, descriptor)
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    raise StoreInUse(f"{path} is in use by another process") from None
                # The lock is worth nothing if the file was replaced or removed before it was locked.
                with contextlib.suppress(FileNotFoundError):
                    if os.path.samestat(os.fstat(descriptor), path.stat()):
                        closing.pop_all()
                        return FileLock(descriptor)

    def connect(self, path: Path, *, cached_statements: int) -> sqlite3.Connection:
        """Opens a database; the caller begins and ends its transactions."""
        return sqlite3.connect(
            path, timeout=0, isolation_level=None, check_same_thread=False, cached_statements=cached_statements
        )

    def connect_without_log(self, path: Path) -> sqlite3.Connection:
        """Opens a database to read what it has without its write-ahead log. Never one that is open."""
        # SQLite would take what follows two slashes for a host, and a name need not be UTF-8.
        return sqlite3.connect(f"file://{quote(os.fsencode(path.absolute()))}?mode=ro&immutable=1", uri=True)

    def create_private(self, path: Path) -> None:
        """Creates the file if it does not exist, readable only for its owner; SQLite gives its log the same mode.

        Raises OSError if it exists and cannot be written, which SQLite would call an I/O error.
        """
        try:
            # Never open an existing file: closing it again would release this process's locks on it.
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
            sync_directory(path.parent)
        except FileExistsError:
            if not os.access(path, os.W_OK):
                code = errno.EROFS if os.statvfs(path).f_flag & os.ST_RDONLY else errno.EACCES
                raise OSError(code, os.strerror(code), str(path)) from None

    def is_empty(self, path: Path) -> bool:
        """True if the file has no bytes or does not exist."""
        return self.size(path) == 0

    def size(self, path: Path) -> int:
        """The length of a file in bytes; 0 if it does not exist."""
        try:
            return path.stat().st_size
        except FileNotFoundError:
            return 0

    def read(self, path: Path) -> bytes | None:
        """Returns the content of a file; None if it does not exist. Never for a database that is open."""
        try:
            return path.read_bytes()
        except FileNotFoundError:
            return None

    def open_file(self, path: Path) -> DiskFile:
        return DiskFile(path)

    def replace(self, path: Path, content: bytes) -> None:
        """Writes a private file; after a crash the path has the old content or the new one."""
        write_atomically(path, content)

    def write_again(self, path: Path) -> None:
        """Writes the content of a file, if it exists, where it stands and syncs it, also if an earlier sync failed and the system
        considers it written. It takes no room.
        """
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        try:
            offset = 0
            while piece := os.pread(descriptor, PIECE_BYTES, offset):
                offset += os.pwrite(descriptor, piece, offset)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        sync_directory(path.parent)

    def extend(self, path: Path, size: int) -> None:
        """Makes a file longer, as far as there is room, with zeros that are on the disk when this returns. No other thread may write to it
        meanwhile. Raises OSError if it cannot be synced.
        """
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        except OSError:
            # Too many files are open, or the file system became read-only: no byte was written, so that none must be synced.
            return
        try:
            end = os.fstat(descriptor).st_size
            with contextlib.suppress(OSError):
                while end < size:
                    end += os.pwrite(descriptor, bytes(min(PIECE_BYTES, size - end)), end)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def rename(self, path: Path, to: Path) -> None:
        """Renames a file, durably."""
        path.replace(to)
        sync_directory(to.parent)

    def remove(self, path: Path) -> None:
        """Deletes a file if it exists, durably."""
        path.unlink(missing_ok=True)
        sync_directory(path.parent)

    @contextlib.contextmanager
    def keeping(self, path: Path) -> Iterator[None]:
        """Whatever deletes the file inside the block, it exists afterwards with its content."""
        kept = path.with_name(f"{path.name}.kept")
        with contextlib.suppress(OSError):
            kept.unlink(missing_ok=True)
            os.link(path, kept)
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                # Renaming one of two names of the same file to the other does nothing.
                kept.unlink() if path.exists() else kept.replace(path)


# --- Database files -------------------------------------------------------------------------------------------------
# The files beside the database file of a SQLite store.


def log_path(database: Path) -> Path:
    """The write-ahead log, where SQLite has it: beside the file itself if `database` is a symbolic link to it."""
    real = database.resolve()
    return real.with_name(f"{real.name}-wal")


def mark_path(database: Path) -> Path:
    """The high-water mark."""
    return database.with_name(f"{database.name}-mark")


def restoring_path(database: Path) -> Path:
    """The store that `dralloc restore` makes beside the one that it replaces, on the same file system."""
    real = database.resolve()
    return real.with_name(f"{real.name}.restoring")
