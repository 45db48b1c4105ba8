"""The search for the fewest moves after which pods have a place.

It works backwards: a pod that fits nowhere gets a node from which other pods are evicted, and those then need a place themselves,
elsewhere or beside it. Sets of evicted pods are minimal; a pod is moved once at most. Whether a pod fits is the scheduler's
decision, on the state in which everything else of the plan has happened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, islice, permutations
from typing import Final

from msgspec.structs import replace

from dralloc.answers.movable_pods import HOLD_KEY, MoveUnit, PlaceHolds, Relocation, devices_before, devices_of
from dralloc.answers.placements import PodPlacement
from dralloc.devices.identity import DeviceId
from dralloc.kube.pod_v1 import Pod, Toleration
from dralloc.scheduler.decide.node_verdicts import Fits
from dralloc.scheduler.state.placed_pods import pod_key


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


# --- Move proof -----------------------------------------------------------------------------------------------------
# Moves in an order in which each is possible, and what keeps the places meanwhile.
#
# A pod is evicted when its new place is free, so that it never waits for the next move. What the plan needs is
# held: other pods, and the evicted pod itself, are kept from the nodes and devices by taints. The scheduler chooses
# the new place; where it would choose one that spoils the plan, that place is held, too.


ORDERS_MAX: Final = 120
# For one move.
EXTRA_HOLDS_MAX: Final = 64


@dataclass(frozen=True, slots=True)
class MovedPod:
    """A pod that is evicted, where the scheduler places it again, and the devices that it leaves and gets."""

    pod: Pod
    node: str
    before: frozenset[DeviceId]
    after: frozenset[DeviceId]


@dataclass(frozen=True, slots=True)
class PlannedMove:
    """The pods of a unit move together. The holds are in place before they are evicted."""

    pods: tuple[MovedPod, ...]
    holds: PlaceHolds


@dataclass(frozen=True, slots=True)
class ProvenMoves:
    moves: tuple[PlannedMove, ...]
    # The pods that a place was made for.
    placed: tuple[PodPlacement, ...]


class MoveProof:
    """`accepts` is false for a new place that spoils the plan; `is_reached` says whether the moves did what they are for."""

    def __init__(
        self,
        relocation: Relocation,
        accepts: Callable[[PodPlacement], bool] = lambda _: True,
        is_reached: Callable[[], bool] = lambda: True,
    ) -> None:
        self._relocation = relocation
        self._accepts = accepts
        self._is_reached = is_reached

    def prove(self, reached: Sequence[ReachedGoal], keep: Iterable[DeviceId] = ()) -> ProvenMoves | None:
        """The moves in an order that works, from the state before all of them; None if there is none.

        `keep` are devices to hold from the start.
        """
        units = list({id(each.goal.unit): each.goal.unit for each in reached if each.goal.unit is not None}.values())
        wanted = [each for each in reached if each.goal.unit is None]
        planned = {pod_key(each.goal.pod): each.placed for each in reached if each.goal.unit is not None}
        for holds in _ways_to_hold(wanted, planned.values(), frozenset(keep)):
            for order in islice(permutations(reversed(units)), ORDERS_MAX):
                mark = self._relocation.mark()
                self._relocation.hold(holds)
                found = next(self._follow(order, planned, holds, [each.goal.pod for each in wanted]), None)
                self._relocation.back_to(mark)
                if found is not None:
                    return ProvenMoves(tuple(found[0]), tuple(found[1]))
        return None

    def _follow(
        self,
        units: Sequence[MoveUnit],
        planned: dict[tuple[str, str], PodPlacement],
        holds: PlaceHolds,
        wanted: list[Pod],
    ) -> Iterator[tuple[list[PlannedMove], list[PodPlacement]]]:
        if not units:
            placed = self._place_wanted(wanted, holds)
            if placed is not None and self._is_reached():
                yield [], placed
            return
        unit, mark = units[0], self._relocation.mark()
        extra = PlaceHolds()
        for _ in range(EXTRA_HOLDS_MAX):
            self._relocation.hold(extra)
            placed = self._move(unit)
            if placed is None:
                break
            if all(map(self._accepts, placed)):
                self._relocation.release(extra)
                for moves, found in self._follow(units[1:], planned, holds, wanted):
                    yield [PlannedMove(_moved(self._relocation, unit, placed), holds | extra), *moves], found
            self._relocation.back_to(mark)
            more = self._better_held(placed, planned, holds | extra)
            if more is None:
                break
            extra = extra | more
        self._relocation.back_to(mark)

    def _move(self, unit: MoveUnit) -> list[PodPlacement] | None:
        placed: list[PodPlacement] = []
        for pod in self._relocation.evict(unit.pods):
            found = self._relocation.place(pod)
            if found is None:
                return None
            placed.append(found)
        return placed

    def _better_held(
        self, placed: Iterable[PodPlacement], planned: dict[tuple[str, str], PodPlacement], holds: PlaceHolds
    ) -> PlaceHolds | None:
        """What to hold so that the scheduler chooses another place than this one: on the planned node in the end."""
        for each in placed:
            wanted = planned[pod_key(each.pod)]
            if each.node != wanted.node:
                return PlaceHolds(nodes=frozenset({each.node}))
            others = devices_of(each) - devices_of(wanted) or devices_of(each)
            if others and not others <= holds.devices:
                return PlaceHolds(devices=others - holds.devices)
        return None

    def _place_wanted(self, wanted: Iterable[Pod], holds: PlaceHolds) -> list[PodPlacement] | None:
        """The pods that the place was made for: they tolerate the holds of nodes, and those of devices end."""
        self._relocation.release(PlaceHolds(devices=holds.devices))
        placed: list[PodPlacement] = []
        for pod in wanted:
            found = self._relocation.place(tolerating(pod))
            if found is None:
                return None
            placed.append(found)
        return placed


def _ways_to_hold(
    wanted: Sequence[ReachedGoal], planned: Iterable[PodPlacement], keep: frozenset[DeviceId]
) -> Iterator[PlaceHolds]:
    """What to hold all the time: the nodes of the wanted pods; on nodes that other pods move to, only devices, or nothing."""
    entered = {placed.node for placed in planned}
    nodes = frozenset(each.placed.node for each in wanted) - entered
    devices = frozenset(device for each in wanted if each.placed.node in entered for device in devices_of(each.placed))
    yield PlaceHolds(nodes, devices | keep)
    if devices:
        yield PlaceHolds(nodes, keep)


def tolerating(pod: Pod) -> Pod:
    """The pod with a toleration for nodes that are held for it."""
    toleration = Toleration(key=HOLD_KEY, operator="Exists")
    return replace(pod, spec=replace(pod.spec, tolerations=(*pod.spec.tolerations, toleration)))


def _moved(relocation: Relocation, unit: MoveUnit, placed: Sequence[PodPlacement]) -> tuple[MovedPod, ...]:
    stored = relocation.engine.objects
    return tuple(
        MovedPod(pod, found.node, devices_before(stored, pod), devices_of(found))
        for pod, found in zip(unit.pods, placed, strict=True)
    )
