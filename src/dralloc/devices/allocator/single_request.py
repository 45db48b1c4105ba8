"""Demands of one plain request, which need no search to know whether a node can serve them.

Such a request gets devices of the node one by one, and none depends on another: the node can serve it if enough devices have
room for it, each taken by itself. That is a count over masks and amounts. Which devices it gets is a matter of the search.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Mapping
from typing import NamedTuple

from dralloc.devices.allocator.candidate_devices import DeviceCriteria, matches_of
from dralloc.devices.allocator.requests import Alternative, Demand
from dralloc.devices.allocator.supply import Supply
from dralloc.devices.identity import PoolId
from dralloc.devices.node_selectors import NodeFacts
from dralloc.devices.pool_usage import PoolUsage
from dralloc.devices.pools import PoolSlices, PoolState
from dralloc.devices.slices import IndexedSlice, bits_of
from dralloc.devices.snapshot import VIEWS_MAX, NodeView, Snapshot, Strip
from dralloc.devices.taints import TaintRules
from dralloc.primitives.persistent_map import PersistentMap


class CountableStrip(NamedTuple):
    """A strip of which only use can make a device unavailable that is in `offered`.

    `spare` is, by device and capacity, how much other shares may consume. If all devices are equal, are offered and have one
    capacity, `only_capacity` is its name and `limit` how much other shares may consume of it.
    """

    pool_id: PoolId
    slice_index: int
    slice: IndexedSlice
    offered: int
    shareable: int
    spare: Mapping[int, Mapping[str, int]]
    only_capacity: str = ""
    limit: int = 0


class _EvenUse(NamedTuple):
    """How equal devices of one capacity are used: how many are not at all, how many are taken, and what shares consume."""

    unused: int
    taken: int
    # Of the devices that are shared and not taken, the least first.
    consumed: list[int]


class _Known(NamedTuple):
    """The strips of a node, and what they were computed from. They are None if devices must be searched.

    `is_plain` is true if only use can make any device of the node unavailable that matches.
    """

    node: NodeFacts
    pools: PersistentMap[PoolId, PoolSlices]
    rules: TaintRules
    view: NodeView
    strips: tuple[CountableStrip, ...] | None
    is_plain: bool
    # The pools that may serve the demand and that other nodes may see, too.
    shared_pools: tuple[PoolId, ...]


class SingleRequest:
    def __init__(self, demand: Demand) -> None:
        self._demand = demand
        self._alternative: Alternative = demand.alternatives[0]
        self._wanted = self._alternative.count
        self._taken = demand.features.taken
        # What is cached about a usage depends on these features alone.
        self._use_key = (_EvenUse, demand.features.consumable_capacity, demand.features.keeps_shares_whole)
        self._known: dict[str, _Known] = {}

    @classmethod
    def of(cls, demand: Demand) -> SingleRequest | None:
        """None if the demand is of another kind."""
        if len(demand.requests) != 1 or not demand.is_plain:
            return None
        [alternative] = demand.alternatives
        is_simple = not (
            alternative.is_admin or alternative.is_aggregated or alternative.constraints or alternative.allocations
        )
        return cls(demand) if is_simple else None

    def is_served(self, node: NodeFacts, snapshot: Snapshot) -> bool | None:
        """True if the node's devices can serve the demand; None if that takes a search."""
        strips = self._know(node, snapshot).strips
        if strips is None:
            return None
        wanted, usages = self._wanted, snapshot.usage
        for strip in strips:
            usage = usages.get(strip.pool_id)
            if usage is None:
                wanted -= strip.offered.bit_count()
            elif strip.only_capacity:
                use = self._even_use(strip, usage)
                wanted -= use.unused + bisect_right(use.consumed, strip.limit)
            elif strip.offered:
                wanted -= self._count(strip, usage, wanted)
            if wanted <= 0:
                return True
        return False

    def _count(self, strip: CountableStrip, usage: PoolUsage, enough: int) -> int:
        """How many devices have room, up to `enough`."""
        shared = usage.shared[strip.slice_index]
        usable = strip.offered & ~self._taken(usage.dedicated[strip.slice_index], shared, strip.shareable)
        shared &= usable
        count = (usable ^ shared).bit_count()
        while shared and count < enough:
            lowest = shared & -shared
            shared ^= lowest
            count += has_room(strip, usage, lowest.bit_length() - 1)
        return count

    def _even_use(self, strip: CountableStrip, usage: PoolUsage) -> _EvenUse:
        key = (self._use_key, strip.slice_index)
        known: _EvenUse | None = usage.answers.get(key)
        return usage.answers.keep(key, self._find_even_use(strip, usage)) if known is None else known

    def _find_even_use(self, strip: CountableStrip, usage: PoolUsage) -> _EvenUse:
        shared = usage.shared[strip.slice_index]
        taken = self._taken(usage.dedicated[strip.slice_index], shared, strip.shareable)
        devices, name = strip.slice.devices, strip.only_capacity
        consumed = sorted(usage.of(devices[bit].name).consumed.get(name, 0) for bit in bits_of(shared & ~taken))
        return _EvenUse(len(devices) - (taken | shared).bit_count(), taken.bit_count(), consumed)

    def shared_pools(self, node: NodeFacts, snapshot: Snapshot) -> tuple[PoolId, ...] | None:
        """The pools that may serve the demand and that other nodes may see, too; None if that is not known."""
        known = self._know(node, snapshot)
        return known.shared_pools if known.strips is not None else None

    def shortage_key(self, node: NodeFacts, snapshot: Snapshot) -> Hashable:
        """Equal for nodes that lack the same, names of devices aside; None if that is not known."""
        known = self._know(node, snapshot)
        if known.strips is None or not known.is_plain:
            return None
        return tuple([self._shortage(strip, snapshot.usage.get(strip.pool_id)) for strip in known.strips])

    def _shortage(self, strip: CountableStrip, usage: PoolUsage | None) -> Hashable:
        kind = strip.slice.kind
        if usage is None:
            return kind
        if strip.only_capacity:
            use = self._even_use(strip, usage)
            lacking = use.consumed[bisect_right(use.consumed, strip.limit) :]
            # The reason tells how much the device has that has the most.
            return kind, use.taken, len(lacking), *lacking[:1]
        shared = usage.shared[strip.slice_index]
        taken = self._taken(usage.dedicated[strip.slice_index], shared, strip.shareable)
        bits = [bit for bit in bits_of(shared & ~taken & strip.offered) if not has_room(strip, usage, bit)]
        consumed = (usage.of(strip.slice.devices[bit].name).consumed for bit in bits)
        return kind, taken, *bits, *(tuple(amounts.items()) for amounts in consumed)

    # --- What does not depend on use --------------------------------------------------------------------------------

    def _know(self, node: NodeFacts, snapshot: Snapshot) -> _Known:
        known = self._known.get(node.name)
        if known is not None and known.pools is snapshot.pools and known.rules is snapshot.rules and known.node is node:
            return known
        view = snapshot.view(node, self._demand.features.visibility)
        if known is not None and known.view is view and known.rules is snapshot.rules:
            known = known._replace(node=node, pools=snapshot.pools)
        else:
            strips = self._find_strips(view, snapshot)
            is_plain = strips is not None and self._is_plain(view, strips)
            pools = dict.fromkeys(strip.pool_id for strip in strips or () if strip.offered)
            shared = tuple(pool_id for pool_id in pools if not snapshot.only_node(pool_id))
            known = _Known(node, snapshot.pools, snapshot.rules, view, strips, is_plain, shared)
        if len(self._known) >= VIEWS_MAX:
            self._known.clear()
        self._known[node.name] = known
        return known

    def _find_strips(self, view: NodeView, snapshot: Snapshot) -> tuple[CountableStrip, ...] | None:
        if view.fault is not None or any(pool.layout.status is PoolState.INVALID for pool in view.pools):
            return None
        supply = Supply(snapshot, view, self._demand)
        strips: list[CountableStrip] = []
        for strip in view.strips:
            countable = self._countable(strip, supply)
            if countable is None:
                return None
            strips.append(countable)
        return tuple(strips)

    def _is_plain(self, view: NodeView, strips: tuple[CountableStrip, ...]) -> bool:
        criteria = self._alternative.criteria
        return (
            not view.hides_pools
            and all(pool.layout.status is PoolState.READY for pool in view.pools)
            and all(strip.offered == matches_of(strip.slice, criteria).matched for strip in strips)
        )

    def _countable(self, strip: Strip, supply: Supply) -> CountableStrip | None:
        """None if the devices of the strip must be searched."""
        alternative, indexed = self._alternative, strip.slice
        matches = matches_of(indexed, alternative.criteria)
        if indexed.selects_per_device or matches.faults:
            return None
        offered = matches.matched & ~(matches.barred | supply.barred_here(alternative, strip))
        if offered & indexed.counting or (indexed.terms and self._demand.features.consumable_capacity):
            return None
        spare = _spare(indexed, alternative.criteria)
        countable = CountableStrip(strip.pool.pool_id, strip.slice_index, indexed, offered, indexed.shareable, spare)
        if offered and offered == indexed.everything and indexed.kind.is_uniform and len(spare[0]) == 1:
            [(name, limit)] = spare[0].items()
            return countable._replace(only_capacity=name, limit=limit)
        return countable


def has_room(strip: CountableStrip, usage: PoolUsage, bit: int) -> bool:
    """True if the shares in use leave enough of the device."""
    consumed = usage.of(strip.slice.devices[bit].name).consumed
    spare = strip.spare[bit]
    return all(spare.get(name, nanos) >= nanos for name, nanos in consumed.items())


def _spare(indexed: IndexedSlice, criteria: DeviceCriteria) -> Mapping[int, Mapping[str, int]]:
    answers, key = indexed.kind.answers, (_spare, criteria)
    known: Mapping[int, Mapping[str, int]] | None = answers.get(key)
    return answers.keep(key, _find_spare(indexed, criteria)) if known is None else known


def _find_spare(indexed: IndexedSlice, criteria: DeviceCriteria) -> Mapping[int, Mapping[str, int]]:
    charges = matches_of(indexed, criteria).charges
    return {
        bit: {
            name: capacity.value.nanos - nanos
            for (name, capacity), nanos in zip(indexed.devices[bit].capacity.items(), charge.nanos, strict=False)
        }
        for bit, charge in charges.items()
    }
