"""Reports for the terminal, as HTML, JUnit XML and JSON, and the badge."""

from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

from dralloc.driver_kit.check import Check, CheckResult, Feature
from dralloc.driver_kit.findings import Finding, Remark, Violation
from dralloc.driver_kit.kit import KitResult
from dralloc.driver_kit.report import Verdict, junit_of, lines_of, listed, scores_of, summary_of, values_of
from dralloc.driver_kit.report_files import badge_json, badge_svg, html_of, write_reports
from dralloc.testing.builders import DRIVER


async def _unused(_subject: object) -> list[Finding]:
    return []


CHECK = Check(
    id="prepare.repeat", title="the same answer again", why="kubelets repeat calls", fix="store the answer", run=_unused
)
PASSED = CheckResult(CHECK, seconds=0.5)
REMARKED = CheckResult(CHECK, (Remark("could be better"),))
FAILED = CheckResult(CHECK, (Violation("differs\x00<&"), Remark("and slow")))
NOT_TESTED = CheckResult(CHECK, skipped="no <server>")
SHARED = replace(CHECK, id="prepare.shares", feature=Feature.SHARED_CAPACITY)
NOT_APPLICABLE = CheckResult(SHARED, skipped="no shareable devices", is_applicable=False)
ALL_KINDS = [PASSED, REMARKED, FAILED, NOT_TESTED, NOT_APPLICABLE]


def test_lines_show_findings_and_reasons() -> None:
    assert list(lines_of(PASSED)) == ["ok         prepare.repeat             the same answer again"]
    assert [line.strip() for line in lines_of(FAILED)][1:] == [
        "violation: differs\x00<&",
        "remark: and slow",
        "why it matters: kubelets repeat calls",
        "how to fix it: store the answer",
    ]
    assert [line.strip() for line in lines_of(NOT_TESTED)][1:] == ["no <server>"]
    assert list(summary_of(ALL_KINDS))[-1] == (
        "2 of 5 checks passed (1 with remarks), 1 failed, 1 not tested, 1 not applicable"
    )
    assert list(summary_of([PASSED, replace(NOT_TESTED, is_testable=False)]))[-1] == (
        "this is not a pass: 1 checks did not run because no <server>"
    )


def score(*results: CheckResult) -> list[tuple[str, Verdict]]:
    return [(each.feature.value, each.verdict) for each in scores_of(results)]


def test_each_feature_has_a_verdict() -> None:
    assert score(*ALL_KINDS) == [("base", Verdict.FAILED), ("shared capacity", Verdict.NOT_APPLICABLE)]
    assert score(PASSED, REMARKED) == [("base", Verdict.PASSED)]
    assert score(PASSED, NOT_TESTED) == [("base", Verdict.INCOMPLETE)]
    assert score(NOT_TESTED) == [("base", Verdict.NOT_TESTED)]
    assert score(PASSED, replace(NOT_APPLICABLE, check=CHECK)) == [("base", Verdict.PASSED)]
    (_, shared) = scores_of(ALL_KINDS)
    assert shared.reasons == ("no shareable devices",)


def test_the_junit_report_is_valid_xml() -> None:
    suite = ElementTree.fromstring(junit_of(ALL_KINDS, DRIVER))
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("5", "1", "2")
    passed, remarked, failed, not_tested, not_applicable = suite
    assert (passed.get("classname"), passed.get("name"), list(passed)) == (f"{DRIVER}.prepare", "repeat", [])
    assert [child.tag for child in remarked] == ["system-out"]
    assert failed[0].get("message") == "differs\ufffd<&"
    assert (failed[0].text or "").endswith("Why it matters: kubelets repeat calls.\nHow to fix it: store the answer.")
    assert not_tested[0].get("message") == "not tested: no <server>"
    assert not_applicable[0].get("message") == "not applicable: no shareable devices"


def test_a_badge_is_a_picture_and_what_badge_services_read() -> None:
    good, bad = scores_of([PASSED]), scores_of(ALL_KINDS)
    assert badge_json(good) == {
        "schemaVersion": 1,
        "label": "DRA driver kit",
        "message": "1/1 · base",
        "color": "brightgreen",
    }
    assert (badge_json(bad)["message"], badge_json(bad)["color"]) == ("2/4", "red")
    picture = ElementTree.fromstring(badge_svg(bad))
    assert (picture.get("role"), picture.get("aria-label")) == ("img", "DRA driver kit: 2/4")


class Page(HTMLParser):
    """What a browser would load, and what a reader sees."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.opened: list[str] = []
        self.tags: list[str] = []
        self.loaded: list[str | None] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.loaded += [value for name, value in attrs if name in ("src", "href") and not (value or "").startswith("#")]
        if tag not in ("meta", "br", "rect"):
            self.opened.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag != "rect":
            assert self.opened.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_the_page_is_one_file_that_can_be_read_without_colours_and_scripts() -> None:
    text = html_of(ALL_KINDS, "<driver>")
    page = Page(text)
    assert (page.opened, page.loaded, "script" in page.tags) == ([], [], False)
    assert text.startswith('<!doctype html>\n<html lang="en">')
    assert page.tags.count("caption") == page.tags.count("table") == 2
    assert page.tags.count("h1") == page.tags.count("main") == 1
    shown = " ".join(page.texts)
    for want in (
        "Driver kit: <driver>",
        "differs\x00<&",
        "store the answer.",
        "no <server>",
        "failed",
        "not applicable",
    ):
        assert want in shown, want


def test_the_values_for_machines_are_versioned_and_complete() -> None:
    values = values_of(ALL_KINDS, DRIVER)
    assert (values["version"], values["driver"], values["verdict"]) == (1, DRIVER, "failed")
    assert [each["outcome"] for each in values["checks"]] == [
        "passed",
        "passed with remarks",
        "failed",
        "not tested",
        "not applicable",
    ]
    assert values["checks"][3]["reason"] == "no <server>"
    assert values["features"][1] == {
        "feature": "shared capacity",
        "verdict": "not applicable",
        "passed": 0,
        "failed": 0,
        "notTested": 0,
        "notApplicable": 1,
        "reasons": ["no shareable devices"],
    }


def test_the_list_says_why_and_how() -> None:
    lines = list(listed([replace(CHECK, known_fault="forgets")]))
    assert lines == [
        "prepare.repeat (base): the same answer again",
        "  known fault of real drivers: forgets",
        "  why it matters: kubelets repeat calls",
        "  how to fix it: store the answer",
    ]


def test_all_reports_are_written_into_a_directory(tmp_path: Path) -> None:
    write_reports(tmp_path / "new" / "reports", KitResult(DRIVER, tuple(ALL_KINDS)))
    written = {path.name for path in (tmp_path / "new" / "reports").iterdir()}
    assert written == {"report.html", "report.json", "junit.xml", "badge.svg", "badge.json"}
