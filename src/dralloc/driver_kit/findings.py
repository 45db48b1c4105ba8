"""What a check may find, and how it says that it does not apply."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Violation:
    """The driver breaks its contract with kubelets."""

    text: str


@dataclass(frozen=True, slots=True)
class Remark:
    """The driver keeps its contract, but could do better."""

    text: str


Finding = Violation | Remark


class Skip(Exception):
    """The check does not apply to this driver; the message says why."""


class NotTestable(Skip):
    """The driver cannot be tested without an option that the user did not give; the message names it."""
