"""Writes all reports of a run into one directory."""

from __future__ import annotations

from pathlib import Path

import msgspec

from dralloc.driver_kit.badge import badge_json, badge_svg
from dralloc.driver_kit.html_page import html_of
from dralloc.driver_kit.kit import KitResult
from dralloc.driver_kit.report import junit_of, values_of
from dralloc.driver_kit.scores import scores_of


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
