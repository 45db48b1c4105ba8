"""The revisions of a store that was restored from a backup, or that lost writes: higher than any that was given out before."""

from __future__ import annotations

from datetime import datetime
from typing import Final

HISTORY_GAP: Final = 1_000_000_000


def first_of_history(newest_known: int, now: datetime) -> int:
    """Returns the first revision of a new history that follows one of which this revision is the newest known.

    Revisions after it may have been given out. No store writes a million times each second from 1970 on, so the time in
    microseconds is above all of them, also when backups are restored in any order, as often as you like. The gap is for a clock
    that is behind.
    """
    moment = int(now.timestamp() * 1_000_000)
    return moment if moment > newest_known else newest_known + HISTORY_GAP
