"""Numbers in texts of users: none of them raises."""

from __future__ import annotations

import pytest

from dralloc.primitives.whole_numbers import whole_number
from dralloc.scheduler.state.group_members import MIN_COUNT_ANNOTATION, asked_min_count
from tests.support.workloads import pod, seen


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("42", 42),
        ("9" * 18, 10**18 - 1),
        ("9" * 19, None),
        ("9" * 5000, None),
        ("", None),
        ("-1", None),
        ("٣", None),
    ],
)
def test_whole_numbers(text: str, number: int | None) -> None:
    assert whole_number(text) == number


@pytest.mark.parametrize(("text", "count"), [("3", 3), ("0", 1), ("x", 1), ("9" * 5000, 1)])
def test_the_size_of_a_gang_is_a_number_whatever_the_annotation_says(text: str, count: int) -> None:
    document = pod("p")
    document["metadata"]["annotations"] = {MIN_COUNT_ANNOTATION: text}
    assert asked_min_count(seen(document)) == count
