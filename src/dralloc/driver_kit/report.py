"""Prints results: lines for a terminal, values for JSON, JUnit XML for continuous integration."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final
from xml.etree import ElementTree

from dralloc.driver_kit.check import Check, CheckOutcome, CheckResult, Feature
from dralloc.driver_kit.findings import Violation

# The version of the JSON report; it changes when a field changes its meaning or is removed.
REPORT_VERSION: Final = 1
MARKS: Final = {
    CheckOutcome.PASSED: "ok",
    CheckOutcome.REMARKED: "ok",
    CheckOutcome.FAILED: "FAILED",
    CheckOutcome.NOT_TESTED: "not tested",
    CheckOutcome.NOT_APPLICABLE: "n/a",
}
MARK_WIDTH: Final = 10
ID_WIDTH: Final = 26


def lines_of(result: CheckResult) -> Iterator[str]:
    """One line for the check, followed by its findings."""
    yield f"{MARKS[result.outcome]:<{MARK_WIDTH}} {result.check.id:<{ID_WIDTH}} {result.check.title}"
    indent = " " * (MARK_WIDTH + 1)
    if result.skipped:
        yield f"{indent}{result.skipped}"
    for finding in result.findings:
        yield f"{indent}{'violation' if isinstance(finding, Violation) else 'remark'}: {finding.text}"
    if result.outcome is CheckOutcome.FAILED:
        yield f"{indent}why it matters: {result.check.why}"
        yield f"{indent}how to fix it: {result.fix}"


def summary_of(results: Sequence[CheckResult]) -> Iterator[str]:
    yield ""
    for score in scores_of(results):
        yield from score_lines(score)
    yield ""
    yield count_line(results)
    if left_out := [result for result in results if not result.is_testable]:
        yield f"this is not a pass: {len(left_out)} checks did not run because {left_out[0].skipped}"


def score_lines(score: FeatureScore) -> Iterator[str]:
    counted = f"{score.passed} of {score.applicable} checks" if score.applicable else ""
    yield f"{score.feature.value:<{ID_WIDTH - 10}} {score.verdict.value:<{MARK_WIDTH + 5}} {counted}".rstrip()
    if score.verdict is Verdict.NOT_APPLICABLE:
        yield from (f"{'':<{ID_WIDTH - 9}}{reason}" for reason in score.reasons)


def count_line(results: Sequence[CheckResult]) -> str:
    counts = Counter(result.outcome for result in results)
    passed = counts[CheckOutcome.PASSED] + counts[CheckOutcome.REMARKED]
    return (
        f"{passed} of {len(results)} checks passed ({counts[CheckOutcome.REMARKED]} with remarks), "
        f"{counts[CheckOutcome.FAILED]} failed, {counts[CheckOutcome.NOT_TESTED]} not tested, "
        f"{counts[CheckOutcome.NOT_APPLICABLE]} not applicable"
    )


# --- JSON -----------------------------------------------------------------------------------------------------------


def values_of(results: Sequence[CheckResult], driver: str) -> dict[str, Any]:
    """The report for machines. docs/reference/driver-checks.md describes it."""
    scores = scores_of(results)
    return {
        "version": REPORT_VERSION,
        "driver": driver,
        "verdict": overall_verdict(scores).value,
        "features": [
            {
                "feature": score.feature.value,
                "verdict": score.verdict.value,
                "passed": score.passed,
                "failed": score.failed,
                "notTested": score.not_tested,
                "notApplicable": score.not_applicable,
                "reasons": list(score.reasons),
            }
            for score in scores
        ],
        "checks": [_result_values(result) for result in results],
    }


def _result_values(result: CheckResult) -> dict[str, Any]:
    return {
        **check_values(result.check),
        "fix": result.fix,
        "outcome": result.outcome.value,
        "findings": [finding.text for finding in result.findings],
        "reason": result.skipped or None,
        "asked": result.is_testable,
        "seconds": result.seconds,
    }


def check_values(check: Check) -> dict[str, Any]:
    return {
        "id": check.id,
        "feature": check.feature.value,
        "title": check.title,
        "why": check.why,
        "fix": check.fix,
        "knownFault": check.known_fault or None,
        "injects": check.injects or None,
    }


def listed(checks: Iterable[Check]) -> Iterator[str]:
    """The checks with why they matter and how to fix a driver that fails them."""
    for check in checks:
        yield f"{check.id} ({check.feature.value}): {check.title}"
        if check.known_fault:
            yield f"  known fault of real drivers: {check.known_fault}"
        if check.injects:
            yield f"  injected fault: {check.injects}"
        yield f"  why it matters: {check.why}"
        yield f"  how to fix it: {check.fix}"


# --- JUnit ----------------------------------------------------------------------------------------------------------


def junit_of(results: Sequence[CheckResult], driver: str) -> bytes:
    counts = Counter(result.outcome for result in results)
    suite = ElementTree.Element(
        "testsuite",
        name=f"dralloc driver-test {driver}".strip(),
        tests=str(len(results)),
        failures=str(counts[CheckOutcome.FAILED]),
        skipped=str(counts[CheckOutcome.NOT_TESTED] + counts[CheckOutcome.NOT_APPLICABLE]),
        time=f"{sum(result.seconds for result in results):.3f}",
    )
    for result in results:
        group, _, name = result.check.id.partition(".")
        case = ElementTree.SubElement(
            suite, "testcase", classname=f"{driver or 'driver'}.{group}", name=name, time=f"{result.seconds:.3f}"
        )
        _add_result(case, result)
    text: bytes = ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True)
    return text


def _add_result(case: ElementTree.Element, result: CheckResult) -> None:
    texts = [finding.text for finding in result.findings if isinstance(finding, Violation)]
    if result.outcome is CheckOutcome.FAILED:
        failure = ElementTree.SubElement(case, "failure", message=_printable(texts[0]))
        advice = (f"Why it matters: {result.check.why}.", f"How to fix it: {result.fix}.")
        failure.text = _printable("\n".join((*texts, *advice)))
    if result.skipped:
        message = f"{result.outcome.value}: {result.skipped}"
        ElementTree.SubElement(case, "skipped", message=_printable(message))
    remarks = [finding.text for finding in result.findings if not isinstance(finding, Violation)]
    if remarks:
        ElementTree.SubElement(case, "system-out").text = _printable("\n".join(remarks))


def _printable(text: str) -> str:
    """The text without control characters, which XML does not allow."""
    return "".join(character if character.isprintable() or character in "\n\t" else "\ufffd" for character in text)


# --- Scores ---------------------------------------------------------------------------------------------------------
# The score of a driver for each feature, from the results of the checks.


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
