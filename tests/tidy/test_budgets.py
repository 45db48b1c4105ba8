"""How large the project may be. A change that needs more raises a number here in a commit of its own, and says why."""

from __future__ import annotations

import ast
import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

from tests.support.source_tree import ROOT, SOURCE, modules, tree_of

LINES_MAX = 119_900
MODULES_MAX = 699
TEST_LINES_MAX = 99_100
ARCHITECTURE_BYTES_MAX = 12_000
WORDS_MAX = 58_500
# Each feature of the scheduler should be a folder or a file of its own; these many files mention it.
FEATURE_FILES_MAX = {"extended": 21, "volume": 17, "topology": 16, "gang": 17, "preempt": 17, "strateg": 21}
# Types by which a decision says that something does not fit.
REFUSAL_TYPES_MAX = 32
REFUSAL = re.compile(
    "Misfit|Unfit|Lack|Obstacle|Block|Refus|Reject|Short|Impossib|Exhaust|Undecid|Unschedul|Loss|Hurdle|Failed|NoPreempt"
)


@cache
def tracked(pattern: str) -> tuple[Path, ...]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", pattern],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return tuple(path for line in listed.stdout.splitlines() if (path := ROOT / line).is_file())


def lines_of(paths: tuple[Path, ...]) -> int:
    return sum(len(path.read_text().splitlines()) for path in paths)


def test_lines_of_the_product() -> None:
    assert lines_of(tuple(modules().values())) <= LINES_MAX


def test_modules() -> None:
    assert sum(path.name != "__init__.py" for path in modules().values()) <= MODULES_MAX


def test_lines_of_the_tests() -> None:
    assert lines_of(tracked("tests/*.py")) <= TEST_LINES_MAX


def test_bytes_of_the_architecture() -> None:
    assert (ROOT / "ARCHITECTURE.md").stat().st_size <= ARCHITECTURE_BYTES_MAX


def test_words_of_the_documents() -> None:
    """The reference is written from the code, decisions are history, and a README of a package is for its readers."""
    apart = ("docs/reference/", "docs/adr/", "src/", "tests/")
    pages = [path for path in tracked("*.md") if not str(path.relative_to(ROOT)).startswith(apart)]
    assert sum(len(page.read_text().split()) for page in pages) <= WORDS_MAX


@pytest.mark.parametrize("feature", FEATURE_FILES_MAX)
def test_files_of_the_scheduler_that_know_a_feature(feature: str) -> None:
    knowing = [path for path in (SOURCE / "scheduler").rglob("*.py") if feature in path.read_text().lower()]
    assert len(knowing) <= FEATURE_FILES_MAX[feature]


def test_types_that_say_no() -> None:
    types = [
        node.name
        for package in ("answers", "devices", "scheduler")
        for path in (SOURCE / package).rglob("*.py")
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.ClassDef) and REFUSAL.search(node.name)
    ]
    assert len(types) <= REFUSAL_TYPES_MAX, types
