"""Node equivalence: keys that are equal for two nodes, or for two moments, only if the allocator gives the same answer.

`DeviceIdentity` compares what nodes see by identity. It is cheap, and equal for nodes that reach the same devices.
`NodeEquivalence` compares content. Large clusters consist of a few kinds of nodes: two nodes of one kind with slices of their
own have different devices, but a search on one is step by step the same as on the other. Only attributes that a request can
read count: serial numbers do not distinguish devices, unless a selector reads them.
"""

from __future__ import annotations

from collections.abc import Hashable

from msgspec import Struct

from dralloc.cel.attribute_reads import Reads
from dralloc.cel.derived_attribute import compile_derived
from dralloc.cel.errors import CelError
from dralloc.cel.program import compile_selector
from dralloc.devices.allocator.candidate_devices import matches_of
from dralloc.devices.allocator.requests import Demand
from dralloc.devices.identity import PoolId
from dralloc.devices.node_selectors import NodeFacts
from dralloc.devices.pool_usage import PoolUsage
from dralloc.devices.pools import PoolState
from dralloc.devices.share_terms import capacities_of
from dralloc.devices.slices import bits_of
from dralloc.devices.snapshot import NodeView, Snapshot, Strip, VisiblePool
from dralloc.kube.resource_v1 import Device, DeviceAttribute


class VisibleDevices(Struct, frozen=True, eq=False, gc=False):
    """What a node sees: the pools with candidate devices, and the part of the key that changes with slices only.

    A pool is a candidate if a device matches a request, or if a selector fails on one.
    """

    view: NodeView
    pools: tuple[PoolId, ...]
    slices_key: tuple[object, ...]
    # True if a search on these devices cannot end with an error, however many of them are in use.
    is_faultless: bool


class DeviceIdentity:
    """Keys by identity, for one demand and any number of snapshots."""

    def __init__(self, demand: Demand) -> None:
        self._demand = demand
        self._visibility = demand.features.visibility
        self._visible: dict[str, VisibleDevices] = {}

    def key(self, node: NodeFacts, snapshot: Snapshot) -> Hashable:
        """Equal for two nodes, or for two snapshots, only if the same devices are available."""
        visible = self.visible(node, snapshot)
        return (snapshot.rules, node.declared_features, *visible.slices_key, *map(snapshot.usage.get, visible.pools))

    def visible(self, node: NodeFacts, snapshot: Snapshot) -> VisibleDevices:
        view = snapshot.view(node, self._visibility)
        known = self._visible.get(node.name)
        if known is None or known.view is not view:
            pools = _candidate_pools(view, self._demand)
            is_faultless = self._demand.is_plain and _is_faultless(view, self._demand)
            known = self._visible[node.name] = VisibleDevices(view, pools, _slices_key(view), is_faultless)
        return known


def _slices_key(view: NodeView) -> tuple[object, ...]:
    # Where devices select nodes one by one, every node counts as seeing different devices.
    is_own = any(strip.slice.selects_per_device for strip in view.strips)
    return (view,) if is_own or view.fault else tuple((pool.slices, pool.layout) for pool in view.pools)


def _is_faultless(view: NodeView, demand: Demand) -> bool:
    """True if every device that the node sees can be evaluated for every alternative."""
    if view.fault is not None or any(strip.slice.selects_per_device for strip in view.strips):
        return False
    all_criteria = {alternative.criteria for alternative in demand.alternatives}
    return not any(matches_of(strip.slice, criteria).faults for strip in view.strips for criteria in all_criteria)


def _candidate_pools(view: NodeView, demand: Demand) -> tuple[PoolId, ...]:
    all_criteria = {alternative.criteria for alternative in demand.alternatives}
    pools: list[PoolId] = []
    for pool, strips in zip(view.pools, view.strips_by_pool, strict=True):
        found = (matches_of(strip.slice, criteria) for strip in strips for criteria in all_criteria)
        if any(matches.matched or matches.faults for matches in found):
            pools.append(pool.pool_id)
    return tuple(pools)


