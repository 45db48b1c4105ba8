"""What the server refuses or disconnects under load, in the log, without filling it."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import Final

LOG_EVERY_S: Final = 10.0

_logger = logging.getLogger(__name__)


class SheddingLog:
    """Logs what is shed: at once, then a summary for each interval in which more is shed."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._counts: Counter[str] = Counter()
        self._due: asyncio.TimerHandle | None = None

    def count(self, subject: str) -> None:
        self._counts[subject] += 1
        if self._due is None:
            self._print()

    def _print(self) -> None:
        self._due = None
        if not self._counts:
            return
        shed = "; ".join(f"{subject}: {count}" for subject, count in self._counts.most_common(3))
        _logger.warning("shed %s: %d (%s)", self._what, self._counts.total(), shed)
        self._counts.clear()
        self._due = asyncio.get_running_loop().call_later(LOG_EVERY_S, self._print)
