"""Problems that Kubernetes could not answer in time: a third method finds the first solution, or that there is none.

It decides device by device: the first device after which everything can still be served is right. Whether that is possible is
found by brute force, where states that differ only in equal devices or equal values count as one: slow in general and fast for
these problems. The method uses the plain rules for single devices, and none of the allocator's search, bounds or memory.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Hashable, Iterable
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from dralloc.conformance.allocation import read_line
from dralloc.conformance.vector_family import read_lines
from dralloc.devices.allocator.allocate import AllocationProblem, allocate
from dralloc.kube.resource_v1 import Device, DeviceAttribute, ResourceClaim
from tests.support.allocations import as_plain
from tests.support.plain_allocator import PlainOutcome, allocate_plainly
from tests.support.plain_pools import PlainFatal, PlainPools, World
from tests.support.plain_rules import PlainRules, State, Way
from tests.support.plain_shares import PlainShare
from tests.support.random_worlds import random_world

VECTORS = Path(__file__).parent.parent / "vectors"


class Task(NamedTuple):
    """A remaining request, or the rest of it: with devices after this one, without used ones."""

    request: int
    way: Way | None = None
    slot: int = 0
    after: int = -1
    used: frozenset[int] = frozenset()

    def is_past(self, at: int) -> bool:
        return at <= self.after or at in self.used


class Decider:
    def __init__(self, world: World) -> None:
        self._pools = PlainPools(world)
        self._rules = PlainRules(world, self._pools)
        self._constraints = [
            (claim, number, constraint)
            for claim, found in enumerate(world.claims)
            for number, constraint in enumerate(found.spec.devices.constraints)
        ]
        attributes = {
            constraint.match_attribute or constraint.distinct_attribute for _, _, constraint in self._constraints
        }
        # Values can be exchanged for each other only if nothing else ties them together.
        self._attribute = next(iter(attributes)) if len(attributes) == 1 else None
        self._natures = [self._nature(at) for at in range(len(self._rules.candidates))]
        self._known: dict[Hashable, bool] = {}

    def decide(self, claims: int) -> PlainOutcome:
        state, requests = State(), self._rules.requests
        for index, ways in enumerate(requests):
            rest = tuple(Task(later) for later in range(index + 1, len(requests)))
            way = next((way for way in ways if self._can_serve((Task(index, way), *rest), state)), None)
            if way is None:
                assert index == 0, "after every decision everything could still be served"
                return PlainOutcome(has_invalid_pool=any(pool.is_invalid for pool in self._pools.ordered))
            after = -1
            for slot in range(self._rules.size(way)):
                after, state = next(
                    (at, taken)
                    for at in self._places(Task(index, way, slot, after), state)
                    if (taken := self._rules.take(way, self._rules.candidates[at], state)) is not None
                    and self._can_serve((Task(index, way, slot + 1, at), *rest), taken)
                )
        return PlainOutcome(tuple(tuple(given for claim, given in state.given if claim == at) for at in range(claims)))

    def _can_serve(self, tasks: tuple[Task, ...], state: State) -> bool:
        tasks = tuple(task for task in tasks if task.way is None or task.slot < self._rules.size(task.way))
        if not tasks:
            return True
        key = (
            tuple((task.request, task.way and task.way.name, task.slot) for task in tasks),
            self._essence(tasks, state),
        )
        if key not in self._known:
            # The order of serving does not matter to whether it can be done. What has least choice goes first.
            task = min(tasks, key=lambda task: self._choice(task, state))
            self._known[key] = self._can_serve_first(task, tuple(each for each in tasks if each != task), state)
        return self._known[key]

    def _can_serve_first(self, task: Task, rest: tuple[Task, ...], state: State) -> bool:
        if task.way is None:
            return any(
                self._can_serve((task._replace(way=way), *rest), state) for way in self._rules.requests[task.request]
            )
        tried: set[Hashable] = set()
        for at in self._places(task, state):
            taken = self._rules.take(task.way, self._rules.candidates[at], state)
            if taken is None:
                continue
            # Which of them is taken first does not matter either.
            following = (task._replace(slot=task.slot + 1, used=task.used | {at}), *rest)
            essence = self._essence(following, taken)
            if essence not in tried and self._can_serve(following, taken):
                return True
            tried.add(essence)
        return False

    def _choice(self, task: Task, state: State) -> int:
        ways = self._rules.requests[task.request] if task.way is None else [task.way]
        return max(len(self._places(task._replace(way=way), state)) for way in ways)

    def _places(self, task: Task, state: State) -> list[int]:
        assert task.way is not None
        assert not task.way.takes_all, "none of the lines asks for all devices"
        candidates = enumerate(self._rules.candidates)
        return [at for at, found in candidates if not task.is_past(at) and self._rules.may_try(task.way, found, state)]

    # --- Equality up to exchanging what is equal --------------------------------------------------------------------

    def _nature(self, at: int) -> Hashable:
        """Everything about a device except its name and the value that constraints read."""
        pool, each, device = self._rules.candidates[at]
        blank = msgspec.structs.replace(device, name="", attributes=self._other_attributes(device))
        tried = tuple(
            self._rules.may_try(way, self._rules.candidates[at], State())
            for ways in self._rules.requests
            for way in ways
        )
        held = self._rules.held.get((*pool.key, device.name), ())
        return (
            pool.key,
            each.metadata.name,
            str(blank),
            tried,
            str([(found.share_id, found.consumed_capacity) for found in held]),
        )

    def _other_attributes(self, device: Device) -> dict[str, DeviceAttribute]:
        names = {self._attribute, (self._attribute or "").rpartition("/")[2]}
        return {name: value for name, value in device.attributes.items() if name not in names}

    def _value(self, at: int) -> object:
        _, each, device = self._rules.candidates[at]
        name = self._attribute or ""
        value = device.attributes.get(name)
        if value is None and name.partition("/")[0] == each.spec.driver:
            value = device.attributes.get(name.partition("/")[2])
        return value

    def _essence(self, tasks: tuple[Task, ...], state: State) -> Hashable:
        """The state, up to exchanging equal devices and equal values."""
        taken = Counter(key for key, _ in state.takers)
        by_value: dict[object, Counter[Hashable]] = {}
        values: dict[object, object] = {}
        for at, (pool, _, device) in enumerate(self._rules.candidates):
            key = (*pool.key, device.name)
            shares = _sums(state.shares[key]) if key in state.shares else None
            past = tuple(task.is_past(at) for task in tasks)
            value = self._value(at)
            by_value.setdefault(str(value), Counter())[self._natures[at], taken[key], shares, past] += 1
            values[str(value)] = value
        seen = {
            text: tuple(value in state.seen.get((claim, number), ()) for claim, number, _ in self._constraints)
            for text, value in values.items()
        }
        groups = Counter((seen[text], frozenset(found.items())) for text, found in by_value.items())
        exact = None if self._attribute is not None else str(state.seen)
        counts = Counter(claim for claim, _ in state.given)
        return frozenset(groups.items()), exact, frozenset(state.drawn.items()), frozenset(counts.items())


def _sums(shares: Iterable[PlainShare]) -> Hashable:
    sums: Counter[str] = Counter()
    for share in shares:
        sums.update({name: amount.nanos for name, amount in share.items()})
    return tuple(sorted(sums.items()))


def world_of(problem: AllocationProblem, claims: tuple[ResourceClaim, ...]) -> World:
    return World(
        slices=tuple(found.source for pool in problem.snapshot.pools.values() for found in pool.slices),
        claims=claims,
        classes={str(found.device_class.metadata.name): found.device_class for found in problem.demand.alternatives},
        node=problem.node,
        features=problem.demand.features,
        allocated=tuple(problem.snapshot.claims.values()),
    )


def unanswered() -> dict[str, tuple[AllocationProblem, tuple[ResourceClaim, ...]]]:
    lines = [*read_lines(VECTORS / "allocation-hard.jsonl.gz"), *read_lines(VECTORS / "allocation.jsonl.gz")]
    stated = [read_line(text) for text in lines if b'"timedOut"' in text]
    return {name: (problem, claims) for name, problem, claims in stated}


PROBLEMS = unanswered()


def test_the_vectors_have_problems_without_an_answer() -> None:
    assert len(PROBLEMS) == 28


@pytest.mark.slow
@pytest.mark.parametrize("name", PROBLEMS)
def test_the_answer_agrees_with_the_third_method(name: str) -> None:
    problem, claims = PROBLEMS[name]
    world = world_of(problem, claims)
    assert as_plain(allocate(problem), world.claims) == Decider(world).decide(len(claims))


@pytest.mark.slow
def test_the_third_method_agrees_with_the_plain_allocator() -> None:
    compared = 0
    for seed in range(350):
        world = random_world(seed)
        stated = [way.stated for ways in PlainRules(world, PlainPools(world)).requests for way in ways]
        if any(
            found.allocation_mode == "All" or found.count > 4 or getattr(found, "admin_access", False)
            for found in stated
        ):
            continue
        want = allocate_plainly(world, 1_500)
        if want.fatal is not None or want.is_out_of_steps:
            continue
        # It looks at every device, also at some that fail a selector and that a search never comes to.
        with contextlib.suppress(PlainFatal):
            assert Decider(world).decide(len(world.claims)) == want, f"seed {seed}"
            compared += 1
    assert compared > 100