class NodeEquivalence:
    def __init__(self, demand: Demand, snapshot: Snapshot) -> None:
        self._visibility = demand.features.visibility
        self._snapshot = snapshot
        self._is_read = _ReadNames(demand)
        self._counts_allocations = demand.counts_allocations

    def key(self, node: NodeFacts) -> Hashable:
        """Equal for two nodes only if the allocator gives both the same answer, except for the names of devices."""
        view = self._snapshot.view(node, self._visibility)
        if view.fault is not None:
            return view
        pools = zip(view.pools, view.strips_by_pool, strict=True)
        return (node.declared_features, *(self._pool_key(view, pool, strips) for pool, strips in pools))

    def _pool_key(self, view: NodeView, pool: VisiblePool, strips: tuple[Strip, ...]) -> Hashable:
        is_own = not pool.layout.elsewhere and all(strip.slice.node_name == view.node.name for strip in strips)
        if not is_own or pool.layout.status is not PoolState.READY:
            # A pool that other nodes see, too, is equivalent only to itself.
            return (pool.slices, pool.layout, *(view.placement(strip) for strip in strips))
        is_ruled = any(True for _ in self._snapshot.rules.taints_in_pool(pool.pool_id))
        usage = self._snapshot.usage.get(pool.pool_id)
        return (
            pool.pool_id if is_ruled else pool.pool_id.driver,
            tuple(pool.layout.counters.items()),
            *(self._strip_key(strip, usage) for strip in strips),
        )

    def _strip_key(self, strip: Strip, usage: PoolUsage | None) -> Hashable:
        devices = tuple(map(self._device_key, strip.slice.devices))
        operations = strip.slice.source.spec.skip_node_operations
        if usage is None:
            return devices, operations
        dedicated, shared = usage.dedicated[strip.slice_index], usage.shared[strip.slice_index]
        used = [usage.of(strip.slice.devices[bit].name) for bit in bits_of(shared)]
        amounts = [(tuple(sorted(each.consumed.items())), tuple(sorted(each.without.items()))) for each in used]
        counts = [each.shares for each in used] if self._counts_allocations else ()
        return devices, operations, dedicated, shared, *amounts, *counts

    def _device_key(self, device: Device) -> Hashable:
        return (
            self._attributes(device),
            tuple(capacities_of(device).items()),
            device.remainder,
            device.allow_multiple_allocations,
            tuple(
                (use.counter_set, tuple(use.counters.items()), use.compatibility_groups)
                for use in device.consumes_counters
            ),
            device.taints,
            device.binding_conditions,
        )

    def _attributes(self, device: Device) -> tuple[tuple[str, DeviceAttribute], ...]:
        """The attributes that a request may read, and malformed ones, on which every selector fails."""
        is_read = self._is_read
        return tuple(
            [
                (name, value)
                for name, value in device.attributes.items()
                if is_read[name] or (value.string is None and value.int is None and value.bool is None)
            ]
        )


class _ReadNames(dict[str, bool]):
    """Which attributes a request may read, by their full names."""

    def __init__(self, demand: Demand) -> None:
        super().__init__()
        self._names = _names_read(demand)

    def __missing__(self, name: str) -> bool:
        names = self._names
        found = self[name] = names is None or name in names or name.rpartition("/")[2] in names
        return found


def _names_read(demand: Demand) -> frozenset[str] | None:
    """The attributes that selectors and constraints name, without their domains; None if a selector may read any."""
    names: set[str] = set()
    for alternative in demand.alternatives:
        criteria = alternative.criteria
        selectors = (*criteria.class_selectors, *criteria.request_selectors)
        derived = [each for found in alternative.constraints for each in found.expressions if each is not None]
        for reads in (*map(_selector_reads, selectors), *map(_derived_reads, derived)):
            if reads is None:
                continue
            if not reads.is_exact:
                return None
            names.update(name for _, name in reads.attributes)
        names.update(
            each.rpartition("/")[2] for constraint in alternative.constraints for each in constraint.attributes
        )
    return frozenset(names)


def _selector_reads(expression: str) -> Reads | None:
    """None if the expression does not compile, and so fails on every device."""
    try:
        return compile_selector(expression).checked.reads
    except CelError:
        return None


def _derived_reads(expression: str) -> Reads | None:
    try:
        return compile_derived(expression).checked.reads
    except CelError:
        return None
