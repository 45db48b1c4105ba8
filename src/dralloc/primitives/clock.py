"""The time of day as an argument, so that tests and simulations can choose it.

Waiting is not part of it: components wait on their event loop, whose time a simulation also controls.
"""

from __future__ import annotations

from datetime import datetime
from typing import Protocol


class Clock(Protocol):
    """A source of the current time."""

    def now(self) -> datetime:
        """Returns the current time in UTC."""
        ...
