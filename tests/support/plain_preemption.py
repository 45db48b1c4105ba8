"""Gangs on a full cluster in their simplest form, and the cheapest pods to evict for them, found by trying every set.

Whether a gang fits without some pods is the answer of the exhaustive `GangSolver`, which shares no code with what it checks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from itertools import chain, combinations
from random import Random

from tests.support.plain_gangs import GangSolver, GangStart, PlainDevice, PlainGang, TooLarge, random_gang

HIGH = 10
RESIDENTS_MAX = 6


@dataclass(frozen=True)
class Resident:
    """A pod with a node and devices of its own: of each, all or some of its memory."""

    name: str
    node: str
    cpu: int
    devices: tuple[tuple[str, int | None], ...]
    priority: int
    # In which second it started.
    started: int | None
    app: str
    # Its group, whose pods are evicted together.
    group: str | None = None


@dataclass(frozen=True)
class PlainPreemption:
    """A gang of priority `HIGH`, the pods in its way, and how many pods of an app may be disrupted."""

    gang: PlainGang
    residents: tuple[Resident, ...]
    budgets: dict[str, int]
    may_preempt: bool = True

    def fits_without(self, gone: Collection[str]) -> bool:
        start = GangStart()
        devices = {device.name: device for device in self.gang.devices}
        for resident in self.residents:
            if resident.name not in gone:
                start.cpu[resident.node] = start.cpu.get(resident.node, 0) + resident.cpu
                for name, memory in resident.devices:
                    start.take(devices[name], memory)
        return GangSolver(self.gang).fits(start)

    def cost(self, gone: Collection[str]) -> tuple[float, ...]:
        """Budgets that are exceeded, the highest priority, the sum, the number, and for how long the first of the highest runs."""
        victims = [each for each in self.residents if each.name in gone]
        exceeded = sum(
            max(sum(each.app == app for each in victims) - allowed, 0) for app, allowed in self.budgets.items()
        )
        highest = max(each.priority for each in victims)
        started = [each.started for each in victims if each.priority == highest and each.started is not None]
        total = sum(each.priority + 2**31 for each in victims)
        return exceeded, highest, total, len(victims), -min(started, default=float("inf"))

    def cheapest(self) -> tuple[float, ...] | None:
        """What the cheapest victims cost; None if no victims help."""
        if not self.may_preempt:
            return None
        units: dict[str, list[str]] = {}
        for each in self.residents:
            if each.priority < HIGH:
                units.setdefault(each.group or each.name, []).append(each.name)
        sets = chain.from_iterable(combinations(units.values(), size) for size in range(1, len(units) + 1))
        gone = [tuple(name for unit in chosen for name in unit) for chosen in sets]
        costs = sorted((self.cost(names), names) for names in gone)
        return next((cost for cost, names in costs if self.fits_without(names)), None)


def random_preemption(seed: int) -> PlainPreemption:
    """Most gangs would fit on an empty cluster."""
    random = Random(seed)
    for _ in range(4):
        gang = _small(random_gang(random.randrange(2**40)))
        if _fits(gang):
            break
    residents = tuple(_residents(random, gang))
    apps = sorted({each.app for each in residents})
    budgets = {app: random.randint(0, 2) for app in apps if random.random() < 0.5}
    return PlainPreemption(gang, residents, budgets, may_preempt=random.random() < 0.95)


def _small(gang: PlainGang) -> PlainGang:
    pods = gang.pods[:4]
    used = {name for pod in pods for name in pod.claims}
    claims = {name: claim for name, claim in gang.claims.items() if name in used}
    return replace(gang, pods=pods, needed=min(gang.needed, len(pods)), claims=claims)


def _fits(gang: PlainGang) -> bool:
    try:
        return GangSolver(gang).fits()
    except TooLarge:
        return False


def _residents(random: Random, gang: PlainGang) -> Iterable[Resident]:
    start = GangStart()
    group_priority = random.randint(0, 3)
    for number in range(random.randint(2, RESIDENTS_MAX)):
        node = random.choice(sorted(gang.nodes))
        free = gang.nodes[node][0] - start.cpu.get(node, 0)
        cpu = random.randint(0, max(min(free, 3), 0))
        held = [_hold(random, device, start, gang) for device in _some(random, gang, node)]
        devices = tuple(each for each in held if each is not None)
        if not cpu and not devices:
            continue
        start.cpu[node] = start.cpu.get(node, 0) + cpu
        group = "whole" if random.random() < 0.25 else None
        # A group has one priority. Some pods are as important as the gang.
        priority = group_priority if group else random.choice((0, 1, 1, 2, 3, HIGH))
        started = random.choice((None, 1, 2, 3))
        yield Resident(f"resident-{number}", node, cpu, devices, priority, started, random.choice("ab"), group)


def _some(random: Random, gang: PlainGang, node: str) -> list[PlainDevice]:
    reached = [device for device in gang.devices if node in device.nodes]
    return random.sample(reached, min(random.choice((0, 1, 1, 2)), len(reached)))


def _hold(random: Random, device: PlainDevice, start: GangStart, gang: PlainGang) -> tuple[str, int | None] | None:
    """Takes the device, or some of its memory, if it is free."""
    left = start.used.get(device.name, device.memory)
    is_new = device.name not in start.used
    if (device.memory is None and not is_new) or (left is not None and left < 1):
        return None
    if device.card is not None and is_new:
        card = (device.pool, device.card)
        if start.cards.get(card, 0) + device.units > gang.cards[card]:
            return None
    memory = random.randint(1, left) if left is not None else None
    start.take(device, memory)
    return device.name, memory
