"""What a check is, and what may come out of one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dralloc.driver_kit.driver_under_test import DriverUnderTest


@dataclass(frozen=True, slots=True)
class Violation:
    """Something that breaks the contract between a node and its drivers."""

    text: str


@dataclass(frozen=True, slots=True)
class Remark:
    """Something that works and could be better."""

    text: str


Finding = Violation | Remark


class Skip(Exception):
    """The check says nothing here; the message says why."""


class NotTestable(Skip):
    """The driver could not be asked, for want of something that whoever tests it can give; the message says what."""


@dataclass(frozen=True, slots=True)
class Check:
    """One question to a driver. `title` says what must hold, `why` what goes wrong on a node where it does not."""

    id: str
    title: str
    why: str
    run: Callable[[DriverUnderTest], Awaitable[Iterable[Finding]]]


class CheckOutcome(Enum):
    PASSED = "passed"
    REMARKED = "passed with remarks"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What came out of a check."""

    check: Check
    findings: tuple[Finding, ...] = ()
    skipped: str = ""
    seconds: float = 0.0
    # A driver of which nothing was asked has not passed.
    is_asked: bool = True

    @property
    def outcome(self) -> CheckOutcome:
        if self.skipped:
            return CheckOutcome.SKIPPED
        if any(isinstance(finding, Violation) for finding in self.findings):
            return CheckOutcome.FAILED
        return CheckOutcome.REMARKED if self.findings else CheckOutcome.PASSED
