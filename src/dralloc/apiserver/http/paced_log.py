"""Warnings about what may happen thousands of times a second, such as refused requests, without filling the log."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import Final

LOG_EVERY_S: Final = 10.0

_logger = logging.getLogger(__name__)


class PacedLog:
    """Logs `what` happens: at once, then a summary for each interval in which it happens again."""

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
        counts = "; ".join(f"{subject}: {count}" for subject, count in self._counts.most_common(3))
        _logger.warning("%s: %d (%s)", self._what, self._counts.total(), counts)
        self._counts.clear()
        self._due = asyncio.get_running_loop().call_later(LOG_EVERY_S, self._print)
