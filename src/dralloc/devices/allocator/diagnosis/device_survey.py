"""Sorts the devices of a node into the funnel of a request.

What a slice and a request alone decide is remembered with the slice, and what a pool adds to a funnel is remembered for all
nodes that see the pool alike. So asking on every node of a large cluster costs little more than asking about every device
once.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping

from dralloc.devices.allocator.candidate_devices import (
    DeviceCriteria,
    DeviceMismatch,
    MatchStage,
    match_device,
    matches_of,
)
from dralloc.devices.allocator.consumable_capacity import Charge
from dralloc.devices.allocator.diagnosis.device_funnel import ORDER, Devices, Drop, Funnel, Hurdle, Spot, UnreadyPool
from dralloc.devices.allocator.requests import Alternative, Demand
from dralloc.devices.allocator.supply import OPTIONAL_NODE_OPERATIONS
from dralloc.devices.counters import CounterId
from dralloc.devices.device_usage import FREE, DeviceUsage
from dralloc.devices.identity import PoolId
from dralloc.devices.node_selectors import NodeFacts, NodeSelectorError, anchors_of_node
from dralloc.devices.pool_usage import PoolUsage
from dralloc.devices.pools import Layout, PoolSlices, PoolState
from dralloc.devices.share_terms import Refusal, RefusalCause
from dralloc.devices.slices import IndexedSlice, bits_of, newest_indexed
from dralloc.devices.snapshot import NodeView, Snapshot, VisiblePool
from dralloc.devices.taints import repels
from dralloc.kube.resource_v1 import DeviceAllocationsRange, DeviceTaint

_HURDLES = tuple(Hurdle)
_OF_STAGE = {
    MatchStage.BINDING_CONDITIONS: Hurdle.BINDING_CONDITIONS,
    MatchStage.CLASS_SELECTOR: Hurdle.CLASS_SELECTOR,
    MatchStage.REQUEST_SELECTOR: Hurdle.CLAIM_SELECTOR,
    MatchStage.CAPACITY: Hurdle.SIZE,
}


class _Sieve:
    """The devices of a slice while they are sorted: what was lost where, and what is left."""

    def __init__(self, indexed: IndexedSlice, devices: int) -> None:
        self.slice = indexed
        self.rest = devices
        self.lost: list[tuple[Hurdle, int, Devices]] = []

    def drop(self, hurdle: Hurdle, position: int, mask: int) -> None:
        if lost := self.rest & mask:
            self.lost.append((hurdle, position, Devices(self.slice, lost)))
            self.rest &= ~lost


class Survey:
    """The funnels of one demand at one revision of the cluster."""

    def __init__(self, demand: Demand, snapshot: Snapshot) -> None:
        self.demand = demand
        self.snapshot = snapshot
        self.features = demand.features
        self._sorted: dict[Hashable, list[_Sieve]] = {}
        self._counters: dict[tuple[PoolSlices, Layout], Mapping[CounterId, int]] = {}

    def view(self, node: NodeFacts) -> NodeView:
        return self.snapshot.view(node, self.features.visibility)

    def funnel(self, node: NodeFacts, alternative: Alternative) -> Funnel:
        view = self.view(node)
        lost: dict[tuple[int, int], list[Devices]] = {}
        left: list[Devices] = []
        sieves = [sieve for pool in view.pools for sieve in self._sieves(view, pool, alternative)]
        for sieve in (*sieves, *self._unready_sieves(view)):
            if sieve.rest:
                left.append(Devices(sieve.slice, sieve.rest))
            for hurdle, position, devices in sieve.lost:
                lost.setdefault((ORDER[hurdle], position), []).append(devices)
        drops = (Drop(_HURDLES[order], position, tuple(lost[order, position])) for order, position in sorted(lost))
        return Funnel(alternative, tuple(drops), tuple(left))

    # --- Pools that offer nothing -----------------------------------------------------------------------------------

    def unready_pools(self, node: NodeFacts) -> tuple[UnreadyPool, ...]:
        """The pools that are there for the node and none of whose devices can be used."""
        return tuple(UnreadyPool(slices.pool_id, fault) for slices, fault in self._unready(self.view(node)))

    def _unready_sieves(self, view: NodeView) -> Iterator[_Sieve]:
        for slices, _ in self._unready(view):
            for indexed in newest_indexed(_slices_for(slices, view.node)):
                sieve = _Sieve(indexed, indexed.devices_for(view.node)[0])
                sieve.drop(Hurdle.POOL, 0, indexed.everything)
                yield sieve

    def _unready(self, view: NodeView) -> Iterator[tuple[PoolSlices, str]]:
        if view.fault is not None:
            # Then nothing is known of any pool.
            return
        seen: set[PoolId] = set()
        for pool in view.pools:
            seen.add(pool.pool_id)
            if pool.layout.status is not PoolState.READY:
                yield pool.slices, pool.layout.fault
        for pool_id in sorted(self._pools_for(view.node) - seen):
            slices = self.snapshot.pools[pool_id]
            if here := _slices_for(slices, view.node):
                yield slices, self._fault_of_unseen(here)

    def _pools_for(self, node: NodeFacts) -> set[PoolId]:
        filed = (self.snapshot.placements.get(anchor) for anchor in anchors_of_node(node))
        return {pool_id for entry in filed if entry is not None for pool_id in entry}

    def _fault_of_unseen(self, here: list[IndexedSlice]) -> str:
        if all(self.features.visibility.hides(indexed) for indexed in here):
            is_partitioned = any(indexed.needs_partitionable_devices for indexed in here)
            gate = "DRAPartitionableDevices" if is_partitioned else "DRADeviceCompatibilityGroups"
            return f"needs the feature {gate}, which is off"
        return "is being updated: of its newest generation there is only a part"

    # --- Pools that offer devices -----------------------------------------------------------------------------------

    def _sieves(self, view: NodeView, pool: VisiblePool, alternative: Alternative) -> list[_Sieve]:
        key = (
            pool.slices,
            pool.layout,
            alternative.criteria,
            alternative.is_admin,
            alternative.constraints,
            self._allocations_of(alternative),
        )
        sieves = self._sorted.get(key)
        if sieves is None:
            sieves = [self._sift(view.node, pool, index, alternative) for index in pool.layout.slices]
            if not any(_depends_on_node(sieve.slice) for sieve in sieves):
                self._sorted[key] = sieves
        return sieves

    def _sift(self, node: NodeFacts, pool: VisiblePool, index: int, alternative: Alternative) -> _Sieve:
        indexed = pool.slices.slices[index]
        sieve = _Sieve(indexed, indexed.devices_for(node)[0])
        in_use = 0 if alternative.is_admin else self._in_use(pool, index)
        for hurdle, position, mask in _screen(indexed, alternative.criteria):
            # A device in use is not looked at any closer, so it cannot fail either.
            sieve.drop(hurdle, position, mask & ~in_use if hurdle is Hurdle.FAULT else mask)
        for gate, mask in indexed.gated.items():
            if gate in alternative.criteria.gates_off:
                sieve.drop(Hurdle.FEATURE, 0, mask)
        sieve.drop(Hurdle.IN_USE, 0, in_use)
        sieve.drop(Hurdle.ALLOCATIONS, 0, self._miscounted(sieve, alternative))
        sieve.drop(Hurdle.CAPACITY, 0, self._lacking_capacity(sieve, alternative))
        sieve.drop(Hurdle.COUNTERS, 0, self._lacking_counters(sieve, pool))
        sieve.drop(Hurdle.TAINT, 0, self._tainted(sieve, alternative))
        if self._cannot_skip_operations(indexed, node):
            sieve.drop(Hurdle.NODE_OPERATIONS, 0, indexed.everything)
        for position, constraint in enumerate(alternative.constraints):
            lacking = (1 << bit for bit in bits_of(sieve.rest) if constraint.known_values_at(indexed, bit) is None)
            sieve.drop(Hurdle.CONSTRAINT, position, sum(lacking))
        return sieve

    def _allocations_of(self, alternative: Alternative) -> DeviceAllocationsRange | None:
        """How often devices must be allocated. Earlier requests of the pod may allocate a device more often, but not less."""
        limits = alternative.allocations
        if limits is None or alternative in self.demand.requests[0].alternatives:
            return limits
        return DeviceAllocationsRange(max=limits.max)

    def _miscounted(self, sieve: _Sieve, alternative: Alternative) -> int:
        limits = self._allocations_of(alternative)
        if limits is None:
            return 0
        counts = {bit: self.usage(Spot(sieve.slice, bit)) for bit in bits_of(sieve.rest)}
        return sum(1 << bit for bit, usage in counts.items() if not limits.admits(usage.dedicated + usage.shares))

    def _in_use(self, pool: VisiblePool, index: int) -> int:
        usage = self.snapshot.usage.get(pool.pool_id)
        if usage is None:
            return 0
        return self.features.taken(usage.dedicated[index], usage.shared[index], pool.slices.slices[index].shareable)

    def _lacking_capacity(self, sieve: _Sieve, alternative: Alternative) -> int:
        usage = self._pool_usage(sieve.slice)
        charges = matches_of(sieve.slice, alternative.criteria).charges
        if usage is None or not self.features.consumable_capacity:
            return 0
        return sum(
            1 << bit
            for bit in bits_of(sieve.rest)
            if usage.of(sieve.slice.devices[bit].name).shares
            and self._lacks_capacity(Spot(sieve.slice, bit), charges[bit])
        )

    def _lacks_capacity(self, spot: Spot, charge: Charge) -> bool:
        return next(self.shortages(spot, charge), None) is not None

    def shortages(self, spot: Spot, charge: Charge) -> Iterator[tuple[str, Refusal]]:
        """The capacities that a share with this charge cannot get, and why."""
        terms = spot.slice.terms.get(spot.bit)
        state = self.free(spot) if terms is None else terms.state(self.usage(spot))
        for index, (name, nanos) in enumerate(zip(spot.device.capacity, charge.nanos, strict=True)):
            if terms is not None:
                taken = terms.amount(index, state, nanos, is_asked=not charge.unasked >> index & 1)
                if isinstance(taken, Refusal):
                    yield name, taken
            elif state[index] < nanos:
                yield name, Refusal(RefusalCause.SHORT, nanos)

    def _lacking_counters(self, sieve: _Sieve, pool: VisiblePool) -> int:
        drawing = sieve.rest & sieve.slice.counting
        if not drawing or not self.features.partitionable_devices:
            return drawing
        left = self.counters_left(pool)
        if min(left.values(), default=0) < 0:
            return sum(1 << bit for bit in bits_of(drawing) if not self._is_paid(Spot(sieve.slice, bit)))
        return sum(
            1 << bit
            for bit in bits_of(drawing)
            if any(left[counter_id] < amount for counter_id, amount in sieve.slice.draws[bit])
            and not self._is_paid(Spot(sieve.slice, bit))
        )

    def _is_paid(self, spot: Spot) -> bool:
        """Whether the device's counters were drawn from when it was first shared."""
        is_shareable = self.features.consumable_capacity and spot.device.allow_multiple_allocations
        return bool(is_shareable) and self.usage(spot).shares > 0

    def _tainted(self, sieve: _Sieve, alternative: Alternative) -> int:
        if not self.features.device_taints:
            return 0
        tainted = sieve.slice.tainted
        if self.features.taint_rules:
            for mask, _ in sieve.slice.taints_from(self.snapshot.rules):
                tainted |= mask
        return sum(
            1 << bit
            for bit in bits_of(sieve.rest & tainted)
            if any(self.repelling(Spot(sieve.slice, bit), alternative))
        )

    def _cannot_skip_operations(self, indexed: IndexedSlice, node: NodeFacts) -> bool:
        if not self.features.is_experimental or not indexed.source.spec.skip_node_operations:
            return False
        is_declared = OPTIONAL_NODE_OPERATIONS in node.declared_features
        return not (self.features.optional_node_operations and is_declared)

    # --- What is known of a device ------------------------------------------------------------------------------------

    def usage(self, spot: Spot) -> DeviceUsage:
        usage = self._pool_usage(spot.slice)
        return FREE if usage is None else usage.of(spot.device.name)

    def free(self, spot: Spot) -> tuple[int, ...]:
        """What shares leave of the device, in nanos, in the order of its capacities."""
        consumed = self.usage(spot).consumed
        return tuple(capacity.value.nanos - consumed.get(name, 0) for name, capacity in spot.device.capacity.items())

    def repelling(self, spot: Spot, alternative: Alternative) -> Iterator[DeviceTaint]:
        taints = list(spot.device.taints)
        if self.features.taint_rules:
            taints += [taint for mask, taint in spot.slice.taints_from(self.snapshot.rules) if mask >> spot.bit & 1]
        return (taint for taint in taints if repels(taint, alternative.tolerations))

    def counters_left(self, pool: VisiblePool) -> Mapping[CounterId, int]:
        key = (pool.slices, pool.layout)
        left = self._counters.get(key)
        if left is None:
            usage = self.snapshot.usage.get(pool.pool_id) or PoolUsage.unused(pool.slices.slices)
            left = self._counters[key] = pool.slices.counters_left(pool.layout, usage)
        return left

    def _pool_usage(self, indexed: IndexedSlice) -> PoolUsage | None:
        return self.snapshot.usage.get(indexed.pool_id)


