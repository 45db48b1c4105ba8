"""The machine's clock. Apart from `primitives`, which never reads it: the composition root passes it in."""

from __future__ import annotations

from datetime import UTC, datetime


class SystemClock:
    """A `Clock` that returns the machine's time."""

    def now(self) -> datetime:
        return datetime.now(UTC)
