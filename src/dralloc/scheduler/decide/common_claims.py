"""Which claims of a gang make nodes compete: their devices are in pools that several nodes see.

Claims whose devices all nodes reach can be set aside: where the members go does not matter to them. A network that all nodes
share does then not keep the members' own devices from being packed node by node.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from msgspec.structs import replace as replace_struct

from dralloc.devices.allocator.candidate_devices import matches_of
from dralloc.devices.allocator.features import Features
from dralloc.devices.allocator.joint_allocation import is_coupled
from dralloc.devices.allocator.requests import Demand, compile_demand
from dralloc.devices.identity import ClaimId, PoolId
from dralloc.devices.snapshot import NodeView
from dralloc.scheduler.contract import ClusterView
from dralloc.scheduler.decide.gang_problem import Gang, GangMember
from dralloc.scheduler.state.node_state import NodeState


@dataclass(frozen=True)
class Coupling:
    """`common` are the claims that can be set aside; `is_coupled`: nodes compete for devices of the others."""

    common: tuple[ClaimId, ...]
    is_coupled: bool


def coupling_of(gang: Gang, view: ClusterView, features: Features, nodes: Sequence[NodeState]) -> Coupling:
    if not gang.claims or not nodes:
        return Coupling((), is_coupled=False)
    views = [view.snapshot.view(node.offer.place, features.visibility) for node in nodes]
    shared = _shared_pools(views)
    if not shared:
        return Coupling((), is_coupled=False)
    demand = compile_demand(gang.claims.values(), view.classes, features)
    pools = dict(zip(gang.claims, _pools_of_claims(demand, views), strict=True))
    everywhere = {pool_id for pool_id in shared if _is_everywhere(pool_id, views)}
    common = tuple(claim_id for claim_id, found in pools.items() if found and found <= everywhere)
    rest = frozenset[PoolId]().union(*(found for claim_id, found in pools.items() if claim_id not in common))
    if not rest.isdisjoint(shared):
        return Coupling((), is_coupled=True)
    return Coupling(common, is_coupled=False)


def without_claims(gang: Gang, claims: Sequence[ClaimId]) -> Gang:
    """The gang as if its members did not use these claims."""
    set_aside = frozenset(claims)

    def reduced(member: GangMember) -> GangMember:
        kept = tuple(claim for claim in member.claims.unallocated if ClaimId.of(claim) not in set_aside)
        return replace(member, claims=replace_struct(member.claims, unallocated=kept))

    return Gang(tuple(map(reduced, gang.members)), gang.needed)


def _shared_pools(views: Sequence[NodeView]) -> frozenset[PoolId]:
    """The pools for whose devices or counters two nodes compete."""
    seen: dict[PoolId, NodeView] = {}
    shared: set[PoolId] = set()
    for view in views:
        for pool in view.pools:
            other = seen.setdefault(pool.pool_id, view)
            if other is not view and pool.pool_id not in shared and is_coupled(other, view, pool.pool_id):
                shared.add(pool.pool_id)
    return frozenset(shared)


def _is_everywhere(pool_id: PoolId, views: Sequence[NodeView]) -> bool:
    """True if all nodes see the same devices of the pool."""
    found = [[strip for strip in view.strips if strip.pool.pool_id == pool_id] for view in views]
    first = [strip.slice_index for strip in found[0]]
    return all([strip.slice_index for strip in strips] == first for strips in found) and not any(
        strip.slice.selects_per_device for strip in found[0]
    )


def _pools_of_claims(demand: Demand, views: Sequence[NodeView]) -> list[frozenset[PoolId]]:
    """For each claim the pools with devices that it might get; all pools if it takes all devices that there are."""
    slices = {
        (strip.pool.pool_id, strip.slice_index): (strip.pool.pool_id, strip.slice)
        for view in views
        for strip in view.strips
    }
    known: dict[object, frozenset[PoolId]] = {}
    found: list[set[PoolId]] = [set() for _ in demand.claims]
    everything = frozenset(pool_id for pool_id, _ in slices.values())
    for alternative in demand.alternatives:
        pools = known.get(alternative.criteria)
        if pools is None:
            pools = known[alternative.criteria] = frozenset(
                pool_id
                for pool_id, each in slices.values()
                if (matches := matches_of(each, alternative.criteria)).matched
                or matches.faulty_selection
                or matches.faulty_capacity
            )
        found[alternative.claim] |= everything if alternative.takes_all else pools
    return [frozenset(each) for each in found]
