"""The machine's time of day. Apart from `primitives`, which never asks: whoever composes a system passes this in."""

from __future__ import annotations

from datetime import UTC, datetime


class SystemClock:
    """A `Clock` that tells the time."""

    def now(self) -> datetime:
        return datetime.now(UTC)
