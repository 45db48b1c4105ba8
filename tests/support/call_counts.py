"""Counts function calls: a measure of cost that does not depend on the machine or on what else it does."""

from __future__ import annotations

import cProfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

# A cost that grows with the size, and some noise; a quadratic cost grows by a factor of 4.
LINEAR_MAX = 2.2


@dataclass(slots=True)
class CallCount:
    calls: int = 0


@contextmanager
def counted_calls() -> Iterator[CallCount]:
    """Counts the calls inside the block, in all its tasks."""
    counted, profile = CallCount(), cProfile.Profile()
    profile.enable()
    try:
        yield counted
    finally:
        profile.disable()
        counted.calls = sum(entry.callcount for entry in profile.getstats())
