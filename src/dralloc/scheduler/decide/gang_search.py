"""Whether the members of a gang fit together, and where: nodes and devices of all members are one search.

The answer is a value: the places of the members, a proof that there are none, or that the budget is used up. A search reads
the view and writes nothing, so a what-if asks it with a view of its own: "does this gang fit if these pods are gone".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from dralloc.allocator.features import Features
from dralloc.allocator.joint_allocation import is_coupled
from dralloc.allocator.outcome import ClaimAllocation
from dralloc.allocator.requests import compile_demand
from dralloc.allocator.solver import StepBudget
from dralloc.devices.identity import ClaimId
from dralloc.scheduler.contract import ClusterView
from dralloc.scheduler.decide.gang_allotment import Allotment, GangAllotment, Shortfall, TooManyCombinations
from dralloc.scheduler.decide.gang_problem import Gang, UnitKind, claims_of_unit, kinds_of_members, kinds_of_units
from dralloc.scheduler.decide.gang_rooms import GangBudgetExhausted, GangSteps, UnitRoom, UnitRooms
from dralloc.scheduler.decide.gang_walk import GangWalk
from dralloc.scheduler.state.node_state import NodeState

DEVICES_BUDGET: Final = StepBudget(steps_max=5_000)


@dataclass(frozen=True, slots=True)
class GangBudget:
    """Limits on the steps of a gang's search: checks of a node, and claims for which devices are searched."""

    steps_max: int = 20_000
    # Of one search for the devices of members that are placed.
    devices: StepBudget = DEVICES_BUDGET


DEFAULT_GANG_BUDGET: Final = GangBudget()


@dataclass(frozen=True, slots=True)
class GangPlaces:
    """The members that get nodes, by index, in the order in which they are to be placed; and what their claims get."""

    nodes: Mapping[int, str]
    allocations: Mapping[ClaimId, ClaimAllocation] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GangImpossible:
    """Proved: the members do not fit together. At most `most` of the `needed` do, by this proof; `kind` names the member
    (by index) of which too few fit, if that alone is the reason."""

    needed: int
    most: int
    kind: int | None = None


@dataclass(frozen=True, slots=True)
class GangUndecided:
    """Neither found nor refuted within the budget."""

    steps: int


GangOutcome = GangPlaces | GangImpossible | GangUndecided


def search_gang(
    gang: Gang,
    view: ClusterView,
    features: Features,
    *,
    nodes: Sequence[NodeState] | None = None,
    budget: GangBudget = DEFAULT_GANG_BUDGET,
) -> GangOutcome:
    """Places the needed members of the gang on the nodes, or on any node of the view."""
    steps = GangSteps(budget.steps_max)
    search = _GangSearch(gang, view, features, budget, steps)
    try:
        outcome = search.run(list(view.nodes.values()) if nodes is None else nodes)
    except GangBudgetExhausted:
        return GangUndecided(steps.used)
    if isinstance(outcome, GangImpossible) and steps.is_unsure:
        return GangUndecided(steps.used)
    return outcome


class _GangSearch:
    def __init__(self, gang: Gang, view: ClusterView, features: Features, budget: GangBudget, steps: GangSteps) -> None:
        self._gang = gang
        self._view = view
        self._features = features
        self._budget = budget
        self._steps = steps

    def run(self, nodes: Sequence[NodeState]) -> GangOutcome:
        gang = self._gang
        if gang.needed <= 0:
            return GangPlaces({})
        if len(gang.members) < gang.needed:
            return GangImpossible(gang.needed, len(gang.members))
        if self._is_independent(nodes):
            try:
                return self._pack(nodes)
            except TooManyCombinations:
                pass
        return self._walk(nodes)

    def _is_independent(self, nodes: Sequence[NodeState]) -> bool:
        """True if what a node takes depends on nothing but the members on it, and fewer members always fit."""
        gang = self._gang
        if gang.moves_rules or (gang.shares_claims and gang.needed < len(gang.members)):
            return False
        demand = compile_demand(gang.claims.values(), self._view.classes, self._features)
        if not demand.claims:
            return True
        if demand.wants_used_devices:
            return False
        visibility = self._features.visibility
        views = [self._view.snapshot.view(node.offer.place, visibility) for node in nodes]
        seen: dict[object, int] = {}
        for index, each in enumerate(views):
            for pool in each.pools:
                other = seen.setdefault(pool.pool_id, index)
                if other != index and is_coupled(views[other], each):
                    return False
        return True

    def _rooms(self, kinds: tuple[UnitKind, ...]) -> UnitRooms:
        return UnitRooms(kinds, self._view, self._features, self._steps, self._budget.devices)

    # --- Nodes that do not compete ----------------------------------------------------------------------------------

    def _pack(self, nodes: Sequence[NodeState]) -> GangOutcome:
        kinds = kinds_of_units(self._gang)
        rooms = self._rooms(kinds)
        available = tuple(len(kind.units) for kind in kinds)
        found = GangAllotment(rooms, rooms.rooms(nodes), available, self._gang.needed).search()
        if isinstance(found, Shortfall):
            kind = kinds[found.kind].units[0][0] if found.kind is not None else None
            return GangImpossible(found.wanted, found.most, kind)
        return self._places(kinds, rooms, found)

    def _places(self, kinds: tuple[UnitKind, ...], rooms: UnitRooms, allotment: Allotment) -> GangPlaces:
        waiting = [list(kind.units) for kind in kinds]
        nodes: dict[int, str] = {}
        allocations: dict[ClaimId, ClaimAllocation] = {}
        for room, counts in allotment:
            units = [waiting[kind].pop(0) for kind, count in enumerate(counts) for _ in range(count)]
            nodes.update((member, room.node.name) for unit in units for member in unit)
            claims = [claim_id for unit in units for claim_id in claims_of_unit(self._gang, unit)]
            allocations.update(zip(claims, rooms.allocations(room, counts), strict=True))
        return GangPlaces(dict(sorted(nodes.items())), allocations)

    # --- Members that depend on each other --------------------------------------------------------------------------

    def _walk(self, nodes: Sequence[NodeState]) -> GangOutcome:
        gang = self._gang
        kinds = kinds_of_members(gang)
        rooms = self._rooms(kinds)
        found: tuple[UnitRoom, ...] = rooms.rooms(nodes)
        walk = GangWalk(gang, kinds, rooms, self._view, self._features)
        steps = walk.search(found, self._budget.devices)
        if steps is None:
            return GangImpossible(gang.needed, gang.needed - 1)
        allocations = walk.allocations(steps, found, self._budget.devices)
        assert allocations is not None, "the last step was checked"
        return GangPlaces({member: found[number].node.name for member, number in steps}, allocations)
