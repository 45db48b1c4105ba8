"""One word for each thing: what docs/glossary.md calls wrong is in no page, no command's text and no text of the web page."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.markdown import pages_of
from tests.support.source_tree import ROOT, SOURCE

GLOSSARY = ROOT / "docs" / "glossary.md"
# Records of what happened, and what is written for the code's own readers.
RECORDS = ("CHANGELOG.md", "ARCHITECTURE.md", "docs/adr/")
# What users read: help, messages, reasons.
PACKAGES = ("answers", "cli", "devices", "driver", "driver_kit", "node", "scheduler", "study")


def rows() -> Iterator[tuple[str, str, list[str]]]:
    """Each word with its meaning and the words that are not used for it."""
    for line in GLOSSARY.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| ") and len(cells) == 3 and cells[0] != "word":
            yield cells[0], cells[1], re.findall(r"`([^`]+)`", cells[2])


WRONG = {wrong.lower(): word for word, _, others in rows() for wrong in others}
# A number may come before: 20Gi free.
PATTERN = re.compile(rf"(?<![a-z-])({'|'.join(map(re.escape, WRONG))})(?![\w-])", re.IGNORECASE)


def faults(text: str) -> Iterator[str]:
    for number, line in enumerate(text.splitlines(), start=1):
        for found in PATTERN.finditer(line):
            yield f"{number}: {found[0]!r} is called {WRONG[found[0].lower()]!r} (docs/glossary.md)"


def texts_of(module: str) -> str:
    """The string literals of a module, each on its line; users read docstrings only where the reference has them."""
    lines = [""] * (module.count("\n") + 1)
    tree = ast.parse(module)
    statements = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in statements:
            for offset, piece in enumerate(node.value.splitlines()):
                lines[min(node.lineno - 1 + offset, len(lines) - 1)] += f" {piece}"
    return "\n".join(lines)


def shown_texts() -> Iterator[tuple[Path, str]]:
    for page in pages_of(ROOT):
        name = str(page.relative_to(ROOT))
        if page != GLOSSARY and not name.startswith(RECORDS):
            yield page, page.read_text()
    for package in PACKAGES:
        for module in (SOURCE / package).rglob("*.py"):
            yield module, texts_of(module.read_text())
    for script in (SOURCE / "web" / "static").rglob("*"):
        if script.suffix in (".mjs", ".html") and "vendor" not in script.parts:
            yield script, re.sub(r"^\s*(//|/?\*).*$", "", script.read_text(), flags=re.M)


def test_one_word_for_each_thing() -> None:
    found = [f"{path.relative_to(ROOT)}:{fault}" for path, text in shown_texts() for fault in faults(text)]
    assert not found, "\n".join(found)


def test_each_word_is_explained_once() -> None:
    words = [word for entry, _, _ in rows() for word in entry.split(", ")]
    assert len(words) == len(set(words))
    assert not set(words) & set(WRONG), "a word is both right and wrong"


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("a claim asks for 20Gi", "request"),
        ("20Gi free, fits up to 4Gi", "available"),
        ("A Back-Up", "backup"),
        ("8 of 8 free", None),
        ("task forces", None),
        ("the slice of node-a", None),
    ],
)
def test_wrong_words_are_found(text: str, want: str | None) -> None:
    told = next(faults(text), None)
    assert (told is None) == (want is None)
    assert want is None or f"{want!r}" in str(told)


def test_strings_of_a_module_keep_their_lines() -> None:
    assert texts_of('"""No text."""\nx = """one\ntwo"""\ny = f"{x} three"').split("\n") == [
        "",
        " one",
        " two",
        "  three",
    ]
