"""Which units of a gang fit together on one node: its resources, host ports and devices.

Nodes on which the same numbers of units fit are of one class. Devices are searched once for each class and combination, by
the allocator itself, with the claims of all units as one demand.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from dralloc.devices.allocator.allocate import AllocationProblem, allocate
from dralloc.devices.allocator.features import Features
from dralloc.devices.allocator.node_equivalence import NodeEquivalence
from dralloc.devices.allocator.outcome import Allocated, BudgetExhausted, ClaimAllocation
from dralloc.devices.allocator.requests import Demand, compile_demand
from dralloc.devices.allocator.solver import StepBudget
from dralloc.devices.allocator.supply import Supply
from dralloc.kube.codec import encode
from dralloc.primitives.work_allowance import check_work, work_done
from dralloc.scheduler.contract import ClusterView
from dralloc.scheduler.decide.gang_problem import UnitKind
from dralloc.scheduler.state.node_state import NodeState
from dralloc.scheduler.state.pod_resources import PortTable

# In units of `work_allowance`.
WORK_OF_STEP: Final = 30

# The number of units of each kind.
Counts = tuple[int, ...]


class GangBudgetExhausted(Exception):
    """The steps that a gang's search may take are used up."""


class GangSteps:
    """What a search has spent. A search for devices costs one step for each of its claims."""

    def __init__(self, steps_max: int) -> None:
        self.used = 0
        self._steps_max = steps_max
        # True once a search for devices gave no answer within its own budget.
        self.is_unsure = False

    def take(self, count: int = 1) -> None:
        check_work()
        work_done(WORK_OF_STEP * count)
        self.used += count
        if self.used > self._steps_max:
            raise GangBudgetExhausted

    def within(self, limit: int) -> bool:
        return self.used < limit


@dataclass(frozen=True, slots=True, eq=False)
class UnitRoom:
    """A node for the units of a gang. Nodes with an equal `key` take the same combinations of units."""

    node: NodeState
    allowed: tuple[bool, ...]
    devices: Hashable
    key: Hashable
    # How many devices the node has for the gang; None if some can be shared.
    devices_max: int | None = None


