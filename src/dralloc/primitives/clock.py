"""The time of day as something that is passed in, so that tests and simulations can choose it.

Waiting is not here: components wait on their event loop, whose time a simulation also owns.
"""

from __future__ import annotations

from datetime import datetime
from typing import Protocol


class Clock(Protocol):
    """Tells the time."""

    def now(self) -> datetime:
        """The time in UTC."""
        ...
