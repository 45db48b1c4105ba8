"""The search for the fewest moves after which pods have a place.

It works backwards: a pod that fits nowhere gets a node from which other pods are evicted, and those then need a place themselves,
elsewhere or beside it. Sets of evicted pods are minimal; a pod is moved once at most. Whether a pod fits is the scheduler's
decision, on the state in which everything else of the plan has happened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from dralloc.api.pod_v1 import Pod
from dralloc.scheduler.decide.node_verdicts import Fits
from dralloc.whatif.movable_pods import MoveUnit
from dralloc.whatif.placements import PodPlacement
from dralloc.whatif.relocation import Relocation


@dataclass(frozen=True, slots=True)
class Goal:
    """A pod to place; `unit` is what it was evicted with, None for a pod that a place is made for."""

    pod: Pod
    unit: MoveUnit | None = None


@dataclass(frozen=True, slots=True)
class ReachedGoal:
    goal: Goal
    placed: PodPlacement


class MoveSearch:
    """Where the relocation raises SearchLimit, the search ends, and the state is as before."""

    def __init__(self, relocation: Relocation, units: Iterable[MoveUnit]) -> None:
        self._relocation = relocation
        self._by_node: dict[str, list[MoveUnit]] = {}
        for unit in units:
            for name in unit.nodes:
                self._by_node.setdefault(name, []).append(unit)
        # The units that have been evicted, by identity.
        self.moved: dict[int, MoveUnit] = {}
        # The goals that have been reached, in this order.
        self.reached: list[ReachedGoal] = []

    def placings(self, goals: Sequence[Goal], moves_max: int) -> Iterator[int]:
        """Every way to place the goals with at most so many moves, as the number of moves that are left.

        While the caller looks at one, the state and `reached` have it. The state is as before at the end.
        """
        if not goals:
            yield moves_max
            return
        goal, rest = goals[0], goals[1:]
        for _ in self._direct(goal):
            yield from self.placings(rest, moves_max)
        for units, evicted in self._displacing(goal, moves_max):
            left = moves_max - sum(len(unit.pods) for unit in units)
            yield from self.placings((*rest, *evicted), left)

    def _chosen(self, goals: Sequence[Goal], left: int) -> Iterator[int]:
        """The way in which the scheduler would place the goals, one after the other."""
        if not goals:
            yield left
            return
        for _ in self._try(goals[0]):
            yield from self._chosen(goals[1:], left)

    def _direct(self, goal: Goal) -> Iterator[ReachedGoal]:
        """The nodes where the pod fits as it is: the scheduler's choice first."""
        chosen = ""
        for reached in self._try(goal):
            chosen = reached.placed.node
            yield reached
        if not chosen:
            return
        verdicts = self._relocation.engine.verdicts(goal.pod)
        for name in sorted(name for name, verdict in verdicts.items() if isinstance(verdict, Fits) and name != chosen):
            yield from self._try(goal, name)

    def _displacing(self, goal: Goal, moves_max: int) -> Iterator[tuple[tuple[MoveUnit, ...], list[Goal]]]:
        """The nodes where the pod fits once others are gone, with minimal sets of those."""
        if moves_max < 1:
            return
        sizes = range(1, moves_max + 1)
        candidates = [(name, units) for name in self._nodes() if (units := self._movable(name))]
        candidates = [(name, units) for name, units in candidates if self._could_take(goal, name, units)]
        for size in sizes:
            for name, units in candidates:
                for chosen in combinations(units, size) if size <= len(units) else ():
                    if sum(len(unit.pods) for unit in chosen) > moves_max:
                        continue
                    yield from self._after(goal, name, chosen)

    def _after(
        self, goal: Goal, name: str, units: tuple[MoveUnit, ...]
    ) -> Iterator[tuple[tuple[MoveUnit, ...], list[Goal]]]:
        if len(units) > 1 and any(self._fits_without(goal, name, part) for part in combinations(units, len(units) - 1)):
            return
        mark = self._relocation.mark()
        try:
            evicted = self._evict(units)
            for _ in self._try(goal, name):
                yield units, evicted
        finally:
            for unit in units:
                self.moved.pop(id(unit), None)
            self._relocation.back_to(mark)

    def _try(self, goal: Goal, node: str = "") -> Iterator[ReachedGoal]:
        mark = self._relocation.mark()
        placed = self._relocation.place(goal.pod, node)
        if placed is None:
            return
        reached = ReachedGoal(goal, placed)
        self.reached.append(reached)
        try:
            yield reached
        finally:
            self.reached.pop()
            self._relocation.back_to(mark)

    def _evict(self, units: Iterable[MoveUnit]) -> list[Goal]:
        evicted: list[Goal] = []
        for unit in units:
            self.moved[id(unit)] = unit
            evicted += (Goal(pod, unit) for pod in self._relocation.evict(unit.pods))
        return evicted

    def _fits_without(self, goal: Goal, name: str, units: Iterable[MoveUnit]) -> bool:
        mark = self._relocation.mark()
        try:
            for unit in units:
                self._relocation.evict(unit.pods)
            return self._relocation.place(goal.pod, name) is not None
        finally:
            self._relocation.back_to(mark)

    def _could_take(self, goal: Goal, name: str, units: Sequence[MoveUnit]) -> bool:
        """True if the pod would fit without all pods that can be moved: nothing less helps otherwise."""
        return self._fits_without(goal, name, units)

    def _movable(self, name: str) -> list[MoveUnit]:
        return [unit for unit in self._by_node.get(name, ()) if id(unit) not in self.moved]

    def _nodes(self) -> list[str]:
        return sorted(self._by_node)

    # --- Evictions without a pod that needs the place -----------------------------------------------------------------------

    def emptied(
        self, units: Sequence[MoveUnit], moves_max: int, block: Callable[[], None], *, simply: bool = False
    ) -> Iterator[int]:
        """Every way to place the pods of the units elsewhere, as the number of moves that are left.

        `block` keeps them from what they leave. `simply`: only where the scheduler would place them, and nothing else moves.
        """
        left = moves_max - sum(len(unit.pods) for unit in units)
        if left < 0:
            return
        mark = self._relocation.mark()
        try:
            goals = tuple(self._evict(units))
            block()
            if simply:
                yield from self._chosen(goals, left)
                return
            yield from self.placings(goals, left)
            if len(goals) > 1:
                # Which device of a node a pod gets depends on those before it.
                yield from self.placings(goals[::-1], left)
        finally:
            for unit in units:
                self.moved.pop(id(unit), None)
            self._relocation.back_to(mark)
