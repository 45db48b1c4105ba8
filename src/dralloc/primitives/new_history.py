"""The revisions of a store that was restored from a backup, or that lost writes: higher than any that was given out before."""

from __future__ import annotations

from datetime import datetime
from typing import Final

# Between the newest revision that is known and a new history. Clients recognize a restored store by half of it.
HISTORY_GAP: Final = 1_000_000_000


def first_of_history(newest_known: int, now: datetime) -> int:
    """Returns the first revision of a new history that follows one of which this revision is the newest known.

    Revisions after it may have been given out. No store writes a million times each second from 1970 on, so the time in
    nanoseconds is above all of them, also when backups are restored in any order, as often as you like; and histories that begin
    a second apart are as far apart as the gap, which is for a clock that is behind.
    """
    return max(int(now.timestamp() * 1_000_000) * 1_000, newest_known + HISTORY_GAP)
