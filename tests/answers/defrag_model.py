"""A small model of moves for comparison: whole numbers instead of objects, and every sequence of moves instead of a search.

It shares no code with the planner. A device has `UNITS` of memory; a pod takes cpu of its node, and units of one or several devices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations
from random import Random

UNITS = 4


@dataclass(frozen=True)
class ModelPod:
    name: str
    cpu: int
    units: int
    count: int


@dataclass(frozen=True)
class Spot:
    """Where a pod is: its node and the numbers of its devices."""

    node: int
    devices: tuple[int, ...]


@dataclass(frozen=True)
class Model:
    cpus: tuple[int, ...]
    # By node: the number of devices.
    devices: tuple[int, ...]
    pods: tuple[ModelPod, ...]
    spots: tuple[Spot, ...]

    @classmethod
    def random(cls, random: Random) -> Model:
        nodes = random.randint(2, 3)
        made = cls(
            tuple(random.randint(3, 6) for _ in range(nodes)), tuple(random.randint(1, 2) for _ in range(nodes)), (), ()
        )
        for number in range(random.randint(2, 6)):
            pod = random_pod(random, f"pod-{number}")
            spots = list(made.spots_for(pod))
            if spots:
                made = Model(made.cpus, made.devices, (*made.pods, pod), (*made.spots, random.choice(spots)))
        return made

    def spots_for(self, pod: ModelPod, without: int = -1) -> Iterator[Spot]:
        """Every place that the pod could have, as if pod number `without` were gone."""
        others = [(p, s) for number, (p, s) in enumerate(zip(self.pods, self.spots, strict=True)) if number != without]
        for node, cpu in enumerate(self.cpus):
            here = [(p, s) for p, s in others if s.node == node]
            if sum(p.cpu for p, _ in here) + pod.cpu > cpu:
                continue
            free = [UNITS - sum(p.units for p, s in here if d in s.devices) for d in range(self.devices[node])]
            able = [number for number, left in enumerate(free) if left >= pod.units]
            for devices in combinations(able, pod.count):
                yield Spot(node, devices)

    def after(self, number: int, spot: Spot) -> Model:
        spots = (*self.spots[:number], spot, *self.spots[number + 1 :])
        return Model(self.cpus, self.devices, self.pods, spots)

    def free_devices(self) -> int:
        used = {(spot.node, device) for spot in self.spots for device in spot.devices}
        return sum(self.devices) - len(used)


def random_pod(random: Random, name: str) -> ModelPod:
    return ModelPod(name, random.randint(0, 3), random.randint(1, UNITS), random.choice((1, 1, 1, 2)))


def reachable(model: Model, moves_max: int) -> Iterator[tuple[int, Model]]:
    """Every state that at most so many moves lead to, with the number of moves; no pod is moved twice."""
    layer = {(model.spots, frozenset[int]()): model}
    for moves in range(moves_max + 1):
        following: dict[tuple[tuple[Spot, ...], frozenset[int]], Model] = {}
        for (_, moved), state in layer.items():
            yield moves, state
            for number, pod in enumerate(state.pods):
                if number in moved:
                    continue
                for spot in state.spots_for(pod, without=number):
                    if spot != state.spots[number]:
                        made = state.after(number, spot)
                        following[made.spots, moved | {number}] = made
        layer = following


def fewest_moves(model: Model, moves_max: int, is_reached: Callable[[Model], bool]) -> int | None:
    return next((moves for moves, state in reachable(model, moves_max) if is_reached(state)), None)


def most_freed(model: Model, moves_max: int) -> tuple[int, int]:
    """The most devices that moves free, and the fewest moves that do."""
    best = (0, 0)
    for moves, state in reachable(model, moves_max):
        best = max(best, (state.free_devices() - model.free_devices(), -moves))
    return best[0], -best[1]
