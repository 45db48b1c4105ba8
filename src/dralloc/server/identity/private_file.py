"""Files that only their owner can read: keys, tokens and kubeconfig files."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from dralloc.atomic_files import write_atomically


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
