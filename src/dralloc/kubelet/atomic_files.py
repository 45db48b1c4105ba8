"""Files that hold all of the old or all of the new content, also after a crash of the machine."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def write_atomically(path: Path, content: bytes, *, mode: int = 0o600) -> None:
    """Replace the file. A reader sees the old content or the new one, never a part."""
    # Hidden and without the suffix, so that a directory scan does not mistake it for the file itself.
    temporary = path.parent / f".{path.name}.new"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        with suppress(OSError):
            temporary.unlink()
        raise
    _sync_directory(path.parent)


def remove_file(path: Path) -> None:
    """Remove the file if it exists."""
    with suppress(FileNotFoundError):
        path.unlink()
        _sync_directory(path.parent)


def _sync_directory(path: Path) -> None:
    """Without this a new or removed name may be lost in a power failure, although the content is not."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
