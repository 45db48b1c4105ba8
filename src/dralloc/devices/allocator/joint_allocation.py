"""`allocate_jointly`: devices for claims that are used on different nodes, in one search.

A claim is used on one node, or on several by pods that share it. Its devices must then be reachable from all of them. Nodes
that see the same devices, or draw from the same counters, compete for them; the search has one ledger for all nodes.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import cached_property

from msgspec import Struct

from dralloc.devices.allocator.allocate import allocation_of, check, outcome_of
from dralloc.devices.allocator.candidate_devices import matches_of
from dralloc.devices.allocator.outcome import Fatal, FatalCause, Outcome, SearchAborted
from dralloc.devices.allocator.requests import Alternative, Demand
from dralloc.devices.allocator.search import SearchStatus
from dralloc.devices.allocator.solver import DEFAULT_BUDGET, StepBudget, solve
from dralloc.devices.allocator.supply import DeviceCandidate, Stock, Supply
from dralloc.devices.counters import CounterId, Groups
from dralloc.devices.identity import DeviceId, PoolId
from dralloc.devices.node_selectors import NodeFacts, NodeSelectorError
from dralloc.devices.snapshot import NodeView, Snapshot, Strip, VisiblePool


class JointNodes:
    """The nodes on which claims of a demand may be used. What they offer is worked out once for all questions about them."""

    def __init__(self, demand: Demand, nodes: Iterable[NodeFacts], snapshot: Snapshot) -> None:
        self.demand = demand
        self.snapshot = snapshot
        facts = {node.name: node for node in nodes}
        self.views = tuple(snapshot.view(node, demand.features.visibility) for node in facts.values())
        self.supplies = {view.node.name: Supply(snapshot, view, demand) for view in self.views}
        self.local = {view.node.name: _by_slice(view.strips) for view in self.views}
        self.strips = _merged(self.views)
        self.by_slice = _by_slice(self.strips)
        self.stocks: dict[tuple[int, int, tuple[str, ...], bool], Stock] = {}

    @property
    def fault(self) -> NodeSelectorError | None:
        return next((view.fault for view in self.views if view.fault is not None), None)

    @cached_property
    def nodes_of_devices(self) -> Mapping[DeviceId, frozenset[str]]:
        """The nodes that see a device."""
        seen: dict[DeviceId, set[str]] = {}
        for view in self.views:
            for strip in view.strips:
                here = view.placement(strip)[0] if strip.slice.selects_per_device else strip.slice.everything
                pool = strip.pool.pool_id
                for bit, device in enumerate(strip.slice.devices):
                    if here >> bit & 1:
                        seen.setdefault(DeviceId(pool.driver, pool.pool, device.name), set()).add(view.node.name)
        return {device: frozenset(names) for device, names in seen.items()}


class JointProblem(Struct, frozen=True, gc=False):
    """The question which devices the claims of a demand get. `places` has the names of the nodes of each claim.

    A `relaxed` claim, by its index, may have devices that any of its nodes reaches. What is impossible then is impossible on any
    choice of its nodes, if no request is for all devices.
    """

    nodes: JointNodes
    places: tuple[tuple[str, ...], ...]
    budget: StepBudget = DEFAULT_BUDGET
    relaxed: frozenset[int] = frozenset()


def allocate_jointly(problem: JointProblem) -> Outcome:
    demand, fault = problem.nodes.demand, problem.nodes.fault
    if fault is not None:
        return Fatal(FatalCause.EVALUATION_ERROR, fault)
    try:
        supply = _JointSupply(problem)
        check(demand, supply)
        solution = solve(demand, supply, problem.budget)
        if solution.status is SearchStatus.SOLVED:
            return allocation_of(demand, solution.ledger, supply.homes)
        return outcome_of(solution)
    except SearchAborted as aborted:
        return aborted.fatal


def is_coupled(one: NodeView, other: NodeView, pool_id: PoolId) -> bool:
    """True if what one node's claims get of the pool, which both see, may limit what is left for the other's."""
    (first,) = (pool.layout for pool in one.pools if pool.pool_id == pool_id)
    (second,) = (pool.layout for pool in other.pools if pool.pool_id == pool_id)
    return bool(first.counters or second.counters or not set(first.slices).isdisjoint(second.slices))


# A slice: its pool and its index there.
_SliceKey = tuple[PoolId, int]


class _JointSupply(Supply):
    """The devices of several nodes in one order; a claim sees those that all of its nodes reach."""

    def __init__(self, problem: JointProblem) -> None:
        nodes = problem.nodes
        super().__init__(nodes.snapshot, NodeView(nodes.views[0].node, _distinct_pools(nodes.views)), nodes.demand)
        self._nodes = nodes
        self.strips = nodes.strips
        self._places = problem.places
        self._relaxed = problem.relaxed

    @cached_property
    def homes(self) -> tuple[NodeFacts, ...]:
        """For each claim, the node that decides which devices are all devices: the one that sees the fewest."""
        facts = {view.node.name: view.node for view in self._nodes.views}
        return tuple(facts[self._home(claim)] for claim in range(len(self._places)))

    def _home(self, claim: int) -> str:
        place = self._places[claim]
        if len(place) == 1:
            return place[0]
        supplies = self._nodes.supplies
        greedy = [found for found in self._nodes.demand.alternatives if found.claim == claim and found.takes_all]
        return min(place, key=lambda name: sum(len(supplies[name].everything_for(each)) for each in greedy))

    def reach(self, alternative: Alternative) -> Hashable:
        claim = alternative.claim
        return claim in self._relaxed, frozenset(self._places[claim])

    def _make_stock(self, alternative: Alternative, strip: Strip) -> Stock:
        place, is_relaxed = self._places[alternative.claim], alternative.claim in self._relaxed
        known = (alternative.number, strip.number, place, is_relaxed)
        stock = self._nodes.stocks.get(known)
        if stock is None:
            stock = self._nodes.stocks[known] = self._find_stock(alternative, strip, place, is_relaxed)
        return stock

    def _find_stock(self, alternative: Alternative, strip: Strip, place: tuple[str, ...], is_relaxed: bool) -> Stock:
        key = strip.pool.pool_id, strip.slice_index
        reach = [(name, own) for name in place if (own := self._nodes.local[name].get(key)) is not None]
        if not reach or (len(reach) < len(place) and not is_relaxed):
            return Stock(0, 0, 0, matches_of(strip.slice, alternative.criteria))
        stocks = [self._nodes.supplies[name].stock(alternative, own) for name, own in reach]
        usable, shared, faulty = stocks[0].usable, stocks[0].shared, stocks[0].faulty
        for stock in stocks[1:]:
            faulty |= stock.faulty
            if is_relaxed:
                usable, shared = usable | stock.usable, shared | stock.shared
            else:
                usable, shared = usable & stock.usable, shared & stock.shared
        if len(place) > 1 and not is_relaxed:
            usable &= ~_bound_to_nodes(strip)
        return Stock(usable, faulty, usable & shared, stocks[0].matches)

    def _find_everything(self, alternative: Alternative) -> tuple[DeviceCandidate, ...]:
        home = self._nodes.supplies[self._home(alternative.claim)]
        return tuple(
            DeviceCandidate(self._nodes.by_slice[strip.pool.pool_id, strip.slice_index], bit)
            for strip, bit in home.everything_for(alternative)
        )

    def counters(self, pool: VisiblePool) -> Mapping[CounterId, int] | None:
        """Nodes that see different slices of a pool may know different counters of it."""
        left: dict[CounterId, int] = {}
        for layout in self._layouts(pool.pool_id):
            known = self._nodes.supplies[layout[0]].counters(layout[1])
            if known is None:
                return None
            left.update(known)
        return left

    def groups(self, pool: VisiblePool) -> Mapping[str, Groups]:
        found: dict[str, Groups] = {}
        for name, visible in self._layouts(pool.pool_id):
            found.update(self._nodes.supplies[name].groups(visible))
        return found

    def _layouts(self, pool_id: PoolId) -> list[tuple[str, VisiblePool]]:
        known = self._layouts_of.get(pool_id)
        if known is None:
            known = self._layouts_of[pool_id] = [
                (view.node.name, pool) for view in self._nodes.views for pool in view.pools if pool.pool_id == pool_id
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
