"""Moves in an order in which each is possible, and what keeps the places meanwhile.

A pod is evicted when its new place is free, so that it never waits for the next move. What the plan needs is held: other pods, and
the evicted pod itself, are kept from the nodes and devices by taints. The scheduler chooses the new place; where it would choose one that
spoils the plan, that place is held, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, permutations
from typing import Final

from msgspec.structs import replace

from dralloc.api.pod_v1 import Pod, Toleration
from dralloc.devices.identity import DeviceId
from dralloc.scheduler.state.placed_pods import pod_key
from dralloc.whatif.movable_pods import MoveUnit
from dralloc.whatif.move_search import ReachedGoal
from dralloc.whatif.placements import PodPlacement
from dralloc.whatif.relocation import HOLD_KEY, PlaceHolds, Relocation, devices_before, devices_of

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
