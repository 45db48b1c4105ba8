"""Sets of counts: what fits on all nodes together, compared with every choice of a combination for every node."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from hypothesis import given
from hypothesis import strategies as some

from dralloc.scheduler.decide.gang_reach import GangReach
from dralloc.scheduler.decide.gang_rooms import Counts


def most_members(available: Counts, nodes: Sequence[Sequence[Counts]], sizes: Counts) -> int:
    """By trying everything."""
    best = 0
    for choice in product(*nodes):
        taken = [sum(counts[kind] for counts in choice) for kind in range(len(available))]
        best = max(best, sum(map(int.__mul__, map(min, taken, available), sizes)))
    return best


@some.composite
def problems(draw: some.DrawFn) -> tuple[Counts, list[list[Counts]], Counts, int]:
    kinds = draw(some.integers(1, 3))
    available = draw(some.tuples(*[some.integers(1, 4)] * kinds))
    sizes = draw(some.tuples(*[some.integers(1, 3)] * kinds))
    combination = some.tuples(*(some.integers(0, count) for count in available))
    nodes = draw(some.lists(some.lists(combination, min_size=1, max_size=3), max_size=4))
    return available, nodes, sizes, draw(some.integers(1, sum(map(int.__mul__, available, sizes))))


@given(problems())
def test_what_fits_is_found_and_else_the_most_that_fits(
    problem: tuple[Counts, list[list[Counts]], Counts, int],
) -> None:
    available, nodes, sizes, needed = problem
    most = most_members(available, nodes, sizes)
    found = GangReach(available, nodes, sizes, needed).search()
    if isinstance(found, int):
        assert found == most < needed
        return
    assert len(found) == len(nodes)
    for counts, combinations in zip(found, nodes, strict=True):
        assert any(all(map(int.__le__, counts, each)) for each in [*combinations, (0,) * len(available)])
    taken = [sum(counts[kind] for counts in found) for kind in range(len(available))]
    assert all(map(int.__le__, taken, available))
    assert sum(map(int.__mul__, taken, sizes)) >= needed
