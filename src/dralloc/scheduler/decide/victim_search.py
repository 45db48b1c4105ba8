"""The cheapest pods whose eviction lets something fit: a search over sets of victims, whatever has to fit.

Sets are compared as Kubernetes compares nodes for preemption (`Cost`): disruption budgets, the highest priority, the sum of
priorities, the number of pods, then how long they have been running. A set costs more than each of its subsets, so that the
cheapest set has no pod that could stay.

The search is a branch and bound. Victims are ordered from the dearest to the cheapest; as many as possible of the dearest stay, and
the first that cannot stay goes. This first solution is nearly always the cheapest; then the choices are revised from the last to the first, as long as what they
cost at least is less than the best set. It relies on one property: if it fits without some pods, it fits without these and others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import inf
from typing import Final, Generic, NamedTuple, TypeVar

from msgspec import Struct

from dralloc.scheduler.state.placed_pods import PodKey

Proof = TypeVar("Proof")

# Priorities are shifted by this amount before they are added up, so that more victims cost more even if priorities are negative.
PRIORITY_SHIFT: Final = 2**31
# How many of the cheapest victims are considered at first.
POOL_SIZE: Final = 64
# How often the question is asked after a first solution is known. A search that ends here may have missed a cheaper set.
CHECKS_MAX: Final = 500


class Cost(NamedTuple):
    """Less is better. `running_since` is the negated start of the victim with the highest priority that started first."""

    violations: int = 0
    highest: int = -PRIORITY_SHIFT
    total: int = 0
    number: int = 0
    running_since: float = -inf


class VictimUnit(Struct, frozen=True, eq=False, gc=False):
    """Pods that are evicted together: one pod, or all members of a group.

    `budgets` has the index of a disruption budget for each pod that counts for it. `started` is when the first of the pods started;
    infinite if none has.
    """

    keys: tuple[PodKey, ...]
    priority: int
    started: float = inf
    budgets: tuple[int, ...] = ()

    @property
    def total(self) -> int:
        return (self.priority + PRIORITY_SHIFT) * len(self.keys)


@dataclass(frozen=True, slots=True)
class VictimSet(Generic[Proof]):
    """`proof` is what shows that it fits without these pods. `is_cheapest`: the search was not cut short."""

    units: tuple[VictimUnit, ...]
    cost: Cost
    proof: Proof
    is_cheapest: bool = True


def cost_of(units: Sequence[VictimUnit], allowed: Sequence[int] = ()) -> Cost:
    """`allowed` is the number of disruptions that each budget allows."""
    if not units:
        return Cost()
    highest = max(unit.priority for unit in units)
    used: dict[int, int] = {}
    for unit in units:
        for budget in unit.budgets:
            used[budget] = used.get(budget, 0) + 1
    return Cost(
        sum(max(count - max(allowed[budget], 0), 0) for budget, count in used.items()),
        highest,
        sum(unit.total for unit in units),
        sum(len(unit.keys) for unit in units),
        -min(unit.started for unit in units if unit.priority == highest),
    )


@dataclass(frozen=True, slots=True)
class VictimQuestion(Generic[Proof]):
    """`fits` says whether it fits without these pods, with a proof. `needed` is how many more units must go at least, besides
    those that are given; None if even all of them are not enough. `checks_max` bounds the search once a set is known."""

    fits: Callable[[Sequence[VictimUnit]], Proof | None]
    needed: Callable[[Sequence[VictimUnit]], int | None] = lambda _: 0
    allowed: Sequence[int] = ()
    checks_max: int = CHECKS_MAX


def cheapest_victims(
    units: Sequence[VictimUnit], question: VictimQuestion[Proof], limit: Cost | None = None
) -> VictimSet[Proof] | None:
    """The cheapest set of these units that is enough and costs less than the limit; None if there is none."""
    ordered = sorted(units, key=lambda unit: (cost_of((unit,), question.allowed), unit.keys))
    best: VictimSet[Proof] | None = None
    size = min(POOL_SIZE, len(ordered))
    while size:
        search = _Search(ordered[:size], question, best.cost if best is not None else limit)
        best = search.run() or best
        bound = best.cost if best is not None else limit
        # A set with one of the others costs at least as much as this one alone.
        rest = [unit for unit in ordered[size:] if bound is None or cost_of((unit,), question.allowed) < bound]
        if not rest:
            return best
        size = min(size * 4, size + len(rest))
    return best


class _Search(Generic[Proof]):
    def __init__(self, units: Sequence[VictimUnit], question: VictimQuestion[Proof], limit: Cost | None) -> None:
        self._units = tuple(reversed(units))
        self._question = question
        self._limit = limit
        self._best: VictimSet[Proof] | None = None
        self._checks = 0
        # The lowest priority, and the fewest pods of a unit, from a position on.
        self._lowest = [*accumulate((unit.priority for unit in units), min)][::-1]
        self._answers: dict[tuple[int, ...], Proof | None] = {}

    def run(self) -> VictimSet[Proof] | None:
        if self._bound((), 0) is not None and self._fits((), 0) is not None:
            self._descend((), 0)
        if self._best is None or self._checks < self._question.checks_max:
            return self._best
        return VictimSet(self._best.units, self._best.cost, self._best.proof, is_cheapest=False)

    def _descend(self, gone: tuple[int, ...], start: int) -> None:
        """Decides about the units from `start` on. It fits if all of them go besides `gone`."""
        stop = self._first_that_cannot_stay(gone, start)
        if stop == len(self._units):
            self._conclude(gone)
            return
        for position in range(stop, start - 1, -1):
            if self._best is not None and self._checks >= self._question.checks_max:
                return
            child = (*gone, position)
            if self._bound(child, position + 1) is not None:
                self._descend(child, position + 1)

    def _first_that_cannot_stay(self, gone: tuple[int, ...], start: int) -> int:
        """Everything before it can stay. If more pods stay, less fits, so this is found by bisection."""
        low, high, step = start, len(self._units), 1
        while low < high:
            middle = min(low + step, high)
            if self._fits(gone, middle) is not None:
                low, step = middle, step * 2
            else:
                high, step = middle - 1, max((middle - 1 - low) // 2, 1)
        return low

    def _fits(self, gone: tuple[int, ...], start: int) -> Proof | None:
        """Whether it fits without `gone` and everything from `start` on."""
        key = (*gone, *range(start, len(self._units)))
        if key not in self._answers:
            self._checks += 1
            self._answers[key] = self._question.fits([self._units[position] for position in key])
        return self._answers[key]

    def _conclude(self, gone: tuple[int, ...]) -> None:
        units = [self._units[position] for position in gone]
        cost, proof = cost_of(units, self._question.allowed), self._fits(gone, len(self._units))
        assert proof is not None, "it was asked before"
        if self._limit is None or cost < self._limit:
            self._limit = cost
            self._best = VictimSet(tuple(units), cost, proof)

    def _bound(self, gone: tuple[int, ...], start: int) -> Cost | None:
        """What a set with `gone`, completed by units from `start` on, costs at least; None if that is too much."""
        units = [self._units[position] for position in gone]
        more = self._question.needed(units)
        if more is None or more > len(self._units) - start:
            return None
        cost = cost_of(units, self._question.allowed)
        if more:
            lowest = self._lowest[start]
            highest = max(cost.highest, lowest)
            total = cost.total + more * (lowest + PRIORITY_SHIFT)
            since = cost.running_since if highest == cost.highest else -inf
            cost = Cost(cost.violations, highest, total, cost.number + more, since)
        return cost if self._limit is None or cost < self._limit else None
