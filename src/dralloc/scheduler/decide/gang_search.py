"""Whether the members of a gang fit together, and where: nodes and devices of all members are one search.

The answer is a value: the places of the members, a proof that there are none, or that the budget is used up. A search reads
the view and writes nothing, so a what-if asks it with a view of its own: "does this gang fit if these pods are gone".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from dralloc.devices.allocator.features import Features
from dralloc.devices.allocator.joint_allocation import JointNodes, JointProblem, allocate_jointly
from dralloc.devices.allocator.outcome import Allocated, ClaimAllocation
from dralloc.devices.allocator.requests import compile_demand
from dralloc.devices.allocator.solver import StepBudget
from dralloc.devices.identity import ClaimId
from dralloc.scheduler.contract import ClusterView
from dralloc.scheduler.decide.common_claims import coupling_of, without_claims
from dralloc.scheduler.decide.gang_allotment import Allotment, GangAllotment, Shortfall, TooManyCombinations
from dralloc.scheduler.decide.gang_branches import GangBranches
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
        if (packed := self._pack_apart(nodes)) is not None:
            return packed
        demand = compile_demand(gang.claims.values(), self._view.classes, self._features)
        if gang.moves_rules or demand.wants_used_devices or any(each.takes_all for each in demand.alternatives):
            return self._walk(nodes)
        return self._branch(nodes)

    def _pack_apart(self, nodes: Sequence[NodeState]) -> GangOutcome | None:
        """Packs nodes one by one, after claims for devices that all nodes reach; None if that cannot tell."""
        gang = self._gang
        demand = compile_demand(gang.claims.values(), self._view.classes, self._features)
        if gang.moves_rules or demand.wants_used_devices:
            return None
        coupling = coupling_of(gang, self._view, self._features, nodes)
        rest = without_claims(gang, coupling.common) if coupling.common else gang
        # Fewer members always fit, unless a claim that they share is needed by some of them only.
        if coupling.is_coupled or (rest.shares_claims and gang.needed < len(gang.members)):
            return None
        common = self._common(coupling.common, nodes)
        if common is None:
            return None
        try:
            found = self._pack(rest, nodes)
        except TooManyCombinations:
            return None
        return GangPlaces(found.nodes, {**common, **found.allocations}) if isinstance(found, GangPlaces) else found

    def _common(self, claims: Sequence[ClaimId], nodes: Sequence[NodeState]) -> dict[ClaimId, ClaimAllocation] | None:
        """What these claims get of devices that all nodes reach; None if not all of them get some."""
        if not claims:
            return {}
        demand = compile_demand([self._gang.claims[each] for each in claims], self._view.classes, self._features)
        # All nodes reach the same, so a few stand for all. Two, so that no device binds a claim to one of them.
        few = nodes[:2]
        joint = JointNodes(demand, (node.offer.place for node in few), self._view.snapshot)
        self._steps.take(len(claims))
        place = tuple(node.name for node in few)
        outcome = allocate_jointly(JointProblem(joint, (place,) * len(claims), self._budget.devices))
        return dict(zip(claims, outcome.claims, strict=True)) if isinstance(outcome, Allocated) else None

    def _rooms(self, kinds: tuple[UnitKind, ...]) -> UnitRooms:
        return UnitRooms(kinds, self._view, self._features, self._steps, self._budget.devices)

    # --- Nodes that do not compete ----------------------------------------------------------------------------------

    def _pack(self, gang: Gang, nodes: Sequence[NodeState]) -> GangOutcome:
        kinds = kinds_of_units(gang)
        rooms = self._rooms(kinds)
        available = tuple(len(kind.units) for kind in kinds)
        found = GangAllotment(rooms, rooms.rooms(nodes), available, gang.needed).search()
        if isinstance(found, Shortfall):
            kind = kinds[found.kind].units[0][0] if found.kind is not None else None
            return GangImpossible(found.wanted, found.most, kind)
        return self._places(gang, kinds, rooms, found)

    @staticmethod
    def _places(gang: Gang, kinds: tuple[UnitKind, ...], rooms: UnitRooms, allotment: Allotment) -> GangPlaces:
        waiting = [list(kind.units) for kind in kinds]
        nodes: dict[int, str] = {}
        allocations: dict[ClaimId, ClaimAllocation] = {}
        for room, counts in allotment:
            units = [waiting[kind].pop(0) for kind, count in enumerate(counts) for _ in range(count)]
            nodes.update((member, room.node.name) for unit in units for member in unit)
            claims = [claim_id for unit in units for claim_id in claims_of_unit(gang, unit)]
            allocations.update(zip(claims, rooms.allocations(room, counts), strict=True))
        return GangPlaces(dict(sorted(nodes.items())), allocations)

    # --- Members that depend on each other --------------------------------------------------------------------------

    def _branch(self, nodes: Sequence[NodeState]) -> GangOutcome:
        gang = self._gang
        kinds = kinds_of_members(gang)
        rooms = self._rooms(kinds)
        places = rooms.rooms(nodes)
        found = GangBranches(gang, kinds, rooms, places, self._view, self._features, self._budget.devices).search()
        if found is None:
            return GangImpossible(gang.needed, gang.needed - 1)
        numbers, allocations = found
        return GangPlaces({member: places[numbers[member]].node.name for member in sorted(numbers)}, allocations)

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
