"""Writes all reports of a run into one directory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any, Final

import msgspec

from dralloc.driver_kit.check import CheckOutcome, CheckResult
from dralloc.driver_kit.findings import Violation
from dralloc.driver_kit.kit import KitResult
from dralloc.driver_kit.report import FeatureScore, Verdict, count_line, junit_of, overall_verdict, scores_of, values_of


def write_reports(directory: Path, result: KitResult) -> None:
    """Write report.html, report.json, junit.xml, badge.svg and badge.json; the directory is made if needed."""
    directory.mkdir(parents=True, exist_ok=True)
    scores = scores_of(result.results)
    contents = {
        "report.html": html_of(result.results, result.driver).encode(),
        "report.json": msgspec.json.format(msgspec.json.encode(values_of(result.results, result.driver)), indent=2)
        + b"\n",
        "junit.xml": junit_of(result.results, result.driver),
        "badge.svg": badge_svg(scores).encode(),
        "badge.json": msgspec.json.encode(badge_json(scores)) + b"\n",
    }
    for name, content in contents.items():
        (directory / name).write_bytes(content)


# --- Html page ------------------------------------------------------------------------------------------------------
# The report as one HTML file, which loads nothing else and needs no script.


# A sign beside the colour, for those who do not see it.
SIGNS: Final = {
    CheckOutcome.PASSED: "✓",
    CheckOutcome.REMARKED: "✓",
    CheckOutcome.FAILED: "✗",
    CheckOutcome.NOT_TESTED: "?",
    CheckOutcome.NOT_APPLICABLE: "–",
}


def html_of(results: Sequence[CheckResult], driver: str) -> str:
    """The whole page. Texts of the driver are escaped."""
    scores = scores_of(results)
    style = (resources.files("dralloc.driver_kit") / "report.css").read_text("utf-8")
    title = escape(f"Driver kit: {driver or 'driver'}")
    failed = [result for result in results if result.outcome is CheckOutcome.FAILED]
    findings = (
        f'<section id="failed"><h2>Failed checks</h2>{"".join(map(_article, failed))}</section>' if failed else ""
    )
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark">'
        f"<style>{style}</style></head><body>"
        f"<header><h1>{title}</h1><p>{badge_svg(scores)}</p><p>{escape(count_line(results))}</p></header>"
        f'<main><section id="features"><h2>Features</h2>{_features(scores)}</section>{findings}'
        f'<section id="checks"><h2>All checks</h2>{_table(results)}</section></main></body></html>\n'
    )


def _features(scores: Sequence[FeatureScore]) -> str:
    rows = "".join(
        f'<tr><th scope="row">{score.feature.value}</th><td class="{_class(score.verdict.value)}">{score.verdict.value}</td>'
        f"<td>{score.passed}</td><td>{score.failed}</td><td>{score.not_tested}</td><td>{score.not_applicable}</td>"
        f"<td>{'<br>'.join(map(escape, score.reasons))}</td></tr>"
        for score in scores
    )
    heads = ("feature", "verdict", "passed", "failed", "not tested", "not applicable", "why checks have no result")
    return _table_of("Score by feature", heads, rows)


def _article(result: CheckResult) -> str:
    found = "".join(f"<li>{escape(finding.text)}</li>" for finding in result.findings if isinstance(finding, Violation))
    check = result.check
    return (
        f'<article id="{check.id}"><h3><code>{check.id}</code> {escape(check.title)}</h3><ul>{found}</ul>'
        f"<dl><dt>Why it matters</dt><dd>{escape(check.why)}.</dd><dt>How to fix it</dt><dd>{escape(result.fix)}.</dd></dl></article>"
    )


def _table(results: Sequence[CheckResult]) -> str:
    rows = "".join(
        f'<tr><th scope="row"><code>{result.check.id}</code></th><td>{result.check.feature.value}</td>'
        f'<td class="{_class(result.outcome.value)}"><span aria-hidden="true">{SIGNS[result.outcome]}</span> {result.outcome.value}</td>'
        f"<td>{escape(result.check.title)}{''.join(_notes(result))}</td><td>{result.seconds:.1f} s</td></tr>"
        for result in results
    )
    return _table_of(
        "Checks with their results", ("check", "feature", "outcome", "what the driver must do", "time"), rows
    )


def _notes(result: CheckResult) -> Iterator[str]:
    if result.skipped:
        yield f"<p>{escape(result.skipped)}</p>"
    for finding in result.findings:
        yield f"<p>{'violation' if isinstance(finding, Violation) else 'remark'}: {escape(finding.text)}</p>"


def _table_of(caption: str, heads: Sequence[str], rows: str) -> str:
    cells = "".join(f'<th scope="col">{head}</th>' for head in heads)
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{caption}"><table><caption>{caption}</caption>'
        f"<thead><tr>{cells}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _class(outcome: str) -> str:
    return outcome.replace(" ", "-")


# --- Badge ----------------------------------------------------------------------------------------------------------
# A badge with the result: an SVG picture, and the JSON that badge services read.


LABEL: Final = "DRA driver kit"
# Dark enough for white text.
COLOURS: Final = {
    Verdict.PASSED: ("brightgreen", "#2a6f2a"),
    Verdict.INCOMPLETE: ("yellowgreen", "#5f6b00"),
    Verdict.FAILED: ("red", "#b02a1e"),
    Verdict.NOT_TESTED: ("lightgrey", "#555555"),
    Verdict.NOT_APPLICABLE: ("lightgrey", "#555555"),
}
CHARACTER_WIDTH: Final = 6.6
PADDING: Final = 12


def badge_text(scores: Sequence[FeatureScore]) -> str:
    """Passed checks of those that apply, and the features that passed."""
    passed, applicable = sum(each.passed for each in scores), sum(each.applicable for each in scores)
    features = [each.feature.value for each in scores if each.verdict in (Verdict.PASSED, Verdict.INCOMPLETE)]
    return " · ".join([f"{passed}/{applicable}", *features])


def badge_json(scores: Sequence[FeatureScore]) -> dict[str, Any]:
    """What shields.io and similar services show as a badge."""
    colour = COLOURS[overall_verdict(scores)][0]
    return {"schemaVersion": 1, "label": LABEL, "message": badge_text(scores), "color": colour}


def badge_svg(scores: Sequence[FeatureScore]) -> str:
    text, colour = badge_text(scores), COLOURS[overall_verdict(scores)][1]
    left, right = _width(LABEL), _width(text)
    title = escape(f"{LABEL}: {text}")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="20" role="img" aria-label="{title}">'
        f"<title>{title}</title>"
        f'<rect width="{left}" height="20" fill="#444444"/><rect x="{left}" width="{right}" height="20" fill="{colour}"/>'
        '<g fill="#ffffff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11" text-anchor="middle">'
        f'<text x="{left / 2:g}" y="14">{escape(LABEL)}</text><text x="{left + right / 2:g}" y="14">{escape(text)}</text></g></svg>\n'
    )


def _width(text: str) -> int:
    return round(len(text) * CHARACTER_WIDTH) + PADDING
