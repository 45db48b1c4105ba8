"""What a check could not look at, and why."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Unchecked:
    """`is_expected`: the input cannot have it, or no user named it, so that its absence is no failure."""

    reason: str
    is_expected: bool = False
