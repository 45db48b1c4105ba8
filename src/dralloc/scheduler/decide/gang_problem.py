"""A gang as one problem: which members must get nodes together, and what each kind of member needs.

Members that are equal are of one kind: they ask the same of a node, and for the same devices. A claim without devices that
several members use is allocated once; members that use it are equal only to members that use it, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from dralloc.devices.identity import ClaimId
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import ResourceClaim
from dralloc.scheduler.decide.extended_supply import ExtendedNeeds
from dralloc.scheduler.decide.node_fit import NodeRequirements, misfit_of_offer
from dralloc.scheduler.decide.placement_rules import PlacementRules
from dralloc.scheduler.decide.pod_requirements import ClaimSplit, HeldClaim
from dralloc.scheduler.state.node_state import NodeState
from dralloc.scheduler.state.pod_resources import HostPort
from dralloc.scheduler.state.volume_state import has_volumes


@dataclass(frozen=True, slots=True)
class GangMember:
    """A member without a node. `rules` are those of the moment before any member has one.

    Devices serve its `extended` resources: the claim for them is one of its claims.
    """

    pod: Pod
    claims: ClaimSplit
    requirements: NodeRequirements
    held: tuple[HeldClaim, ...]
    key: bytes
    rules: PlacementRules | None = None
    extended: ExtendedNeeds | None = None

    @property
    def moves_rules(self) -> bool:
        """True if where the other members are decides where this one may be, or the other way round."""
        spec = self.pod.spec
        affinity = spec.affinity
        states = affinity is not None and (affinity.pod_affinity is not None or affinity.pod_anti_affinity is not None)
        return states or bool(spec.topology_spread_constraints) or has_volumes(self.pod)

    def is_served_by_devices(self, node: NodeState) -> bool:
        """True if devices serve all extended resources of the member on the node that have a class; else its plugins do some."""
        return self.extended is None or self.extended.by_devices(node.offer) == self.extended.classes.keys()

    def may_use(self, node: NodeState) -> bool:
        """True if the node, its other pods and devices aside, can take the member."""
        if misfit_of_offer(self.requirements, node.offer) is not None:
            return False
        if not all(held.is_usable_on(node.offer.place) for held in self.held):
            return False
        return self.moves_rules or self.rules is None or self.rules.misfit(node) is None


@dataclass(frozen=True)
class Gang:
    """`needed` of the members must get nodes together. All of them use nodes with one value of the label `topology_key`, if any."""

    members: tuple[GangMember, ...]
    needed: int

    @cached_property
    def users(self) -> Mapping[ClaimId, tuple[int, ...]]:
        """The members that use a claim without devices."""
        users: dict[ClaimId, list[int]] = {}
        for index, member in enumerate(self.members):
            for claim_id in member.claims.unallocated_ids:
                users.setdefault(claim_id, []).append(index)
        return {claim_id: tuple(indices) for claim_id, indices in users.items()}

    @cached_property
    def claims(self) -> Mapping[ClaimId, ResourceClaim]:
        """The claims without devices, in the order of the members."""
        return {ClaimId.of(claim): claim for member in self.members for claim in member.claims.unallocated}

    @property
    def shares_claims(self) -> bool:
        return any(len(users) > 1 for users in self.users.values())

    @property
    def moves_rules(self) -> bool:
        return any(member.moves_rules for member in self.members)


@dataclass(frozen=True, eq=False)
class UnitKind:
    """Members that must be on one node because they share claims; most units are one member. `units` are equal."""

    members: tuple[GangMember, ...]
    units: tuple[tuple[int, ...], ...]

    @property
    def size(self) -> int:
        return len(self.members)

    @cached_property
    def amounts(self) -> Mapping[str, int]:
        total: Counter[str] = Counter()
        for member in self.members:
            total.update(member.requirements.resources.amounts)
        return total

    @cached_property
    def ports(self) -> tuple[HostPort, ...]:
        return tuple(port for member in self.members for port in member.requirements.resources.ports)

    @cached_property
    def claims(self) -> tuple[ResourceClaim, ...]:
        """The claims without devices, each once."""
        found = {ClaimId.of(claim): claim for member in self.members for claim in member.claims.unallocated}
        return tuple(found.values())

    def may_use(self, node: NodeState) -> bool:
        return all(member.may_use(node) for member in self.members)


def claims_of_unit(gang: Gang, unit: Sequence[int]) -> tuple[ClaimId, ...]:
    """The claims without devices of the members, each once, in the order of `UnitKind.claims`."""
    return tuple(dict.fromkeys(each for index in unit for each in gang.members[index].claims.unallocated_ids))


def kinds_of_members(gang: Gang) -> tuple[UnitKind, ...]:
    """Each member is a unit of its own. Members that share a claim are equal if they share the same."""
    return _kinds(gang, [(index,) for index in range(len(gang.members))], is_glued=False)


def kinds_of_units(gang: Gang) -> tuple[UnitKind, ...]:
    """Members that share a claim are one unit."""
    unit_of = list(range(len(gang.members)))
    for users in gang.users.values():
        joined = {unit_of[index] for index in users}
        first = min(joined)
        unit_of = [first if each in joined else each for each in unit_of] if len(joined) > 1 else unit_of
    units: dict[int, list[int]] = {}
    for index, unit in enumerate(unit_of):
        units.setdefault(unit, []).append(index)
    return _kinds(gang, [tuple(unit) for unit in units.values()], is_glued=True)


def _kinds(gang: Gang, units: Sequence[tuple[int, ...]], *, is_glued: bool) -> tuple[UnitKind, ...]:
    equal: dict[Hashable, list[tuple[int, ...]]] = {}
    for unit in units:
        equal.setdefault(_unit_key(gang, unit, is_glued=is_glued), []).append(unit)
    return tuple(UnitKind(tuple(gang.members[index] for index in units[0]), tuple(units)) for units in equal.values())


def _unit_key(gang: Gang, unit: Sequence[int], *, is_glued: bool) -> Hashable:
    shared: dict[ClaimId, Hashable] = {}
    for index in unit:
        for claim_id in gang.members[index].claims.unallocated_ids:
            if len(gang.users[claim_id]) > 1 and claim_id not in shared:
                # Inside a unit only the structure counts: which of its members share a claim.
                shared[claim_id] = len(shared) if is_glued else claim_id
    return tuple(
        (gang.members[index].key, tuple(map(shared.get, gang.members[index].claims.unallocated_ids))) for index in unit
    )
