"""The search for a gang whose members depend on the order in which they are placed: by rules about other pods, or because they
want devices that others use already.

Members are placed one after the other. After each one, the claims of all members placed so far must get devices together
(`allocate_jointly`), so that no choice of devices is fixed too early. States that were explored are remembered.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from dralloc.devices.allocator.features import Features
from dralloc.devices.allocator.joint_allocation import JointNodes, JointProblem, allocate_jointly
from dralloc.devices.allocator.outcome import Allocated, BudgetExhausted, ClaimAllocation
from dralloc.devices.allocator.requests import compile_demand
from dralloc.devices.allocator.solver import StepBudget
from dralloc.devices.identity import ClaimId
from dralloc.scheduler.contract import ClusterView
from dralloc.scheduler.decide.gang_problem import Gang, GangMember, UnitKind
from dralloc.scheduler.decide.gang_rooms import UnitRoom, UnitRooms
from dralloc.scheduler.decide.placement_rules import PlacementRules
from dralloc.scheduler.decide.pod_volumes import VolumeObstacle, volumes_of
from dralloc.scheduler.state.node_state import NodeState
from dralloc.scheduler.state.placed_pods import pod_key
from dralloc.scheduler.state.volume_state import has_volumes

# A member by its index, and the number of its room.
Step = tuple[int, int]


@dataclass(slots=True)
class _State:
    """Members placed so far, with what is left to try."""

    steps: tuple[Step, ...]
    options: Iterator[Step] = field(default_factory=lambda: iter(()))


class GangWalk:
    def __init__(
        self, gang: Gang, kinds: Sequence[UnitKind], rooms: UnitRooms, view: ClusterView, features: Features
    ) -> None:
        self._gang = gang
        self._kinds = kinds
        self._kind_of = {unit[0]: number for number, kind in enumerate(kinds) for unit in kind.units}
        self._rooms = rooms
        self._view = view
        self._features = features
        self._moves_rules = gang.moves_rules
        demands = compile_demand(gang.claims.values(), view.classes, features)
        self._order_matters = self._moves_rules or demands.wants_used_devices
        self._wants_used_devices = demands.wants_used_devices

    def search(self, nodes: Sequence[UnitRoom], budget: StepBudget) -> tuple[Step, ...] | None:
        """The members with the numbers of their rooms, in the order of their placement; None if there is no choice."""
        explored: set[object] = set()
        states = [_State((), self._options((), nodes))]
        try:
            while states:
                self._rooms.steps.take()
                step = next(states[-1].options, None)
                if step is None:
                    self._leave(states.pop().steps)
                    continue
                steps = (*states[-1].steps, step)
                key = self._key(steps)
                if key in explored:
                    continue
                explored.add(key)
                if not self._fits(steps, nodes) or self.allocations(steps, nodes, budget) is None:
                    continue
                if len(steps) == self._gang.needed:
                    return steps
                self._enter(step, nodes)
                states.append(_State(steps, self._options(steps, nodes)))
            return None
        finally:
            for state in reversed(states):
                self._leave(state.steps)

    # --- Steps ------------------------------------------------------------------------------------------------------

    def _options(self, steps: tuple[Step, ...], nodes: Sequence[UnitRoom]) -> Iterator[Step]:
        """The next member and its room. Equal members and equal rooms that have no member yet are tried once."""
        placed = {member for member, _ in steps}
        used = {number for _, number in steps}
        last = steps[-1] if steps else None
        for kind_number, kind in enumerate(self._kinds):
            if last is not None and not self._order_matters and kind_number < self._kind_of[last[0]]:
                continue
            member = next((unit[0] for unit in kind.units if unit[0] not in placed), None)
            if member is None:
                continue
            # Equal members take rooms in ascending order.
            is_same = last is not None and self._kind_of[last[0]] == kind_number and not self._order_matters
            seen: set[object] = set()
            for number, room in enumerate(nodes):
                if is_same and last is not None and number < last[1]:
                    continue
                if not room.allowed[kind_number]:
                    continue
                if number not in used and not self._moves_rules:
                    if room.key in seen:
                        continue
                    seen.add(room.key)
                yield member, number

    def _key(self, steps: tuple[Step, ...]) -> object:
        """Equal for states from which the same can be reached."""
        kinds = [(self._kind_of[member], number) for member, number in steps]
        if self._wants_used_devices:
            return tuple(kinds)
        return tuple(sorted(kinds)) if self._moves_rules else (tuple(sorted(kinds)), kinds[-1])

    def _fits(self, steps: tuple[Step, ...], nodes: Sequence[UnitRoom]) -> bool:
        """True if the node of the last member has space for its members, and the rules allow the last one."""
        member, number = steps[-1]
        counts = [0] * len(self._kinds)
        for other, at in steps:
            if at == number:
                counts[self._kind_of[other]] += 1
        node = nodes[number].node
        if not self._rooms.has_space(node, tuple(counts)):
            return False
        if not self._moves_rules:
            return True
        rules = rules_of(self._gang.members[member], self._view)
        return rules is None or (not isinstance(rules, VolumeObstacle) and rules.misfit(node) is None)

    # --- Devices ----------------------------------------------------------------------------------------------------

    def allocations(
        self, steps: tuple[Step, ...], nodes: Sequence[UnitRoom], budget: StepBudget
    ) -> dict[ClaimId, ClaimAllocation] | None:
        """What the claims of the placed members get together; None if there is no choice of devices."""
        users: dict[ClaimId, list[NodeState]] = {}
        for member, number in steps:
            for claim_id in self._gang.members[member].claims.unallocated_ids:
                users.setdefault(claim_id, []).append(nodes[number].node)
        if not users:
            return {}
        demand = compile_demand([self._gang.claims[each] for each in users], self._view.classes, self._features)
        places = tuple(tuple(dict.fromkeys(node.name for node in found)) for found in users.values())
        self._rooms.steps.take(len(places))
        joint = JointNodes(
            demand, (node.offer.place for found in users.values() for node in found), self._view.snapshot
        )
        outcome = allocate_jointly(JointProblem(joint, places, budget))
        if isinstance(outcome, BudgetExhausted):
            self._rooms.steps.is_unsure = True
        return dict(zip(users, outcome.claims, strict=True)) if isinstance(outcome, Allocated) else None

    # --- Rules about other pods -------------------------------------------------------------------------------------

    def _enter(self, step: Step, nodes: Sequence[UnitRoom]) -> None:
        if self._moves_rules:
            enter(self._gang.members[step[0]], nodes[step[1]].node, self._view)

    def _leave(self, steps: tuple[Step, ...]) -> None:
        if self._moves_rules and steps:
            leave(self._gang.members[steps[-1][0]], self._view)


def rules_of(member: GangMember, view: ClusterView) -> PlacementRules | VolumeObstacle | None:
    """The member's rules now."""
    volumes = volumes_of(member.pod, view.volumes) if has_volumes(member.pod) else None
    if isinstance(volumes, VolumeObstacle):
        return volumes
    return PlacementRules.of(member.pod, member.requirements, volumes, view)


def enter(member: GangMember, node: NodeState, view: ClusterView) -> None:
    """Lets the rules of other members see the member on the node."""
    pod = member.pod
    rules = rules_of(member, view)
    plan = rules.volume_plan(node) if isinstance(rules, PlacementRules) else None
    view.pod_topology.put(pod, node.name)
    view.volumes.put(pod, node.name)
    if plan is not None:
        view.volumes.assume(pod, node.name, plan)


def leave(member: GangMember, view: ClusterView) -> None:
    key = pod_key(member.pod)
    view.pod_topology.remove(key)
    view.volumes.forget(member.pod.metadata.uid)
    view.volumes.remove(key)
