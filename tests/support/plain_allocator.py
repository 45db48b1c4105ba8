"""The allocation rules in their simplest form: the oracle for tests of the allocator.

No masks, no memory, no undo: every step of the search has its own state, and every check uses the API's objects. It shares with
the allocator only functions that have tests of their own (charges, tolerations, selectors). It takes exponential time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.support.plain_pools import PlainFatal, PlainPools, World
from tests.support.plain_rules import Candidate, Given, PlainRules, State, Way

RESULTS_MAX = 32


@dataclass(frozen=True)
class PlainOutcome:
    """`given` has a tuple for each claim; None if there is no solution."""

    given: tuple[tuple[Given, ...], ...] | None = None
    has_invalid_pool: bool = False
    # The claim, request and device that failed, as far as they are known.
    fatal: tuple[str | None, str | None, str | None] | None = None
    is_out_of_steps: bool = False


class _OverLimit(Exception):
    """Too many results: only another alternative can help."""


class _OutOfSteps(Exception):
    pass


def allocate_plainly(world: World, steps_max: int = 10_000) -> PlainOutcome:
    try:
        pools = PlainPools(world)
        given = _PlainSearch(PlainRules(world, pools), steps_max).run(len(world.claims))
    except PlainFatal as fatal:
        return PlainOutcome(fatal=fatal.at)
    except _OutOfSteps:
        return PlainOutcome(is_out_of_steps=True)
    return PlainOutcome(given, has_invalid_pool=given is None and any(pool.is_invalid for pool in pools.ordered))


class _PlainSearch:
    def __init__(self, rules: PlainRules, steps_max: int) -> None:
        self._rules = rules
        self._steps = steps_max
        self._requests = rules.requests

    def run(self, claims: int) -> tuple[tuple[Given, ...], ...] | None:
        for claim in range(claims):
            asked = [ways for ways in self._requests if ways[0].claim == claim]
            if sum(min([self._rules.size(way) for way in ways]) for ways in asked) > RESULTS_MAX:
                raise PlainFatal(self._rules.claim_name(claim))
        solution = self._serve(0, State())
        if solution is None:
            return None
        return tuple(tuple(given for claim, given in solution.given if claim == index) for index in range(claims))

    def _serve(self, index: int, state: State) -> State | None:
        self._step()
        if index == len(self._requests):
            return state
        ways = self._requests[index]
        if len(ways) == 1 and "/" not in ways[0].name:
            return self._fill(index, ways[0], 0, 0, state)
        limited = 0
        for way in ways:
            try:
                if (solution := self._fill(index, way, 0, 0, state)) is not None:
                    return solution
            except _OverLimit:
                limited += 1
        if limited == len(ways):
            raise _OverLimit
        return None

    def _fill(
        self, index: int, way: Way, slot: int, start: int, state: State, order: Sequence[Candidate] = ()
    ) -> State | None:
        """Solves the request from this slot on, and all later requests."""
        self._step()
        if way.is_aggregated:
            return self._aggregate(index, way, state)
        size = self._rules.size(way)
        if way.takes_all and size == 0:
            return None
        if slot == size:
            try:
                return self._serve(index + 1, state)
            except _OverLimit:
                is_last = index + 1 == len(self._requests) or self._requests[index + 1][0].claim != way.claim
                if is_last:
                    return None
                raise
        if sum(claim == way.claim for claim, _ in state.given) + size - slot > RESULTS_MAX:
            raise _OverLimit
        if way.takes_all:
            taken = self._rules.take(way, self._rules.everything(way)[slot], state)
            return taken and self._fill(index, way, slot + 1, 0, taken)
        if slot == 0:
            # Later slots keep the order: their devices were not touched since.
            order = self._rules.ordered(way, state)
        for at, candidate in enumerate(order[start:], start):
            if not self._rules.may_try(way, candidate, state):
                continue
            taken = self._rules.take(way, candidate, state)
            solution = taken and self._fill(index, way, slot + 1, at + 1, taken, order)
            if solution is not None:
                return solution
        return None

    def _aggregate(self, index: int, way: Way, state: State) -> State | None:
        """Serves the request with as few devices as possible, and all later requests."""
        givers = self._rules.givers(way, state)
        results = sum(claim == way.claim for claim, _ in state.given)
        for size in range(1, min(way.stated.count, RESULTS_MAX - results) + 1):
            try:
                solution = self._give(index, way, givers, (), size, self._rules.totals(way), state)
            except _OverLimit:
                return None
            if solution is not None:
                return solution
        return None

    def _give(
        self,
        index: int,
        way: Way,
        givers: Sequence[Candidate],
        own: tuple[int, ...],
        size: int,
        missing: Mapping[str, int],
        state: State,
    ) -> State | None:
        """`own` are the indices of the devices that have given something."""
        self._step()
        if len(own) == size:
            if any(missing.values()):
                return None
            try:
                return self._serve(index + 1, state)
            except _OverLimit:
                if index + 1 == len(self._requests) or self._requests[index + 1][0].claim != way.claim:
                    return None
                raise
        if not any(missing.values()):
            return None
        is_last = len(own) == size - 1
        for at, candidate in enumerate(givers):
            if at in own or (not is_last and own and at < own[-1]):
                continue
            given = self._rules.give(way, candidate, missing, state)
            if given is None:
                continue
            taken, amounts = given
            rest = {name: max(amount - amounts[name], 0) for name, amount in missing.items()}
            solution = self._give(index, way, givers, (*own, at), size, rest, taken)
            if solution is not None:
                return solution
        return None

    def _step(self) -> None:
        self._steps -= 1
        if self._steps < 0:
            raise _OutOfSteps
