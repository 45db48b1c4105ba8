"""Files that are there completely or not at all, also after a crash of the machine."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def write_atomically(path: Path, content: bytes, *, mode: int = 0o600) -> None:
    """Replace the file: whoever reads it sees the old content or the new one."""
    # Nobody takes a hidden file without the suffix for the thing itself.
    temporary = path.parent / f".{path.name}.new"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(path)
    except OSError:
        with suppress(OSError):
            temporary.unlink()
        raise
    sync_directory(path.parent)


def remove(path: Path) -> None:
    """Remove the file, where it is there."""
    with suppress(FileNotFoundError):
        path.unlink()
        sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Make sure that names which came or went stay so."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
