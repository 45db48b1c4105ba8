"""Verdicts for people and for machines: lines on a terminal, JUnit XML for a build."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final
from xml.etree import ElementTree

from dralloc.driver_kit.check import CheckOutcome, CheckResult
from dralloc.driver_kit.findings import Violation

MARKS: Final = {
    CheckOutcome.PASSED: "ok",
    CheckOutcome.REMARKED: "ok",
    CheckOutcome.FAILED: "FAILED",
    CheckOutcome.SKIPPED: "skipped",
}
MARK_WIDTH: Final = 8


def lines_of(verdict: CheckResult) -> Iterator[str]:
    """A check in a line, and below it what was found."""
    yield f"{MARKS[verdict.outcome]:<{MARK_WIDTH}} {verdict.check.id:<26} {verdict.check.title}"
    indent = " " * (MARK_WIDTH + 1)
    if verdict.skipped:
        yield f"{indent}{verdict.skipped}"
    for finding in verdict.findings:
        yield f"{indent}{'fault' if isinstance(finding, Violation) else 'remark'}: {finding.text}"
    if verdict.outcome is CheckOutcome.FAILED:
        yield f"{indent}why it matters: {verdict.check.why}"


def summary_of(verdicts: Sequence[CheckResult]) -> Iterator[str]:
    counts = Counter(verdict.outcome for verdict in verdicts)
    passed = counts[CheckOutcome.PASSED] + counts[CheckOutcome.REMARKED]
    yield (
        f"{passed} of {len(verdicts)} checks passed ({counts[CheckOutcome.REMARKED]} with remarks), "
        f"{counts[CheckOutcome.FAILED]} failed, {counts[CheckOutcome.SKIPPED]} skipped"
    )
    if left_out := [verdict for verdict in verdicts if not verdict.is_testable]:
        yield f"this is not a pass: {len(left_out)} checks were not asked, because {left_out[0].skipped}"


def junit_of(verdicts: Sequence[CheckResult], driver: str) -> bytes:
    """The report as continuous integration reads it."""
    counts = Counter(verdict.outcome for verdict in verdicts)
    suite = ElementTree.Element(
        "testsuite",
        name=f"dralloc driver-test {driver}".strip(),
        tests=str(len(verdicts)),
        failures=str(counts[CheckOutcome.FAILED]),
        skipped=str(counts[CheckOutcome.SKIPPED]),
        time=f"{sum(verdict.seconds for verdict in verdicts):.3f}",
    )
    for verdict in verdicts:
        group, _, name = verdict.check.id.partition(".")
        case = ElementTree.SubElement(
            suite, "testcase", classname=f"{driver or 'driver'}.{group}", name=name, time=f"{verdict.seconds:.3f}"
        )
        _add_result(case, verdict)
    text: bytes = ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True)
    return text


def _add_result(case: ElementTree.Element, verdict: CheckResult) -> None:
    texts = [finding.text for finding in verdict.findings if isinstance(finding, Violation)]
    if verdict.outcome is CheckOutcome.FAILED:
        failure = ElementTree.SubElement(case, "failure", message=_printable(texts[0]))
        failure.text = _printable("\n".join((*texts, f"Why it matters: {verdict.check.why}.")))
    if verdict.skipped:
        ElementTree.SubElement(case, "skipped", message=_printable(verdict.skipped))
    remarks = [finding.text for finding in verdict.findings if not isinstance(finding, Violation)]
    if remarks:
        ElementTree.SubElement(case, "system-out").text = _printable("\n".join(remarks))


def _printable(text: str) -> str:
    """XML has no control characters, and a driver may send any."""
    return "".join(character if character.isprintable() or character in "\n\t" else "\ufffd" for character in text)
