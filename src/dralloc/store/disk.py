"""Every access of the SQLite store to files. Simulations replace it with a disk that fails."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from pathlib import Path


class Disk:
    """The files of this machine."""

    def connect(self, path: Path, *, cached_statements: int) -> sqlite3.Connection:
        """Opens a database; the caller begins and ends its transactions."""
        return sqlite3.connect(
            path, timeout=0, isolation_level=None, check_same_thread=False, cached_statements=cached_statements
        )

    def create_private(self, path: Path) -> None:
        """Creates the file if it does not exist, readable only for its owner; SQLite gives its log the same mode."""
        with contextlib.suppress(FileExistsError):
            # Never open an existing file: closing it again would release this process's locks on it.
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
            directory = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)
