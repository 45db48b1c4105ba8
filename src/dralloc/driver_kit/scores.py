"""The score of a driver for each feature, from the results of the checks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from dralloc.driver_kit.check import CheckOutcome, CheckResult, Feature


class Verdict(Enum):
    """What can be said about a feature of the driver."""

    PASSED = "passed"
    # Nothing failed, but some checks could not run.
    INCOMPLETE = "incomplete"
    FAILED = "failed"
    NOT_TESTED = "not tested"
    NOT_APPLICABLE = "not applicable"


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureScore:
    """How many checks of a feature passed, and why others did not run."""

    feature: Feature
    passed: int
    failed: int
    not_tested: int
    not_applicable: int
    # Why checks have no result, each reason once.
    reasons: tuple[str, ...] = ()

    @property
    def applicable(self) -> int:
        return self.passed + self.failed + self.not_tested

    @property
    def verdict(self) -> Verdict:
        if self.failed:
            return Verdict.FAILED
        if not self.applicable:
            return Verdict.NOT_APPLICABLE
        if not self.passed:
            return Verdict.NOT_TESTED
        return Verdict.INCOMPLETE if self.not_tested else Verdict.PASSED


def scores_of(results: Sequence[CheckResult]) -> tuple[FeatureScore, ...]:
    """The scores of all features that were asked for."""
    return tuple(
        _score(feature, found)
        for feature in Feature
        if (found := [result for result in results if result.check.feature is feature])
    )


def _score(feature: Feature, results: Iterable[CheckResult]) -> FeatureScore:
    results = list(results)
    counts = Counter(result.outcome for result in results)
    return FeatureScore(
        feature=feature,
        passed=counts[CheckOutcome.PASSED] + counts[CheckOutcome.REMARKED],
        failed=counts[CheckOutcome.FAILED],
        not_tested=counts[CheckOutcome.NOT_TESTED],
        not_applicable=counts[CheckOutcome.NOT_APPLICABLE],
        reasons=tuple(dict.fromkeys(result.skipped for result in results if result.skipped)),
    )


def overall_verdict(scores: Iterable[FeatureScore]) -> Verdict:
    """The worst of the features that the driver has."""
    verdicts = {score.verdict for score in scores}
    for verdict in (Verdict.FAILED, Verdict.NOT_TESTED, Verdict.INCOMPLETE, Verdict.PASSED):
        if verdict in verdicts:
            return verdict
    return Verdict.NOT_APPLICABLE
