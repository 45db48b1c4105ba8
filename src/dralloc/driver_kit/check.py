"""A check of the kit, and its result."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from enum import Enum

from dralloc.driver_kit.driver_under_test import DriverUnderTest
from dralloc.driver_kit.findings import Finding, Violation


class Feature(Enum):
    """What a driver can do; the report has a score for each."""

    BASE = "base"
    SHARED_CAPACITY = "shared capacity"
    PARTITIONS = "partitions"
    HEALTH = "health"
    UPGRADE = "upgrade"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One rule. `title` says what the driver must do, `why` what goes wrong on a node if it does not, `fix` what to change."""

    id: str
    title: str
    why: str
    fix: str
    run: Callable[[DriverUnderTest], Awaitable[Iterable[Finding]]]
    feature: Feature = Feature.BASE
    # The fault of real drivers that the check finds, in a few words.
    known_fault: str = ""
    # The fault that the check injects, in a few words.
    injects: str = ""


class CheckOutcome(Enum):
    PASSED = "passed"
    REMARKED = "passed with remarks"
    FAILED = "failed"
    NOT_TESTED = "not tested"
    NOT_APPLICABLE = "not applicable"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The findings of a check, or why it has none."""

    check: Check
    findings: tuple[Finding, ...] = ()
    skipped: str = ""
    seconds: float = 0.0
    # False if the driver does not have the feature.
    is_applicable: bool = True
    # False if the driver has not passed without this check: an option or a device is missing.
    is_testable: bool = True

    @property
    def outcome(self) -> CheckOutcome:
        if self.skipped:
            return CheckOutcome.NOT_TESTED if self.is_applicable else CheckOutcome.NOT_APPLICABLE
        if any(isinstance(finding, Violation) for finding in self.findings):
            return CheckOutcome.FAILED
        return CheckOutcome.REMARKED if self.findings else CheckOutcome.PASSED

    @property
    def fix(self) -> str:
        """What to change, in the order in which to try it."""
        first = (finding.first for finding in self.findings if isinstance(finding, Violation) and finding.first)
        return "; otherwise ".join((*dict.fromkeys(first), self.check.fix))
