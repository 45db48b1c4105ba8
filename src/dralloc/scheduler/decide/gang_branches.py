"""The search for a gang on nodes that compete for devices: branch and bound.

The bound leaves out what makes the problem hard: members that have no node yet may have devices of any node, without regard to cpu
and to where their other devices are. If even that is impossible, the branch is dead. If not, the devices that it found tell where the
members could go; if all of them fit there, that is the answer. Otherwise a member that does not fit is tried on each of its nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from dralloc.devices.allocator.features import Features
from dralloc.devices.allocator.joint_allocation import JointNodes, JointProblem, allocate_jointly
from dralloc.devices.allocator.outcome import Allocated, BudgetExhausted, ClaimAllocation, Impossible, Outcome
from dralloc.devices.allocator.requests import compile_demand
from dralloc.devices.allocator.solver import StepBudget
from dralloc.devices.identity import ClaimId
from dralloc.scheduler.contract import ClusterView
from dralloc.scheduler.decide.gang_problem import Gang, UnitKind
from dralloc.scheduler.decide.gang_rooms import UnitRoom, UnitRooms

# A member by its index, and the number of its room; None if the gang goes without it.
Choice = tuple[int, int | None]
Choices = tuple[Choice, ...]
Found = tuple[dict[int, int], dict[ClaimId, ClaimAllocation]]


@dataclass(frozen=True, slots=True)
class _Bound:
    """What is known of a branch: it is `dead`; or `found`, the end; or `next_kind` is the kind of member to decide about next."""

    is_dead: bool = False
    found: Found | None = None
    next_kind: int = 0


DEAD: Final = _Bound(is_dead=True)


class GangBranches:
    """Members of a kind are equal, and so are rooms with equal keys that no member uses."""

    def __init__(
        self,
        gang: Gang,
        kinds: Sequence[UnitKind],
        rooms: UnitRooms,
        nodes: Sequence[UnitRoom],
        view: ClusterView,
        features: Features,
        budget: StepBudget,
    ) -> None:
        self._gang = gang
        self._kinds = kinds
        self._kind_of = {unit[0]: number for number, kind in enumerate(kinds) for unit in kind.units}
        self._rooms = rooms
        self._nodes = nodes
        self._view = view
        self._features = features
        self._budget = budget
        self._spare = len(gang.members) - gang.needed
        self._names_of: dict[frozenset[int], tuple[str, ...]] = {}
        # Members that the gang goes without need no devices for their claims.
        self._joints: dict[tuple[ClaimId, ...], JointNodes] = {}

    def search(self) -> Found | None:
        """The rooms of members, by their numbers, and what their claims get; None if there is no choice."""
        if not self._nodes or self._is_too_large():
            return None
        explored: set[object] = set()
        branches: list[Iterator[Choices]] = [iter([()])]
        while branches:
            self._rooms.steps.take()
            choices = next(branches[-1], None)
            if choices is None:
                branches.pop()
                continue
            key = tuple(sorted((self._kind_of[member], -1 if room is None else room) for member, room in choices))
            if key in explored:
                continue
            explored.add(key)
            bound = self._bound(choices)
            if bound.found is not None:
                return bound.found
            if not bound.is_dead:
                branches.append(self._children(choices, bound.next_kind))
        return None

    def _is_too_large(self) -> bool:
        """True if the nodes together have less of a resource than all members need."""
        if self._spare:
            return False
        for name in {name for kind in self._kinds for name in kind.amounts}:
            wanted = sum(kind.amounts.get(name, 0) * len(kind.units) for kind in self._kinds)
            if wanted > sum(max(room.node.free.get(name, 0), 0) for room in self._nodes):
                return True
        return False

    # --- Branches ---------------------------------------------------------------------------------------------------

    def _children(self, choices: Choices, kind: int) -> Iterator[Choices]:
        """The next member of the kind in each of its rooms, and without a room if the gang may go without it."""
        decided = {member for member, _ in choices}
        used = {room for _, room in choices if room is not None}
        member = next(unit[0] for unit in self._kinds[kind].units if unit[0] not in decided)
        seen: set[object] = set()
        for number, room in enumerate(self._nodes):
            if not room.allowed[kind] or (number not in used and room.key in seen):
                continue
            if number not in used:
                seen.add(room.key)
            child = (*choices, (member, number))
            if self._has_space(child, number):
                yield child
        if sum(room is None for _, room in choices) < self._spare:
            yield (*choices, (member, None))

    def _has_space(self, choices: Choices, number: int) -> bool:
        counts = [0] * len(self._kinds)
        for member, room in choices:
            if room == number:
                counts[self._kind_of[member]] += 1
        return self._rooms.has_space(self._nodes[number].node, tuple(counts))

    # --- The bound --------------------------------------------------------------------------------------------------

    def _bound(self, choices: Choices) -> _Bound:
        decided = dict(choices)
        waiting = [member for member in range(len(self._gang.members)) if member not in decided]
        rooms = {member: room for member, room in choices if room is not None}
        outcome = self._allocate(rooms, waiting)
        if isinstance(outcome, Allocated):
            return self._completed(choices, waiting, outcome)
        if isinstance(outcome, BudgetExhausted):
            self._rooms.steps.is_unsure = self._rooms.steps.is_unsure or not waiting
        elif not waiting or len(waiting) + len(rooms) == self._gang.needed:
            return DEAD
        elif rooms and not isinstance(self._allocate(rooms, ()), Allocated | BudgetExhausted):
            # The gang may go without members, so only those that have rooms must get devices.
            return DEAD
        return _Bound(next_kind=self._kind_of[waiting[0]]) if waiting else DEAD

    def _completed(self, choices: Choices, waiting: Sequence[int], outcome: Allocated) -> _Bound:
        """Puts each waiting member where its devices are."""
        rooms = {member: room for member, room in choices if room is not None}
        hint = dict(zip(self._claims_of((*rooms, *waiting)), outcome.claims, strict=True))
        decided, homeless = choices, list[int]()
        for member in waiting:
            number = self._room_for(decided, member, hint)
            if number is None:
                homeless.append(member)
            else:
                decided = (*decided, (member, number))
        rooms = {member: room for member, room in decided if room is not None}
        if len(rooms) >= self._gang.needed:
            # Devices may depend on the nodes for which they are allocated.
            exact = self._allocate(rooms, ())
            if isinstance(exact, Allocated):
                return _Bound(found=(rooms, dict(zip(self._claims_of(rooms), exact.claims, strict=True))))
            if isinstance(exact, BudgetExhausted):
                self._rooms.steps.is_unsure = True
        undecided = homeless or waiting
        return _Bound(next_kind=self._kind_of[undecided[0]]) if undecided else DEAD

    def _room_for(self, choices: Choices, member: int, hint: Mapping[ClaimId, ClaimAllocation]) -> int | None:
        kind = self._kind_of[member]
        reached = self._reach(member, hint)
        numbers = range(len(self._nodes)) if reached is None else sorted(map(self._number_of.__getitem__, reached))
        for number in numbers:
            if self._nodes[number].allowed[kind] and self._has_space((*choices, (member, number)), number):
                return number
        return None

    def _reach(self, member: int, hint: Mapping[ClaimId, ClaimAllocation]) -> frozenset[str] | None:
        """The nodes that see all devices of the member's claims; None if it has none."""
        seen_by = self._joint(tuple(self._gang.claims)).nodes_of_devices
        reached: frozenset[str] | None = None
        for claim_id in self._gang.members[member].claims.unallocated_ids:
            for each in hint[claim_id].devices:
                seen = seen_by[each.device]
                reached = seen if reached is None else reached & seen
        return reached

    @cached_property
    def _number_of(self) -> dict[str, int]:
        return {room.node.name: number for number, room in enumerate(self._nodes)}

    # --- Devices ----------------------------------------------------------------------------------------------------

    def _allocate(self, rooms: Mapping[int, int], waiting: Sequence[int]) -> Outcome:
        """Devices for the claims of members with rooms, and for those of waiting members on any of their nodes."""
        claims = self._claims_of((*rooms, *waiting))
        if not claims:
            return Allocated(())
        fixed: dict[ClaimId, list[str]] = {}
        for member, number in rooms.items():
            for claim_id in self._gang.members[member].claims.unallocated_ids:
                fixed.setdefault(claim_id, []).append(self._nodes[number].node.name)
        places: list[tuple[str, ...]] = []
        for claim_id in claims:
            users = [member for member in self._gang.users[claim_id] if member in waiting]
            place = fixed.get(claim_id) or self._allowed(frozenset(self._kind_of[member] for member in users))
            if not place:
                return Impossible()
            places.append(tuple(dict.fromkeys(place)))
        relaxed = frozenset(number for number, claim_id in enumerate(claims) if claim_id not in fixed)
        self._rooms.steps.take(len(claims))
        return allocate_jointly(JointProblem(self._joint(claims), tuple(places), self._budget, relaxed))

    def _claims_of(self, members: Iterable[int]) -> tuple[ClaimId, ...]:
        """The claims without devices of these members, in the order of the gang's claims."""
        used = {claim_id for member in members for claim_id in self._gang.members[member].claims.unallocated_ids}
        return tuple(claim_id for claim_id in self._gang.claims if claim_id in used)

    def _allowed(self, kinds: frozenset[int]) -> Sequence[str]:
        """The nodes that a member of one of these kinds may use."""
        known = self._names_of.get(kinds)
        if known is None:
            known = self._names_of[kinds] = tuple(
                room.node.name for room in self._nodes if any(room.allowed[kind] for kind in kinds)
            )
        return known

    def _joint(self, claims: tuple[ClaimId, ...]) -> JointNodes:
        known = self._joints.get(claims)
        if known is None:
            demand = compile_demand([self._gang.claims[each] for each in claims], self._view.classes, self._features)
            places = (room.node.offer.place for room in self._nodes)
            known = self._joints[claims] = JointNodes(demand, places, self._view.snapshot)
        return known
