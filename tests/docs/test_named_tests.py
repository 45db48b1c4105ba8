"""Tests that documents name as evidence exist, also after they were renamed."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.source_tree import ROOT

NAMED = re.compile(r"([\w/]+\.py)::(\w+)")


def test_every_test_that_a_document_names_exists() -> None:
    tests = {path.relative_to(ROOT).as_posix(): path.read_text() for path in (ROOT / "tests").rglob("test_*.py")}
    named = [(page, file, name) for page in pages() for file, name in NAMED.findall(page.read_text())]
    missing = [
        f"{page.relative_to(ROOT)}: {file}::{name}"
        for page, file, name in named
        if not any(f"/{path}".endswith(f"/{file}") and is_defined(name, text) for path, text in tests.items())
    ]
    assert named, "documents name tests"
    assert missing == []


def pages() -> list[Path]:
    return [ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs").rglob("*.md"))]


def is_defined(name: str, text: str) -> bool:
    return re.search(rf"\b(?:def|class) {name}\b|^{name}\b", text, re.MULTILINE) is not None
