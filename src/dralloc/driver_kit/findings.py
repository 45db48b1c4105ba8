"""What a check may find, and how it says that it does not apply."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Violation:
    """The driver breaks its contract with kubelets."""

    text: str
    # What to do before the advice of the check, if this is about something else.
    first: str = ""


@dataclass(frozen=True, slots=True)
class Remark:
    """The driver keeps its contract, but could do better."""

    text: str


Finding = Violation | Remark


class Skip(Exception):
    """The check has no result; the message says why."""


class NotApplicable(Skip):
    """The driver does not have the feature that the check is about."""


class NotTested(Skip):
    """Something is missing that the check needs, such as an option; the message names it."""


class NotTestable(NotTested):
    """The driver as a whole cannot be tested as it is, or without an option that the user did not give: the run is not a pass."""