def _slices_for(slices: PoolSlices, node: NodeFacts) -> list[IndexedSlice]:
    return [indexed for indexed in slices.slices if indexed.devices and _is_for(indexed, node)]


def _is_for(indexed: IndexedSlice, node: NodeFacts) -> bool:
    try:
        return indexed.is_for(node)
    except NodeSelectorError:
        return False


def _depends_on_node(indexed: IndexedSlice) -> bool:
    """Whether two nodes that see the slice may differ in which of its devices they can use."""
    return indexed.selects_per_device or bool(indexed.source.spec.skip_node_operations)


# --- What a slice and a request alone decide ---------------------------------------------------------------------------

_Screening = tuple[tuple[Hurdle, int, int], ...]


def _screen(indexed: IndexedSlice, criteria: DeviceCriteria) -> _Screening:
    """Which devices fail which check of a device by itself, in the order of the funnel."""
    key = (_screen, criteria)
    known: _Screening | None = indexed.answers.get(key)
    return indexed.answers.keep(key, _make_screening(indexed, criteria)) if known is None else known


def _make_screening(indexed: IndexedSlice, criteria: DeviceCriteria) -> _Screening:
    matches = matches_of(indexed, criteria)
    faulty = matches.faulty_selection | matches.faulty_capacity
    masks: dict[tuple[int, int], int] = {(ORDER[Hurdle.FAULT], 0): faulty} if faulty else {}
    for bit in bits_of(indexed.everything & ~(matches.matched | faulty)):
        refusal = match_device(indexed, bit, criteria)
        assert isinstance(refusal, DeviceMismatch), "a device that is not offered was refused"
        at = (ORDER[_OF_STAGE[refusal.stage]], refusal.position)
        masks[at] = masks.get(at, 0) | 1 << bit
    return tuple((_HURDLES[order], position, masks[order, position]) for order, position in sorted(masks))
