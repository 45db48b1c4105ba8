"""Sets of completion indexes as text."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dralloc.controllers.jobs.pod_tracker import parse_indexes, print_indexes


@given(indexes=st.sets(st.integers(0, 50)))
def test_indexes_survive_a_round_trip(indexes: set[int]) -> None:
    assert parse_indexes(print_indexes(indexes)) == indexes


def test_indexes_are_written_as_in_kubernetes() -> None:
    assert print_indexes({7, 0, 1, 2, 5, 8}) == "0-2,5,7-8"
    assert parse_indexes("nonsense,3,-,5-x") == {3}
    assert parse_indexes(f"1,{'9' * 5000},0-2,4-{'9' * 5000},5") == {1, 5}
