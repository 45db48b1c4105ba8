"""`allocate_jointly`: devices for claims that are used on different nodes, in one search.

A claim is used on one node, or on several by pods that share it. Its devices must then be reachable from all of them. Nodes
that see the same devices, or draw from the same counters, compete for them; the search has one ledger for all nodes.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from functools import cached_property

from msgspec import Struct

from dralloc.allocator.allocate import allocation_of, check, outcome_of
from dralloc.allocator.candidate_devices import matches_of
from dralloc.allocator.outcome import Fatal, FatalCause, Outcome, SearchAborted
from dralloc.allocator.requests import Alternative, Demand
from dralloc.allocator.search import SearchStatus
from dralloc.allocator.solver import DEFAULT_BUDGET, StepBudget, solve
from dralloc.allocator.supply import DeviceCandidate, Stock, Supply
from dralloc.devices.compatibility_groups import Groups
from dralloc.devices.counters import CounterId
from dralloc.devices.identity import PoolId
from dralloc.snapshot.cluster import NodeView, Snapshot, Strip, VisiblePool
from dralloc.snapshot.node_selectors import NodeFacts


class JointProblem(Struct, frozen=True, gc=False):
    """The question which devices the claims of a demand get. `places` has the nodes of each claim.

    `is_relaxed`: a claim may have devices that any of its nodes reaches. What is impossible then is impossible on any choice
    of nodes, if no request is for all devices.
    """

    demand: Demand
    places: tuple[tuple[NodeFacts, ...], ...]
    snapshot: Snapshot
    budget: StepBudget = DEFAULT_BUDGET
    is_relaxed: bool = False


def allocate_jointly(problem: JointProblem) -> Outcome:
    demand, snapshot = problem.demand, problem.snapshot
    nodes = {node.name: node for place in problem.places for node in place}
    views = {name: snapshot.view(node, demand.features.visibility) for name, node in nodes.items()}
    for view in views.values():
        if view.fault is not None:
            return Fatal(FatalCause.EVALUATION_ERROR, view.fault)
    try:
        supply = _JointSupply(snapshot, tuple(views.values()), problem)
        check(demand, supply)
        solution = solve(demand, supply, problem.budget)
        if solution.status is SearchStatus.SOLVED:
            return allocation_of(demand, solution.ledger, supply.homes)
        return outcome_of(solution)
    except SearchAborted as aborted:
        return aborted.fatal


def is_coupled(one: NodeView, other: NodeView) -> bool:
    """True if what one node's claims get may limit what is left for the other's."""
    pools = {pool.pool_id: pool.layout for pool in one.pools}
    for pool in other.pools:
        layout = pools.get(pool.pool_id)
        if layout is None:
            continue
        if layout.counters or pool.layout.counters or not set(layout.slices).isdisjoint(pool.layout.slices):
            return True
    return False


# A slice: its pool and its index there.
_SliceKey = tuple[PoolId, int]


class _JointSupply(Supply):
    """The devices of several nodes in one order; a claim sees those that all of its nodes reach."""

    def __init__(self, snapshot: Snapshot, views: tuple[NodeView, ...], problem: JointProblem) -> None:
        demand = problem.demand
        super().__init__(snapshot, NodeView(views[0].node, _distinct_pools(views)), demand)
        self._views = views
        self._of_node = {view.node.name: Supply(snapshot, view, demand) for view in views}
        self._local = {view.node.name: _by_slice(view.strips) for view in views}
        self.strips = _merged(views)
        self._by_slice = _by_slice(self.strips)
        self._places = tuple(tuple(dict.fromkeys(node.name for node in place)) for place in problem.places)
        self._demand = demand
        self._is_relaxed = problem.is_relaxed

    @cached_property
    def homes(self) -> tuple[NodeFacts, ...]:
        """For each claim, the node that decides which devices are all devices: the one that sees the fewest."""
        facts = {view.node.name: view.node for view in self._views}
        return tuple(facts[self._home(claim)] for claim in range(len(self._places)))

    def _home(self, claim: int) -> str:
        place = self._places[claim]
        if len(place) == 1:
            return place[0]
        greedy = [found for found in self._demand.alternatives if found.claim == claim and found.takes_all]
        return min(place, key=lambda name: sum(len(self._of_node[name].everything_for(each)) for each in greedy))

    def reach(self, alternative: Alternative) -> Hashable:
        return frozenset(self._places[alternative.claim])

    def _make_stock(self, alternative: Alternative, strip: Strip) -> Stock:
        place = self._places[alternative.claim]
        key = strip.pool.pool_id, strip.slice_index
        reach = [(name, own) for name in place if (own := self._local[name].get(key)) is not None]
        if not reach or (len(reach) < len(place) and not self._is_relaxed):
            return Stock(0, 0, 0, matches_of(strip.slice, alternative.criteria))
        stocks = [self._of_node[name].stock(alternative, own) for name, own in reach]
        usable, shared, faulty = stocks[0].usable, stocks[0].shared, stocks[0].faulty
        for stock in stocks[1:]:
            faulty |= stock.faulty
            if self._is_relaxed:
                usable, shared = usable | stock.usable, shared | stock.shared
            else:
                usable, shared = usable & stock.usable, shared & stock.shared
        if len(place) > 1 and not self._is_relaxed:
            usable &= ~_bound_to_nodes(strip)
        return Stock(usable, faulty, usable & shared, stocks[0].matches)

    def _find_everything(self, alternative: Alternative) -> tuple[DeviceCandidate, ...]:
        home = self._of_node[self._home(alternative.claim)]
        return tuple(
            DeviceCandidate(self._by_slice[strip.pool.pool_id, strip.slice_index], bit)
            for strip, bit in home.everything_for(alternative)
        )

    def counters(self, pool: VisiblePool) -> Mapping[CounterId, int] | None:
        """Nodes that see different slices of a pool may know different counters of it."""
        left: dict[CounterId, int] = {}
        for layout in self._layouts(pool.pool_id):
            known = self._of_node[layout[0]].counters(layout[1])
            if known is None:
                return None
            left.update(known)
        return left

    def groups(self, pool: VisiblePool) -> Mapping[str, Groups]:
        found: dict[str, Groups] = {}
        for name, visible in self._layouts(pool.pool_id):
            found.update(self._of_node[name].groups(visible))
        return found

    def _layouts(self, pool_id: PoolId) -> list[tuple[str, VisiblePool]]:
        known = self._layouts_of.get(pool_id)
        if known is None:
            known = self._layouts_of[pool_id] = [
                (view.node.name, pool) for view in self._views for pool in view.pools if pool.pool_id == pool_id
            ]
        return known

    @cached_property
    def _layouts_of(self) -> dict[PoolId, list[tuple[str, VisiblePool]]]:
        return {}


def _distinct_pools(views: Sequence[NodeView]) -> tuple[VisiblePool, ...]:
    return tuple({pool.pool_id: pool for view in reversed(views) for pool in view.pools}.values())


def _merged(views: Sequence[NodeView]) -> tuple[Strip, ...]:
    """The slices that the nodes see, each once, numbered anew."""
    merged: dict[_SliceKey, Strip] = {}
    offset = 0
    for view in views:
        for strip in view.strips:
            key = strip.pool.pool_id, strip.slice_index
            if key not in merged:
                merged[key] = Strip(len(merged), offset, strip.pool, strip.slice_index, strip.slice)
                offset += len(strip.slice.devices)
    return tuple(merged.values())


def _by_slice(strips: Sequence[Strip]) -> dict[_SliceKey, Strip]:
    return {(strip.pool.pool_id, strip.slice_index): strip for strip in strips}


def _bound_to_nodes(strip: Strip) -> int:
    """The devices that serve only the node for which they are allocated."""
    return sum(1 << bit for bit, device in enumerate(strip.slice.devices) if device.binds_to_node)
