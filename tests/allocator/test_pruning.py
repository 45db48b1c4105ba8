"""Pruning changes nothing: the same first solution, the same proof that there is none, the same fault.

Every way of pruning is compared with the plain allocator, alone and together, on random problems made to turn back a lot.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dralloc.allocator.allocate import check
from dralloc.allocator.landscape import Landscape
from dralloc.allocator.ledger import Ledger
from dralloc.allocator.outcome import Fault
from dralloc.allocator.pruning import Knowledge, Pruner
from dralloc.allocator.search import Cursor, Search, Verdict
from dralloc.allocator.solve import Effort
from dralloc.allocator.supply import Place, Supply
from dralloc.testing.allocations import allocate_world, as_plain, problem_of
from dralloc.testing.plain_allocator import PlainOutcome, allocate_plainly
from dralloc.testing.plain_pools import World
from dralloc.testing.random_worlds import random_world

BATCHES = 10
BATCH_SIZE = 120
STEPS_MAX = 3_000

PLAIN = Effort(steps_max=10**6, plain=10**6)
PRUNED = Effort(steps_max=20_000, plain=0, pruned=20_000)
PARTS_FIRST = Effort(steps_max=20_000, plain=0, pruned=20)


class Nothing(Pruner):
    """No pruning at all; each kind below takes one back."""

    def __init__(self, landscape: Landscape, ledger: Ledger) -> None:
        super().__init__(landscape, ledger, Knowledge())
        self._numbers = count()

    def key(self, cursor: Cursor) -> Hashable:
        return next(self._numbers)

    def likeness(self, cursor: Cursor, place: Place) -> Hashable:
        return next(self._numbers)

    def is_hopeless(self, cursor: Cursor) -> bool:
        return False


class OnlyMemory(Nothing):
    key = Pruner.key


class OnlyLikeness(Nothing):
    likeness = Pruner.likeness


class OnlyBounds(Nothing):
    is_hopeless = Pruner.is_hopeless


@pytest.mark.slow
@pytest.mark.parametrize("batch", range(BATCHES))
def test_random_problems(batch: int) -> None:
    for seed in range(batch * BATCH_SIZE, (batch + 1) * BATCH_SIZE):
        compare(seed)


@pytest.mark.fuzz
@given(st.integers(10**6, 10**9))
def test_more_random_problems(seed: int) -> None:
    compare(seed)


def compare(seed: int) -> None:
    world = random_world(seed)
    want = allocate_plainly(world, STEPS_MAX)
    if want.is_out_of_steps:
        return
    assert as_plain(allocate_world(world)) == want, f"seed {seed}"
    assert as_plain(allocate_world(world, PLAIN)) == want, f"seed {seed}, without pruning"
    assert as_plain(allocate_world(world, PRUNED)) == want, f"seed {seed}, pruned from the start"
    assert as_plain(allocate_world(world, PARTS_FIRST)) == want, f"seed {seed}, with parts looked at alone"
    for kind in (OnlyMemory, OnlyLikeness, OnlyBounds):
        assert verdict_of(world, kind) == expected_verdict(want), f"seed {seed}, {kind.__name__}"


def expected_verdict(want: PlainOutcome) -> Verdict | None:
    if want.fatal is not None:
        return None
    return Verdict.DEAD if want.given is None else Verdict.SOLVED


def verdict_of(world: World, kind: Callable[[Landscape, Ledger], Pruner]) -> Verdict | None:
    """How a search with this pruning ends; None where it meets a fault."""
    problem = problem_of(world)
    view = problem.snapshot.view(problem.node, problem.demand.features.visibility)
    supply = Supply(problem.snapshot, view, problem.demand)
    try:
        check(problem.demand, supply)
        search = Search(problem.demand, supply, 10**6)
        return search.run(kind(Landscape(problem.demand, supply), search.ledger))
    except Fault:
        return None


def test_the_random_problems_are_worth_it() -> None:
    """Among them are solutions, proofs and faults, and many where the first try is not the last."""
    outcomes = [allocate_plainly(random_world(seed), STEPS_MAX) for seed in range(150)]
    assert sum(outcome.given is not None for outcome in outcomes) > 20
    assert sum(outcome.fatal is not None for outcome in outcomes) > 5
    hard = [seed for seed in range(150) if allocate_plainly(random_world(seed), 60).is_out_of_steps]
    assert len(hard) > 10
