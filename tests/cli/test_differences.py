"""What a manifest says otherwise than a server."""

from __future__ import annotations

from typing import Any

import pytest

from dralloc.cli.object_applier import find_differences, told

MANY = {str(index): index for index in range(8)}


@pytest.mark.parametrize(
    ("stored", "stated", "said"),
    [
        ({"a": 1}, {"a": 1}, []),
        ({"a": 1, "default": True}, {"a": 2}, ["spec.a is 1, and cannot become 2"]),
        ({"a": [{"b": "x"}]}, {"a": [{"b": "y"}]}, ['spec.a[0].b is "x", and cannot become "y"']),
        ({"a": [1]}, {"a": [1, 2]}, ["spec.a[1] is not there, and cannot become 2"]),
        ({"a": [1, 2], "b": {}}, {"a": [1]}, ["spec.a[1] is 2, and the manifest leaves it out", "spec.b is {}, and the manifest leaves it out"]),
        ({"a": {"b": 1}}, {"a": "text"}, ['spec.a is {"b":1}, and cannot become "text"']),
        ({}, {"a": "x" * 99}, [f'spec.a is not there, and cannot become "{"x" * 59}…']),
        ({}, MANY, [*(f"spec.{index} is not there, and cannot become {index}" for index in range(5)), "and 3 more"]),
    ],
)  # fmt: skip
def test_differences_in_words(stored: Any, stated: Any, said: list[str]) -> None:
    found = find_differences({"spec": stored, "metadata": {"uid": "1"}}, {"spec": stated, "metadata": {}}, ("spec",))
    assert list(told(found)) == said


def test_a_field_that_neither_has_does_not_differ() -> None:
    assert find_differences({}, {}, ("spec", "devices")) == []
