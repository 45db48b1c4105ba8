"""The moving pictures of the first page show what the commands print today, and are small enough for it."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pytest
from PIL import Image

from scripts.draw_terminal import COMMANDS, PICTURE, draw, lines_of, run
from tests.support.source_tree import ROOT

BYTES_MAX = 500_000
FIRST_PAGE = (ROOT / "README.md").read_text()


@pytest.mark.slow
def test_the_terminal_shows_what_the_commands_print() -> None:
    assert PICTURE.read_text() == draw(list(run(COMMANDS))), "run `make screenshots`"


def test_a_command_is_typed_and_its_output_follows() -> None:
    typed, *printed = lines_of([("dralloc explain pod p", "pod default/p does not fit\n\n  - request less\n")])
    assert (typed.text, typed.kind) == ("$ dralloc explain pod p", "command")
    assert [(line.text, line.kind) for line in printed] == [
        ("pod default/p does not fit", "answer"),
        ("", "output"),
        ("  - request less", "remedy"),
    ]
    assert all(line.at_s >= typed.at_s + typed.typed_s for line in printed)


def test_long_lines_stay_in_the_picture_and_markup_is_text() -> None:
    drawn = ET.fromstring(draw([("x", "<b>&" + " word" * 100)]))
    width = float(drawn.attrib["viewBox"].split()[2])
    texts = [element for element in drawn.iter() if element.tag.endswith("}text")]
    assert texts[1].text is not None
    assert texts[1].text.startswith("<b>& word")
    assert all(float(text.attrib["x"]) + float(text.attrib["textLength"]) <= width for text in texts)


def test_the_first_page_shows_moving_pictures_with_words_for_those_who_do_not_see_them() -> None:
    shown = re.findall(r'<img alt="([^"]{40,})" src="([^"]+)"', FIRST_PAGE)
    assert [picture for _, picture in shown] == ["docs/screenshots/explain.svg", "docs/screenshots/page.webp"]
    for _, picture in shown:
        assert (ROOT / picture).stat().st_size < BYTES_MAX
    with Image.open(ROOT / shown[1][1]) as film:
        assert getattr(film, "n_frames", 1) >= 3
    assert "prefers-reduced-motion" in PICTURE.read_text()
