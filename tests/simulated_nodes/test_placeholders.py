"""Templates with placeholders."""

from __future__ import annotations

import pytest

from dralloc.node.simulated.placeholders import BadTemplate, escape, fill, fill_text, repetitions


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("plain", "plain"),
        ("gpu-{i}", "gpu-5"),
        ("{node}/{i // 2}/{i % 2}", "n-7/2/1"),
        ("{ i * 2 + 1 }", "11"),
        ("{(i + 1) * 2}", "12"),
        ("{{i}}", "{i}"),
    ],
)
def test_placeholders_are_filled_in(text: str, filled: str) -> None:
    assert fill_text(text, {"i": 5, "node": "n-7"}) == filled


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{x}", "unknown variable x; known are i, node"),
        ("{i + x}", "unknown variable x"),
        ("{}", "cannot be evaluated"),
        ("{i +}", "cannot be evaluated"),
        ("{i // 0}", "cannot be evaluated"),
        ("{node + 1}", "node is not a number"),
        ("{__import__('os')}", "only numbers, variables and"),
        ("{i.bit_length}", "only numbers, variables and"),
        ("{i ** 9}", "only numbers, variables and"),
        ("{" + "(" * 40 + "}", "cannot be evaluated"),
        ("{" + "i+" * 100 + "i}", "is too long"),
    ],
)
def test_an_invalid_placeholder_is_named(text: str, reason: str) -> None:
    with pytest.raises(BadTemplate, match=reason):
        fill_text(text, {"i": 5, "node": "n"})


def test_keys_and_numbers_of_trees_are_filled_in() -> None:
    tree = {"a-{i}": [{"int": "{i}", "string": "{i}"}, 3, True, None]}
    assert fill(tree, {"i": 5}) == {"a-5": [{"int": 5, "string": "5"}, 3, True, None]}
    with pytest.raises(BadTemplate, match="not an integer"):
        fill({"int": "{node}"}, {"node": "x"})


def test_escaped_text_round_trips() -> None:
    assert fill_text(escape("a{b}}c{"), {}) == "a{b}}c{"


def test_repetitions_count_one_or_several_variables() -> None:
    assert list(repetitions(None, {"a": 1})) == [{"a": 1}]
    assert list(repetitions(2, {"a": 1})) == [{"a": 1, "i": 0}, {"a": 1, "i": 1}]
    assert [(each["x"], each["y"]) for each in repetitions({"x": 2, "y": 2}, {})] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    for bad in ("3", -1, {"x": "2"}, [1], 10_001):
        with pytest.raises(BadTemplate, match="repeat"):
            list(repetitions(bad, {}))
