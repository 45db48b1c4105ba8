"""The modules that ARCHITECTURE.md names exist, where it says that they are."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tests.support.source_tree import SOURCE

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "ARCHITECTURE.md").read_text()
FILE = re.compile(r"[\w/*]+\.(?:py|mjs|json|txt|yaml|md)|[a-z_]+/[\w/]+")
MODULE = re.compile(r"[a-z_0-9]+")


def rows(heading: str) -> Iterator[tuple[str, str]]:
    """First and last cell of each row of the table below the heading."""
    section = TEXT.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    for line in section.splitlines():
        if line.startswith("| ") and line != "|---|---|":
            first, last = line.strip("|").split(" | ", 1)
            yield first.strip(), last


def missing_files(cell: str) -> Iterator[str]:
    """A name without a directory is beside the one before it, or at the top of the repository."""
    directory = SOURCE
    for name in filter(FILE.fullmatch, re.findall(r"`([^`]+?)/?`", cell)):
        if "/" in name:
            directory = (SOURCE / name).parent
        if not any(directory.glob(name.rpartition("/")[2])) and not any(ROOT.glob(name)):
            yield name


def test_every_rule_has_a_module() -> None:
    missing = [f"{rule}: {name}" for rule, cell in rows("Where a rule lives") for name in missing_files(cell)]
    assert not missing


def test_no_rule_has_two_rows() -> None:
    rules = [rule for rule, _ in rows("Where a rule lives")]
    cells = [cell for _, cell in rows("Where a rule lives")]
    assert len(rules) > 50
    assert sorted(set(rules)) == sorted(rules)
    assert sorted(set(cells)) == sorted(cells), "rows with the same modules are about the same rule"


def test_rooms_of_the_server_have_the_modules_of_the_table() -> None:
    room, missing = SOURCE, []
    for name, cell in rows("The API server: rooms"):
        if match := re.fullmatch(r"`(\w+)/`", name):
            room = SOURCE / "apiserver" / match[1]
        elif name == "root":
            room = SOURCE / "apiserver"
        modules = filter(MODULE.fullmatch, re.findall(r"`([^`]+)`", cell))
        missing += [f"{room.name}: {each}" for each in modules if not (room / f"{each}.py").is_file()]
    assert not missing
