"""Files that only their owner can read: keys, tokens and kubeconfig files."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def write_private(path: Path, text: str, *, like: os.stat_result | None = None) -> None:
    """Write a file that only its owner can read, atomically: no reader sees half of it or a wider mode.

    With `like`, the status of the file that is replaced, the new file has the same mode and owner. A private file that has the
    text already is left alone: this works on a full disk, too.
    """
    if like is None and _has(path, text):
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    unfinished.unlink(missing_ok=True)
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            # Otherwise a power failure after the replacement can leave an empty file.
            file.flush()
            os.fsync(descriptor)
            if like is not None:
                os.fchmod(descriptor, stat.S_IMODE(like.st_mode))
            if like is not None and os.geteuid() == 0:
                os.fchown(descriptor, like.st_uid, like.st_gid)
        unfinished.replace(path)
    except OSError:
        unfinished.unlink(missing_ok=True)
        raise


def _has(path: Path, text: str) -> bool:
    try:
        return stat.S_IMODE(path.lstat().st_mode) == 0o600 and path.read_bytes() == text.encode()
    except OSError:
        return False
