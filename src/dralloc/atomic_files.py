"""Files that hold all of the old or all of the new content, also after a crash of the machine."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def write_atomically(path: Path, content: bytes, *, mode: int = 0o600, like: os.stat_result | None = None) -> None:
    """Replace the file. A reader sees the old content or the new one, never a part, and never with a wider mode.

    With `like`, the status of the file that is replaced, the new file has the same mode and owner. Every OSError names the file.
    """
    # Hidden and without the suffix, so that a directory scan does not mistake it for the file itself.
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    with naming(path):
        refuse_devices(path)
        try:
            unfinished.unlink(missing_ok=True)
            descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                # Otherwise a power failure after the replacement can leave an empty file.
                os.fsync(descriptor)
                if like is not None:
                    os.fchmod(descriptor, stat.S_IMODE(like.st_mode))
                if like is not None and os.geteuid() == 0:
                    os.fchown(descriptor, like.st_uid, like.st_gid)
            unfinished.replace(path)
            sync_directory(path.parent)
        except OSError:
            with suppress(OSError):
                unfinished.unlink()
            raise


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """An OSError inside the block names the file: those of a full disk name none."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def refuse_devices(path: Path) -> None:
    """Raises OSError if the path is a device, a pipe or a socket: a file that took its place would be no help, and harm other programs."""
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise OSError(errno.EINVAL, "Not a regular file", str(path))


def remove_file(path: Path) -> None:
    """Remove the file if it exists."""
    with suppress(FileNotFoundError):
        path.unlink()
        sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Without this a new or removed name may be lost in a power failure, although the content is not."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def locked_directory(path: Path) -> Iterator[None]:
    """One process at a time is inside the block: for changes that span several files. Works in a directory that cannot be written."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


# --- Private file ---------------------------------------------------------------------------------------------------
# Files that only their owner can read: keys, tokens and kubeconfig files.


def write_private(path: Path, text: str, *, like: os.stat_result | None = None) -> None:
    """Write a file that only its owner can read, or one with the mode and owner of the file that it replaces.

    A private file that has the text already is left alone: this works on a full disk, too.
    """
    if like is None and _has(path, text):
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, text.encode(), like=like)


def _has(path: Path, text: str) -> bool:
    try:
        return stat.S_IMODE(path.lstat().st_mode) == 0o600 and path.read_bytes() == text.encode()
    except OSError:
        return False
