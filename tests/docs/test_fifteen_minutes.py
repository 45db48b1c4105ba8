"""A reader who has never seen the project gets from the first page to a driver of their own that passes the kit in fifteen minutes.

tests/docs/test_pages.py types the commands and compares the output; this counts what there is to read and to type.
"""

from __future__ import annotations

import re

from tests.support.markdown import blocks_of, prose_of
from tests.support.source_tree import ROOT

MINUTES = 15
# Slow for adults who read a technical text, and for people who type commands.
WORDS_READ = 200
CHARACTERS_TYPED = 150
# `make demo` on a fresh machine and the kit, with its figures in docs/quality/performance.md and on the page.
MINUTES_WAITED = 2.0

FIRST_PAGE = (ROOT / "README.md").read_text()
GUIDE = ROOT / "docs" / "writing-a-driver.md"
SECTION = "A driver of your own in fifteen minutes"


def section(page: str, title: str) -> str:
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", page, re.M | re.S)
    assert found, f"{title!r} is no heading of the page"
    return found[1]


def words(text: str) -> int:
    """Words of a page: its prose without the targets of links, and its blocks."""
    seen = re.sub(r"\]\([^)]*\)|<img[^>]*>", "]", prose_of(text))
    return len(seen.split()) + sum(len(block.text.split()) for block in blocks_of(text))


def typed(text: str) -> int:
    return sum(
        len(command.text) for block in blocks_of(text) if block.language == "console" for command in block.commands()
    )


def test_the_first_page_leads_to_the_guide() -> None:
    assert f"]({GUIDE.relative_to(ROOT)})" in FIRST_PAGE
    assert "dralloc driver-test" in section(GUIDE.read_text(), SECTION)


def test_reading_and_typing_take_fifteen_minutes() -> None:
    # A reader of the first page who wants a driver types nothing of its taste.
    path = section(GUIDE.read_text(), SECTION)
    read = (words(FIRST_PAGE) + words(path)) / WORDS_READ
    entered = (typed(path) + len("make demo")) / CHARACTERS_TYPED
    assert read + entered + MINUTES_WAITED <= MINUTES, (
        f"{read:.1f} to read, {entered:.1f} to type, {MINUTES_WAITED} to wait"
    )


def test_counts() -> None:
    page = "A [link](to/a/page) here.\n\n```console\n$ one two\nthree\n```\n"
    assert (words(page), typed(page)) == (3 + 4, len("one two"))
