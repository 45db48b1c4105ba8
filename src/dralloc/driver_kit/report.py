"""Prints results: lines for a terminal, JUnit XML for continuous integration."""

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


def lines_of(result: CheckResult) -> Iterator[str]:
    """One line for the check, followed by its findings."""
    yield f"{MARKS[result.outcome]:<{MARK_WIDTH}} {result.check.id:<26} {result.check.title}"
    indent = " " * (MARK_WIDTH + 1)
    if result.skipped:
        yield f"{indent}{result.skipped}"
    for finding in result.findings:
        yield f"{indent}{'violation' if isinstance(finding, Violation) else 'remark'}: {finding.text}"
    if result.outcome is CheckOutcome.FAILED:
        yield f"{indent}why it matters: {result.check.why}"


def summary_of(results: Sequence[CheckResult]) -> Iterator[str]:
    counts = Counter(result.outcome for result in results)
    passed = counts[CheckOutcome.PASSED] + counts[CheckOutcome.REMARKED]
    yield (
        f"{passed} of {len(results)} checks passed ({counts[CheckOutcome.REMARKED]} with remarks), "
        f"{counts[CheckOutcome.FAILED]} failed, {counts[CheckOutcome.SKIPPED]} skipped"
    )
    if left_out := [result for result in results if not result.is_testable]:
        yield f"this is not a pass: {len(left_out)} checks did not run because {left_out[0].skipped}"


def junit_of(results: Sequence[CheckResult], driver: str) -> bytes:
    counts = Counter(result.outcome for result in results)
    suite = ElementTree.Element(
        "testsuite",
        name=f"dralloc driver-test {driver}".strip(),
        tests=str(len(results)),
        failures=str(counts[CheckOutcome.FAILED]),
        skipped=str(counts[CheckOutcome.SKIPPED]),
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
        failure.text = _printable("\n".join((*texts, f"Why it matters: {result.check.why}.")))
    if result.skipped:
        ElementTree.SubElement(case, "skipped", message=_printable(result.skipped))
    remarks = [finding.text for finding in result.findings if not isinstance(finding, Violation)]
    if remarks:
        ElementTree.SubElement(case, "system-out").text = _printable("\n".join(remarks))


def _printable(text: str) -> str:
    """The text without control characters, which XML does not allow."""
    return "".join(character if character.isprintable() or character in "\n\t" else "\ufffd" for character in text)
