"""Room in the write-ahead log of a SQLite store, so that most commits replace bytes of the file instead of making it longer.

The length of a file is in the journal of its file system, which a sync of a longer file must write, too: it takes a third more. So zeros are
written behind the end of the log when there is time. SQLite ends a log at the first bytes that are no page of it, and uses the file from its start again
after a checkpoint. Nothing is lost if there is no room; a sync that fails is as bad as that of a commit, because it may be the one that has
what SQLite wrote behind its last sync.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from dralloc.server.store.disk import Disk

# Small stores, of tests above all, stay small.
BYTES_MIN: Final = 256 * 1024
STEP_BYTES: Final = 4 << 20


class LogRoom:
    """Used by the thread that commits. `bytes_max`: the length of a log that has as many pages as make a checkpoint."""

    def __init__(self, log: Path, disk: Disk, *, bytes_max: int) -> None:
        self._log = log
        self._disk = disk
        self._bytes_max = bytes_max
        self._bytes = BYTES_MIN
        # The log is longer than it was made.
        self.is_used_up = False

    def check(self) -> None:
        """Called after a commit."""
        self.is_used_up = self._disk.size(self._log) > self._bytes

    def extend(self) -> None:
        """Writes zeros behind the log, which takes some milliseconds. Raises OSError if that cannot be synced."""
        size = self._disk.size(self._log)
        self._bytes = max(size, min(size + STEP_BYTES, self._bytes_max))
        self.is_used_up = False
        self._disk.extend(self._log, self._bytes)