class UnitRooms:
    """Answers for one gang and one view."""

    def __init__(
        self, kinds: Sequence[UnitKind], view: ClusterView, features: Features, steps: GangSteps, budget: StepBudget
    ) -> None:
        self.kinds = kinds
        self.steps = steps
        self._view = view
        self._features = features
        self._budget = budget
        self._names = sorted({name for kind in kinds for name in kind.amounts})
        self._has_ports = any(kind.ports for kind in kinds)
        self._demands: dict[Counts, Demand] = {}
        self._device_fits: dict[tuple[Hashable, Counts], bool] = {}
        self._fitting: dict[Hashable, list[Counts]] = {}
        self._failing: dict[Hashable, list[Counts]] = {}
        self.has_devices = any(kind.claims for kind in kinds)
        self._first_alike = _first_alike(kinds)
        self._most_devices: dict[Hashable, int | None] = {}
        self._least_devices = [self._least(kind) for kind in kinds]

    def _least(self, kind: UnitKind) -> int:
        """The devices that a unit takes at least. Admin access takes none."""
        demand = compile_demand(kind.claims, self._view.classes, self._features)
        return sum(
            min((0 if each.is_admin else 1 if each.is_aggregated else each.count) for each in request.alternatives)
            for request in demand.requests
            if request.alternatives
        )

    def needs_of_units(self) -> Iterator[Counts]:
        """What a unit of each kind takes at least: of devices, then of each resource."""
        yield tuple(self._least_devices)
        for name in self._names:
            yield tuple(kind.amounts.get(name, 0) for kind in self.kinds)

    def rooms(self, nodes: Sequence[NodeState]) -> tuple[UnitRoom, ...]:
        """The nodes that may take a unit."""
        one_of_each = self._demand((1,) * len(self.kinds))
        equivalence = NodeEquivalence(one_of_each, self._view.snapshot) if self.has_devices else None
        rooms: list[UnitRoom] = []
        for node in nodes:
            allowed = tuple(kind.may_use(node) for kind in self.kinds)
            if any(allowed):
                devices = equivalence.key(node.offer.place) if equivalence is not None else None
                free = tuple(node.free.get(name, 0) for name in self._names)
                ports = node.load.ports if self._has_ports else ()
                devices_max = self._devices_max(node, one_of_each, devices)
                rooms.append(UnitRoom(node, allowed, devices, (allowed, devices, free, ports), devices_max))
        return tuple(rooms)

    def _devices_max(self, node: NodeState, demand: Demand, key: Hashable) -> int | None:
        if not self.has_devices:
            return None
        if key not in self._most_devices:
            snapshot = self._view.snapshot
            view = snapshot.view(node.offer.place, self._features.visibility)
            supply = Supply(snapshot, view, demand)
            self._most_devices[key] = None if view.fault is not None else _count_devices(supply, demand)
        return self._most_devices[key]

    def fits(self, room: UnitRoom, counts: Counts) -> bool:
        self.steps.take()
        if any(count and not allowed for count, allowed in zip(counts, room.allowed, strict=True)):
            return False
        return self.has_space(room.node, counts) and self._has_devices_for(room, counts)

    def room_left(self, room: UnitRoom, counts: Counts, kind: int, cap: int) -> int:
        """At most so many units of the kind fit beside the others, by resources and by the number of devices."""
        if not room.allowed[kind]:
            return 0
        amounts = self.kinds[kind].amounts
        for name in self._names:
            if each := amounts.get(name, 0):
                left = room.node.free.get(name, 0) - self._sum_of(name, counts)
                cap = min(cap, max(left, 0) // each)
        if room.devices_max is not None and (least := self._least_devices[kind]):
            left = room.devices_max - sum(map(int.__mul__, counts, self._least_devices))
            cap = min(cap, max(left, 0) // least)
        return cap

    def _sum_of(self, name: str, counts: Counts) -> int:
        work_done(len(counts))
        return sum(count * kind.amounts.get(name, 0) for count, kind in zip(counts, self.kinds, strict=True) if count)

    def has_space(self, node: NodeState, counts: Counts) -> bool:
        free = node.free
        for name in self._names:
            wanted = self._sum_of(name, counts)
            if wanted > free.get(name, 0) and wanted:
                return False
        if not self._has_ports:
            return True
        ports = PortTable(node.load.ports)
        for count, kind in zip(counts, self.kinds, strict=True):
            for port in kind.ports * count:
                if ports.clashes_with(port):
                    return False
                ports.add(port)
        return True

    def _has_devices_for(self, room: UnitRoom, counts: Counts) -> bool:
        if not any(count and kind.claims for count, kind in zip(counts, self.kinds, strict=True)):
            return True
        if room.devices_max is not None:
            least = sum(count * each for count, each in zip(counts, self._least_devices, strict=True))
            if least > room.devices_max:
                return False
        counts = self._by_devices(counts)
        key = (room.devices, counts)
        known = self._device_fits.get(key)
        if known is None:
            known = self._inferred(room.devices, counts)
        if known is None:
            demand = self._demand(counts)
            self.steps.take(len(demand.claims))
            problem = AllocationProblem(demand, room.node.offer.place, self._view.snapshot, self._budget)
            outcome = allocate(problem)
            if isinstance(outcome, BudgetExhausted):
                self.steps.is_unsure = True
            known = isinstance(outcome, Allocated)
            (self._fitting if known else self._failing).setdefault(room.devices, []).append(counts)
        self._device_fits[key] = known
        return known

    def _by_devices(self, counts: Counts) -> Counts:
        """As many units that ask for the same devices, all of the first kind that does."""
        merged = [0] * len(counts)
        for kind, count in zip(self._first_alike, counts, strict=True):
            merged[kind] += count
        return tuple(merged)

    def _inferred(self, devices: Hashable, counts: Counts) -> bool | None:
        """What follows from answers about these devices: fewer units than fit do fit, more than do not fit do not."""
        if any(all(map(int.__le__, counts, larger)) for larger in self._fitting.get(devices, ())):
            return True
        if any(all(map(int.__ge__, counts, smaller)) for smaller in self._failing.get(devices, ())):
            return False
        return None

    def allocations(self, room: UnitRoom, counts: Counts) -> tuple[ClaimAllocation, ...]:
        """What the claims of units that fit get: kind after kind, unit after unit, claim after claim."""
        demand = self._demand(counts)
        if not demand.claims:
            return ()
        outcome = allocate(AllocationProblem(demand, room.node.offer.place, self._view.snapshot, self._budget))
        assert isinstance(outcome, Allocated), f"{room.node.name} is of a class that fits"
        return outcome.claims

    def _demand(self, counts: Counts) -> Demand:
        demand = self._demands.get(counts)
        if demand is None:
            claims = [claim for count, kind in zip(counts, self.kinds, strict=True) for claim in kind.claims * count]
            demand = self._demands[counts] = compile_demand(claims, self._view.classes, self._features)
        return demand


def _first_alike(kinds: Sequence[UnitKind]) -> tuple[int, ...]:
    """For each kind the first one whose units ask for the same devices; they may differ in what else they need."""
    first: dict[tuple[bytes, ...], int] = {}
    return tuple(
        first.setdefault(tuple(encode(claim.spec.devices) for claim in kind.claims), number)
        for number, kind in enumerate(kinds)
    )


def _count_devices(supply: Supply, demand: Demand) -> int | None:
    """The number of devices that a request may have; None if one of them can be shared."""
    total = 0
    for strip in supply.strips:
        usable = 0
        for alternative in demand.alternatives:
            usable |= supply.stock(alternative, strip).usable
        if supply.features.consumable_capacity and usable & strip.slice.shareable:
            return None
        total += usable.bit_count()
    return total
