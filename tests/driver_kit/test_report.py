"""Reports for the terminal and as JUnit XML."""

from __future__ import annotations

from xml.etree import ElementTree

from dralloc.driver_kit.check import Check, CheckResult
from dralloc.driver_kit.findings import Finding, Remark, Violation
from dralloc.driver_kit.report import junit_of, lines_of, summary_of
from dralloc.testing.builders import DRIVER


async def _unused(_subject: object) -> list[Finding]:
    return []


CHECK = Check(id="prepare.repeat", title="the same answer again", why="kubelets repeat calls", run=_unused)
PASSED = CheckResult(CHECK, seconds=0.5)
REMARKED = CheckResult(CHECK, (Remark("could be better"),))
FAILED = CheckResult(CHECK, (Violation("differs\x00<&"), Remark("and slow")))
SKIPPED = CheckResult(CHECK, skipped="no server")


def test_lines_show_findings_and_reasons() -> None:
    assert list(lines_of(PASSED)) == ["ok       prepare.repeat             the same answer again"]
    assert [line.strip() for line in lines_of(FAILED)][1:] == [
        "violation: differs\x00<&",
        "remark: and slow",
        "why it matters: kubelets repeat calls",
    ]
    assert [line.strip() for line in lines_of(SKIPPED)][1:] == ["no server"]
    assert list(summary_of([PASSED, REMARKED, FAILED, SKIPPED])) == [
        "2 of 4 checks passed (1 with remarks), 1 failed, 1 skipped"
    ]
    assert list(summary_of([PASSED, CheckResult(SKIPPED.check, skipped="no server", is_testable=False)])) == [
        "1 of 2 checks passed (0 with remarks), 0 failed, 1 skipped",
        "this is not a pass: 1 checks did not run because no server",
    ]


def test_the_junit_report_is_valid_xml() -> None:
    suite = ElementTree.fromstring(junit_of([PASSED, REMARKED, FAILED, SKIPPED], DRIVER))
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("4", "1", "1")
    passed, remarked, failed, skipped = suite
    assert (passed.get("classname"), passed.get("name"), list(passed)) == (f"{DRIVER}.prepare", "repeat", [])
    assert [child.tag for child in remarked] == ["system-out"]
    assert failed[0].get("message") == "differs\ufffd<&"
    assert (failed[0].text or "").endswith("Why it matters: kubelets repeat calls.")
    assert skipped[0].get("message") == "no server"
