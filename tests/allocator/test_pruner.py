"""Pruning does not change the outcome: same first solution, same proof that there is none, same fatal error.

Every way of pruning is compared with the plain allocator, alone and together, on random problems made to turn back a lot.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dralloc.devices.allocator.allocate import check
from dralloc.devices.allocator.features import Features
from dralloc.devices.allocator.ledger import Ledger
from dralloc.devices.allocator.outcome import SearchAborted
from dralloc.devices.allocator.problem_survey import ProblemSurvey
from dralloc.devices.allocator.pruner import Knowledge, Pruner
from dralloc.devices.allocator.search import Cursor, Search, SearchStatus
from dralloc.devices.allocator.solver import StepBudget
from dralloc.devices.allocator.supply import DeviceCandidate, Supply
from dralloc.devices.identity import DeviceId
from dralloc.kube.device_parts import capacity
from dralloc.kube.resource_v1 import Device, ResourceClaim, ResourceSlice
from dralloc.testing.builders import (
    CLASS,
    DRIVER,
    alternative,
    claim,
    device,
    device_class,
    first_available,
    node,
    request,
    resource_slice,
)
from tests.support.allocations import allocate_world, as_plain, problem_of
from tests.support.plain_allocator import PlainOutcome, allocate_plainly
from tests.support.plain_pools import World
from tests.support.random_capacity import with_capacity_features
from tests.support.random_extensions import with_aggregated_capacity, with_distinct_attributes, with_preferences
from tests.support.random_seeds import seeds
from tests.support.random_worlds import random_world, with_derived_attributes

BATCH_SIZE = 80
STEPS_MAX = 2_000
# Problems that end within these steps leave little to prune.
EASY_STEPS = 20

Extension = Callable[[World, int], World]
EXTENSIONS: list[Extension] = [
    with_distinct_attributes,
    with_preferences,
    with_capacity_features,
    with_aggregated_capacity,
]

PLAIN = StepBudget(steps_max=10**6, plain=10**6)
PRUNED = StepBudget(steps_max=20_000, plain=0, pruned=20_000)
PARTS_FIRST = StepBudget(steps_max=20_000, plain=0, pruned=20)


class Nothing(Pruner):
    """No pruning; each class below enables one rule."""

    def __init__(self, survey: ProblemSurvey, ledger: Ledger) -> None:
        super().__init__(survey, ledger, Knowledge())
        self._numbers = count()

    def key(self, cursor: Cursor) -> Hashable:
        return next(self._numbers)

    def equivalence(self, cursor: Cursor, candidate: DeviceCandidate) -> Hashable:
        return next(self._numbers)

    def is_unsatisfiable(self, cursor: Cursor) -> bool:
        return False


class OnlyMemory(Nothing):
    key = Pruner.key


class OnlyEquivalence(Nothing):
    equivalence = Pruner.equivalence


class OnlyBounds(Nothing):
    is_unsatisfiable = Pruner.is_unsatisfiable


@pytest.mark.slow
@pytest.mark.fuzz
@pytest.mark.parametrize("batch", seeds(4))
def test_random_problems(batch: int) -> None:
    for seed in range(batch * BATCH_SIZE, (batch + 1) * BATCH_SIZE):
        compare(seed)


@pytest.mark.slow
@pytest.mark.fuzz
@pytest.mark.parametrize("batch", seeds(1))
def test_random_problems_with_derived_attributes(batch: int) -> None:
    for seed in range(batch * BATCH_SIZE, (batch + 1) * BATCH_SIZE):
        compare_world(with_derived_attributes(random_world(seed), seed), seed)


@pytest.mark.slow
@pytest.mark.fuzz
@pytest.mark.parametrize("extend", EXTENSIONS)
@pytest.mark.parametrize("batch", seeds(1))
def test_random_problems_with_features_that_are_off_by_default(batch: int, extend: Extension) -> None:
    for seed in range(batch * BATCH_SIZE, (batch + 1) * BATCH_SIZE):
        compare_world(extend(random_world(seed), seed), seed)


@pytest.mark.slow
@pytest.mark.fuzz
@pytest.mark.parametrize("batch", seeds(1))
def test_random_problems_with_all_features(batch: int) -> None:
    for seed in range(batch * BATCH_SIZE, (batch + 1) * BATCH_SIZE):
        world = with_derived_attributes(random_world(seed), seed)
        for extend in EXTENSIONS:
            world = extend(world, seed)
        compare_world(world, seed)


@pytest.mark.fuzz
@given(st.integers(10**6, 10**9), st.lists(st.sampled_from([with_derived_attributes, *EXTENSIONS]), unique=True))
def test_more_random_problems(seed: int, extensions: list[Extension]) -> None:
    world = random_world(seed)
    for extend in extensions:
        world = extend(world, seed)
    compare_world(world, seed)


def compare(seed: int) -> None:
    compare_world(random_world(seed), seed)


def compare_world(world: World, seed: int) -> None:
    want = allocate_plainly(world, EASY_STEPS)
    if not want.is_out_of_steps:
        assert as_plain(allocate_world(world), world.claims) == want, f"seed {seed}"
        assert as_plain(allocate_world(world, PRUNED), world.claims) == want, f"seed {seed}, pruned from the start"
        return
    want = allocate_plainly(world, STEPS_MAX)
    if not want.is_out_of_steps:
        compare_all(world, want, f"seed {seed}")


def compare_all(world: World, want: PlainOutcome, which: str) -> None:
    assert as_plain(allocate_world(world), world.claims) == want, which
    assert as_plain(allocate_world(world, PLAIN), world.claims) == want, f"{which}, without pruning"
    assert as_plain(allocate_world(world, PRUNED), world.claims) == want, f"{which}, pruned from the start"
    assert as_plain(allocate_world(world, PARTS_FIRST), world.claims) == want, f"{which}, with parts looked at alone"
    for kind in (OnlyMemory, OnlyEquivalence, OnlyBounds):
        assert found_by(world, kind) == devices_of(want), f"{which}, {kind.__name__}"


Devices = list[tuple[str, DeviceId]] | SearchStatus | None


def devices_of(want: PlainOutcome) -> Devices:
    if want.fatal is not None:
        return None
    if want.given is None:
        return SearchStatus.DEAD
    return [(given.request, DeviceId(*given.device)) for claim in want.given for given in claim]


def found_by(world: World, kind: Callable[[ProblemSurvey, Ledger], Pruner]) -> Devices:
    """The result of a search with this pruning; None if it meets a fatal error."""
    problem = problem_of(world)
    view = problem.snapshot.view(problem.node, problem.demand.features.visibility)
    supply = Supply(problem.snapshot, view, problem.demand)
    try:
        check(problem.demand, supply)
        search = Search(problem.demand, supply, 10**6)
        verdict = search.run(kind(ProblemSurvey(problem.demand, supply), search.ledger))
    except SearchAborted:
        return None
    if verdict is not SearchStatus.SOLVED:
        return verdict
    picks = search.ledger.picks.values()
    return [(str(pick.alternative.name), pick.candidate.strip.slice.device_id(pick.candidate.bit)) for pick in picks]


# --- Cases for each part of a key and of a bound ----------------------------------------------------------------------


def model(name: str) -> str:
    return f'device.attributes["{DRIVER}"].?model.orValue("") == "{name}"'


def side(name: str) -> str:
    return f'device.attributes["{DRIVER}"].?side.orValue("") == "{name}"'


def models(*names: str) -> list[Device]:
    """Devices in this order, with these models."""
    return [device(f"{name}-{number:02}", attributes={"model": name}) for number, name in enumerate(names)]


def world(devices: list[Device], *claims: ResourceClaim, more: tuple[ResourceSlice, ...] = ()) -> World:
    slices = (resource_slice("a", *devices, of=1 + len(more)), *more)
    return World(slices=slices, claims=claims, classes={CLASS: device_class()}, node=node())


# Fails on a device without the attribute.
STRICT = f'device.attributes["{DRIVER}"].kind == "u"'

CASES = {
    "admin access needs no device of its own": world(
        models("d"), claim("a", request("r")), claim("b", request("r", admin=True))
    ),
    "a device that is taken again by admin access draws again": world(
        [device("d", draws={"card": {"units": "2"}})],
        claim("a", request("r")),
        claim("b", request("r", admin=True)),
        more=(resource_slice("b", counters={"card": {"units": "4"}}, of=2),),
    ),
    "a device that is taken is not like one that is not, to admin access": world(
        models("e", "d"),
        claim("a", request("r", where=model("d"))),
        claim("b", request("r", admin=True)),
        claim("c", request("r")),
    ),
    "whose device it is matters to admin access": world(
        models("d", "x"),
        claim("a", first_available("r", alternative("x", where=model("x")), alternative("d", where=model("d")))),
        claim("b", request("any"), request("admin", where=model("d"), admin=True)),
    ),
    "what counters have left matters, also where no device does": world(
        [
            device("a-0", attributes={"model": "a"}, draws={"card": {"units": "3"}}),
            device("a-1", attributes={"model": "a"}, draws={"card": {"units": "1"}}),
            device("b-0", attributes={"model": "b"}, draws={"card": {"units": "2"}}),
        ],
        claim("c", request("a", where=model("a")), request("b", where=model("b"))),
        more=(resource_slice("b", counters={"card": {"units": "3"}}, of=2),),
    ),
    "how many results a claim has matters near its limit": world(
        models(*["x"] * 20, *["y"] * 15),
        claim(
            "c",
            first_available(
                "x", alternative("many", count=20, where=model("x")), alternative("few", count=5, where=model("x"))
            ),
            request("y", count=5, where=model("y")),
            request("z", count=10, where=model("y")),
        ),
    ),
    "a limit ends a request before it comes to a fault, and a bound must not undo that": world(
        [
            *models(*["x"] * 10, *["y"] * 20),
            device("z-0", attributes={"model": "z", "kind": "u"}),
            device("z-1", attributes={"model": "z"}),
        ],
        claim(
            "c",
            first_available("x", alternative("many", count=20, where="true"), alternative("one", where=model("x"))),
            request("strict", where=(model("z"), STRICT)),
            request("y", count=5, where=model("y")),
            request("z", count=10, where=model("y")),
        ),
    ),
    "a limit ends a request before it comes to a fault, and like devices may stand on either side of it": world(
        [
            *models(*["x"] * 20, *["y"] * 12),
            device("u-0", attributes={"model": "u", "kind": "u", "side": "left"}),
            device("u-1", attributes={"model": "u"}),
            device("u-2", attributes={"model": "u", "kind": "u", "side": "right"}),
        ],
        claim(
            "c",
            first_available("x", alternative("many", count=20, where=model("x")), alternative("one", where=model("x"))),
            first_available("u", alternative("right", where=side("right")), alternative("left", where=side("left"))),
            request("strict", where=(model("u"), STRICT)),
            request("y", count=12, where=model("y")),
        ),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_cases_for_each_part_of_a_key_or_bound(name: str) -> None:
    compare_all(CASES[name], allocate_plainly(CASES[name], 100_000), name)


@pytest.mark.parametrize("strategy", ["ConsumedOrNever", "BlockOrShare"])
def test_requests_that_do_not_fit_alone_can_fit_after_an_earlier_one(strategy: str) -> None:
    """Alone, the request without an amount decides for the other; after a share with an amount it takes the default."""
    nic = capacity("10", default="2", strategy=strategy)
    card = device("d", attributes={"model": "d"}, shareable=True, capacity={"bandwidth": nic})
    one_of = first_available(
        "first",
        alternative("other", where=model("e")),
        alternative("same", where=model("d"), capacity={"bandwidth": "1"}),
    )
    asked = claim(
        "c", one_of, request("any", where=model("d")), request("some", where=model("d"), capacity={"bandwidth": "3"})
    )
    found = replace(world([card, *models("e")], asked), features=Features(capacity_strategies=True))
    want = allocate_plainly(found)
    assert want.given is not None
    for pruned in range(8):
        budget = StepBudget(steps_max=1_000, plain=0, pruned=pruned)
        assert as_plain(allocate_world(found, budget), found.claims) == want
    compare_all(found, want, strategy)


@pytest.mark.slow
def test_random_problems_have_every_kind_of_outcome() -> None:
    """They include solutions, proofs and fatal errors, and many that need backtracking."""
    outcomes = [allocate_plainly(random_world(seed), STEPS_MAX) for seed in range(150)]
    assert sum(outcome.given is not None for outcome in outcomes) > 20
    assert sum(outcome.fatal is not None for outcome in outcomes) > 5
    hard = [seed for seed in range(150) if allocate_plainly(random_world(seed), 60).is_out_of_steps]
    assert len(hard) > 10
