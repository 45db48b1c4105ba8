"""A check of the kit, and its result."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from enum import Enum

from dralloc.driver_kit.driver_under_test import DriverUnderTest
from dralloc.driver_kit.findings import Finding, Violation


@dataclass(frozen=True, slots=True)
class Check:
    """One rule. `title` says what the driver must do, `why` what goes wrong on a node if it does not."""

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
    """The findings of a check, or why it was skipped."""

    check: Check
    findings: tuple[Finding, ...] = ()
    skipped: str = ""
    seconds: float = 0.0
    # False if an option is missing that the check needs: the driver has not passed then.
    is_testable: bool = True

    @property
    def outcome(self) -> CheckOutcome:
        if self.skipped:
            return CheckOutcome.SKIPPED
        if any(isinstance(finding, Violation) for finding in self.findings):
            return CheckOutcome.FAILED
        return CheckOutcome.REMARKED if self.findings else CheckOutcome.PASSED
