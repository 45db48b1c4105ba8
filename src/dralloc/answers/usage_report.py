"""Every device: which claims hold it, its state, and what one more claim can get of it.

Claims are namespaced, and slices do not show use, so neither alone shows what a device has left. This joins the two. What is
called free can be claimed: the allocator's own checks decide (`allocator/availability`, `allocator/headroom`).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from dralloc.answers.device_report import (
    CounterReport,
    DeviceReport,
    DeviceState,
    HardwareAmount,
    Holding,
    PoolReport,
    free_sources,
    holdings,
)
from dralloc.devices.allocator.availability import Block, BlockCause, PoolAvailability
from dralloc.devices.allocator.features import Features
from dralloc.devices.allocator.headroom import CapacityReport, capacities_left
from dralloc.devices.counters import CounterId
from dralloc.devices.device_usage import DeviceUsage
from dralloc.devices.identity import DeviceId, PoolId, product_of
from dralloc.devices.node_selectors import Anchor, NodeFacts, NodeSelectorError, anchors_of_node
from dralloc.devices.pool_usage import PoolUsage
from dralloc.devices.pools import Layout, PoolSlices, PoolState
from dralloc.devices.published_slice import draws_together
from dralloc.devices.share_terms import capacities_of
from dralloc.devices.slices import IndexedSlice, newest_indexed
from dralloc.devices.snapshot import Snapshot, VisiblePool
from dralloc.kube.core_v1 import Node
from dralloc.kube.resource_v1 import Device, DeviceTaint
from dralloc.primitives.quantity import quantity_like
from dralloc.scheduler.decide.node_fit import REPELLING


def closed_nodes(nodes: Iterable[Node]) -> dict[str, str]:
    """The nodes that take no pods without tolerations, with the reason."""
    closed: dict[str, str] = {}
    for node in nodes:
        taints = [taint for taint in node.spec.taints if taint.effect in REPELLING]
        if node.spec.unschedulable:
            closed[node.metadata.name] = "node is unschedulable"
        elif taints:
            shown = ", ".join(f"{each.key}{f'={each.value}' if each.value else ''}:{each.effect}" for each in taints)
            closed[node.metadata.name] = f"node has taint {shown}"
    return closed


def usage_report(
    snapshot: Snapshot, features: Features, closed: Mapping[str, str] | None = None
) -> tuple[PoolReport, ...]:
    """Every pool, by node and name; pools that are not for one node come first. `closed` is that of `closed_nodes`."""
    return UsageReporter(features).reports(snapshot, closed or {})


class _KnownPool(NamedTuple):
    """The reports about a pool, and what they were made from; `causes` are compared by identity."""

    causes: tuple[object, ...]
    holdings: Mapping[DeviceId, list[Holding]]
    closed: Mapping[str, str]
    reports: tuple[PoolReport, ...]


class UsageReporter:
    """Reports about one snapshot after the other. A pool of which nothing has changed keeps its reports, as the same objects."""

    def __init__(self, features: Features) -> None:
        # As the scheduler decides.
        self._features = features.of_scheduler()
        self._known: dict[PoolId, _KnownPool] = {}
        # Of devices that have the same, and of which the same is used: most are like many others.
        self._capacities_known: _KnownCapacities = {}

    def reports(self, snapshot: Snapshot, closed: Mapping[str, str] | None = None) -> tuple[PoolReport, ...]:
        """Every pool, by node and name; pools that are not for one node come first."""
        held: dict[PoolId, dict[DeviceId, list[Holding]]] = {}
        for device_id, holders in holdings(snapshot.claims.values()).items():
            held.setdefault(device_id.pool_id, {})[device_id] = holders
        closed = {**_faulty_nodes(snapshot, self._features), **(closed or {})}
        before, self._known = self._known, {}
        directory = NodeDirectory(snapshot)
        for pool_id, slices in snapshot.pools.items():
            known, here = before.get(pool_id), held.get(pool_id, {})
            self._known[pool_id] = self._pool(known, snapshot, slices, here, closed, directory)
        reports = [report for each in self._known.values() for report in each.reports]
        reports.extend(_gone(reports, held))
        return tuple(sorted(reports, key=lambda report: (report.node, report.pool_id)))

    def _pool(
        self,
        known: _KnownPool | None,
        snapshot: Snapshot,
        slices: PoolSlices,
        held: Mapping[DeviceId, list[Holding]],
        closed: Mapping[str, str],
        directory: NodeDirectory,
    ) -> _KnownPool:
        # Which other nodes there are matters only to pools that do not say which node they are for.
        names = {indexed.node_name for indexed in slices.slices}
        nodes = snapshot.nodes if "" in names else None
        here = {
            name: reason
            for name in (names.union(snapshot.nodes) - {""} if "" in names else names)
            if (reason := _why_closed(snapshot, name, closed))
        }
        causes = (slices, snapshot.usage.get(slices.pool_id), snapshot.rules, nodes)
        if (
            known is not None
            and all(now is then for now, then in zip(causes, known.causes, strict=True))
            and known.holdings == held
            and known.closed == here
        ):
            return known
        reporter = _PoolReporter(snapshot, slices, self._features, held, here, directory, self._capacities_known)
        return _KnownPool(causes, held, here, tuple(reporter.reports()))


def _why_closed(snapshot: Snapshot, name: str, closed: Mapping[str, str]) -> str:
    """Why no pod can get devices on the node; empty if pods can. Where no nodes are known, any may exist."""
    if name not in snapshot.nodes and snapshot.nodes:
        return f"there is no node {name}"
    return closed.get(name, "")


def _faulty_nodes(snapshot: Snapshot, features: Features) -> dict[str, str]:
    """The nodes where nothing can be allocated, because a node selector of a slice is invalid."""
    indexed = (each for slices in snapshot.pools.values() for each in slices.slices)
    if not any(each.selects_per_device or each.source.spec.node_selector is not None for each in indexed):
        return {}
    views = (snapshot.view(node, features.visibility) for node in snapshot.nodes.values())
    return {view.node.name: str(view.fault) for view in views if view.fault is not None}


def _gone(
    reports: Iterable[PoolReport], held: Mapping[PoolId, Mapping[DeviceId, list[Holding]]]
) -> Iterator[PoolReport]:
    """Devices that claims hold and no slice has."""
    present = {device.device_id for report in reports if report.pool_id in held for device in report.devices}
    for pool_id, by_device in sorted(held.items()):
        devices = tuple(
            DeviceReport(device_id, DeviceState.GONE, False, (), tuple(holders), (), Device(name=device_id.device))
            for device_id, holders in by_device.items()
            if device_id not in present
        )
        if devices:
            yield PoolReport(pool_id, "", "has no such devices any more", devices, ())


# The capacities of a device, and whether they have room for a request.
_KnownCapacities = dict[Hashable, tuple[tuple[CapacityReport, ...], bool]]


class _PoolReporter:
    def __init__(
        self,
        snapshot: Snapshot,
        slices: PoolSlices,
        features: Features,
        held: Mapping[DeviceId, list[Holding]],
        closed: Mapping[str, str],
        directory: NodeDirectory,
        capacities_known: _KnownCapacities,
    ) -> None:
        self._snapshot = snapshot
        self._slices = slices
        self._features = features
        self._holdings = held
        self._closed = closed
        self._directory = directory
        self._capacities_known = capacities_known
        self._usage = snapshot.usage.get(slices.pool_id) or PoolUsage.unused(slices.slices)
        # Counter sets that an earlier report has in its hardware.
        self._sets_counted: set[str] = set()

    # --- Pools ----------------------------------------------------------------------------------------------------------

    def reports(self) -> Iterator[PoolReport]:
        by_node: dict[str, list[IndexedSlice]] = {}
        for indexed in self._slices.slices:
            by_node.setdefault(indexed.node_name, []).append(indexed)
        for node_name, placed in sorted(by_node.items()):
            current = newest_indexed(placed)
            if not any(indexed.devices for indexed in current):
                continue
            survey = PoolSurvey(self._snapshot, self._slices, self._features, self._closed, self._directory)
            survey.look(node_name, current)
            devices = tuple(device for indexed in current for device in self._devices(indexed, survey))
            counters = tuple(self._counters(survey.layout)) if survey.layout is not None else ()
            hardware = self._hardware(devices, survey.availability)
            pool_id, availability = self._slices.pool_id, survey.availability
            yield PoolReport(pool_id, node_name, survey.fault, devices, counters, hardware, availability)

    def _counters(self, layout: Layout) -> Iterator[CounterReport]:
        left = self._slices.counters_left(layout, self._usage)
        for index in (*layout.slices, *layout.elsewhere, *range(len(self._slices.slices))):
            for counter_set in self._slices.slices[index].source.spec.shared_counters or ():
                for name, counter in counter_set.counters.items():
                    counter_id = CounterId(counter_set.name, name)
                    if counter_id in left:
                        yield CounterReport(
                            counter_id, counter.value, quantity_like(counter.value, left.pop(counter_id))
                        )

    # --- Hardware -------------------------------------------------------------------------------------------------------

    def _hardware(
        self, devices: Sequence[DeviceReport], availability: PoolAvailability | None
    ) -> tuple[HardwareAmount, ...]:
        drawing: list[DeviceReport] = []
        # Devices that are alike have the same capacities, as the same object.
        alike: dict[tuple[int, str], tuple[int, tuple[CapacityReport, ...]]] = {}
        for device in devices:
            if device.device.consumes_counters and self._features.partitionable_devices:
                drawing.append(device)
            elif device.capacities:
                key = (id(device.capacities), product_of(device.device))
                count, _ = alike.get(key, (0, ()))
                alike[key] = (count + 1, device.capacities)
        amounts = [
            HardwareAmount(
                each.name,
                each.value,
                count * each.value.nanos,
                count * each.used.nanos,
                count * each.free.nanos,
                product,
            )
            for (_, product), (count, capacities) in alike.items()
            for each in capacities
        ]
        amounts += self._counter_amounts(drawing, availability) if drawing else ()
        sums: dict[tuple[str, str], HardwareAmount] = {}
        for amount in amounts:
            name = (amount.product, amount.name)
            sums[name] = sums[name] + amount if name in sums else amount
        return tuple(sums.values())

    def _counter_amounts(
        self, devices: Sequence[DeviceReport], availability: PoolAvailability | None
    ) -> Iterator[HardwareAmount]:
        # Devices of one set are parts of one card.
        drawn_from = {
            use.counter_set: product_of(device.device) for device in devices for use in device.device.consumes_counters
        }
        mine = drawn_from.keys() - self._sets_counted
        self._sets_counted |= mine
        current = self._slices.current_with_counters
        used = draws_together(current, [name for name, _ in self._usage.devices.items()])
        available = availability.drawn_together(free_sources(devices)) if availability is not None else {}
        seen: set[CounterId] = set()
        for indexed in newest_indexed(self._slices.slices):
            for counter_set in indexed.source.spec.shared_counters or ():
                for name, counter in counter_set.counters.items():
                    counter_id = CounterId(counter_set.name, name)
                    if counter_set.name in mine and counter_id not in seen:
                        seen.add(counter_id)
                        amounts = (counter.value.nanos, used.get(counter_id, 0), available.get(counter_id, 0))
                        yield HardwareAmount(name, counter.value, *amounts, drawn_from[counter_set.name])

    # --- Devices --------------------------------------------------------------------------------------------------------

    def _devices(self, indexed: IndexedSlice, survey: PoolSurvey) -> Iterator[DeviceReport]:
        rules = tuple(indexed.taints_from(self._snapshot.rules)) if self._features.taint_rules else ()
        for bit, device in enumerate(indexed.devices):
            taints = (*device.taints, *(taint for mask, taint in rules if mask >> bit & 1)) if rules else device.taints
            yield self._device(indexed, bit, taints, survey.block(indexed, bit))

    def _device(
        self, indexed: IndexedSlice, bit: int, taints: tuple[DeviceTaint, ...], block: Block | None
    ) -> DeviceReport:
        device, device_id = indexed.devices[bit], indexed.device_id(bit)
        usage = self._usage.of(device.name)
        is_whole = usage.dedicated > 0 or (usage.shares > 0 and not self._is_shareable(device))
        capacities, has_room = self._capacities(device, usage, block is None and not is_whole)
        if is_whole or (usage.shares and not has_room):
            state, block = DeviceState.FULL, None
        elif block is not None or not has_room:
            state = DeviceState.BLOCKED
            block = block or Block(BlockCause.POLICY, "its request policy allows no amount that it has")
        else:
            state = DeviceState.SHARED if usage.shares else DeviceState.FREE
        return DeviceReport(
            device_id,
            state,
            self._is_shareable(device),
            capacities,
            tuple(self._holdings.get(device_id, ())),
            taints,
            device,
            block,
            (indexed, bit),
        )

    def _is_shareable(self, device: Device) -> bool:
        return self._features.consumable_capacity and bool(device.allow_multiple_allocations)

    def _capacities(self, device: Device, usage: DeviceUsage, is_open: bool) -> tuple[tuple[CapacityReport, ...], bool]:
        """What is used of the capacities, and whether they have room for a request."""
        consumed = tuple(sorted(usage.consumed.items())) if usage.consumed else ()
        used = (usage.dedicated > 0, usage.shares > 0, consumed, tuple(sorted(usage.without.items())))
        key = (tuple(capacities_of(device).items()), device.remainder, is_open, used)
        known = self._capacities_known.get(key)
        if known is None:
            known = self._capacities_known[key] = capacities_left(device, usage, self._features, is_open=is_open)
        return known


# --- Pool survey ----------------------------------------------------------------------------------------------------
# What blocks the devices of a pool, by the allocator's own checks on every node that sees them.


class NodeDirectory:
    """Finds the nodes that may see slices, without a look at all nodes for every pool."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._nodes = snapshot.nodes

    @cached_property
    def _by_anchor(self) -> dict[Anchor, list[NodeFacts]]:
        found: dict[Anchor, list[NodeFacts]] = {}
        for node in self._nodes.values():
            for anchor in anchors_of_node(node):
                found.setdefault(anchor, []).append(node)
        return found

    def nodes_for(self, slices: Iterable[IndexedSlice]) -> list[NodeFacts]:
        """By name. Some of them may see none of the slices."""
        anchors = {anchor for indexed in slices for anchor in indexed.anchors}
        found = {node.name: node for anchor in anchors for node in self._by_anchor.get(anchor, ())}
        return [found[name] for name in sorted(found)]


class PoolSurvey:
    """What blocks the devices of a pool. A device of a pool for several nodes is blocked if it is on every one of them."""

    def __init__(
        self,
        snapshot: Snapshot,
        slices: PoolSlices,
        features: Features,
        closed: Mapping[str, str],
        directory: NodeDirectory,
    ) -> None:
        self._snapshot = snapshot
        self._slices = slices
        self._features = features
        self._closed = closed
        self._directory = directory
        # What blocks devices on every node that was asked about their slice.
        self._blocks: dict[IndexedSlice, dict[int, Block]] = {}
        # What blocks devices of slices that no node was asked about.
        self._pool_block: Block | None = None
        self.fault = ""
        self.layout: Layout | None = None
        self.availability: PoolAvailability | None = None

    def block(self, indexed: IndexedSlice, bit: int) -> Block | None:
        known = self._blocks.get(indexed)
        return self._pool_block if known is None else known.get(bit)

    def look(self, node_name: str, current: list[IndexedSlice]) -> None:
        seen: set[Hashable] = set()
        for node, layout, fault in self._nodes_for(node_name, current):
            if layout is None:
                self.fault = self.fault or fault
                continue
            self.layout = self.layout or layout
            if reason := self._closed.get(node.name, ""):
                self._pool_block = self._pool_block or Block(BlockCause.NODE, reason)
                continue
            key = self._sameness(node, layout, current)
            if key in seen:
                continue
            seen.add(key)
            pool = VisiblePool(self._slices, layout)
            availability = PoolAvailability(self._snapshot, node, pool, self._features)
            self.availability = self.availability or availability
            self._ask(availability, current)
            if node_name or not any(self._blocks.values()):
                break
        if self.layout is not None:
            self.fault = ""
            return
        self.fault = self.fault or "is for no node that is known"
        self._pool_block = Block(BlockCause.POOL, f"the pool {self.fault}")

    def _ask(self, availability: PoolAvailability, current: Iterable[IndexedSlice]) -> None:
        for indexed in current:
            blocks, known = availability.blocks(indexed), self._blocks.get(indexed)
            if known is not None:
                # The first reason stays, unless it was only that the device is for other nodes.
                blocks = {
                    bit: block if known[bit].cause is BlockCause.POOL else known[bit]
                    for bit, block in blocks.items()
                    if bit in known
                }
            self._blocks[indexed] = blocks

    def _sameness(self, node: NodeFacts, layout: Layout, current: Iterable[IndexedSlice]) -> Hashable:
        """Equal for nodes that get the same answers."""
        placements = tuple(each.devices_for(node)[0] for each in current if each.selects_per_device)
        declared = node.declared_features if self._features.is_experimental else None
        return id(layout), placements, declared

    def _nodes_for(self, node_name: str, current: list[IndexedSlice]) -> Iterator[tuple[NodeFacts, Layout | None, str]]:
        """The nodes that can see the slices, with the pool as they see it, or what is wrong with it."""
        if node_name:
            nodes = [self._snapshot.nodes.get(node_name) or NodeFacts(node_name)]
        else:
            nodes = self._directory.nodes_for(current) if self._snapshot.nodes else [NodeFacts("")]
        for node in nodes:
            try:
                if node_name or any(indexed.is_for(node) for indexed in current):
                    yield node, *self._layout(node)
            except NodeSelectorError as error:
                yield node, None, str(error)

    def _layout(self, node: NodeFacts) -> tuple[Layout | None, str]:
        layout = self._slices.layout(node, self._features.visibility)
        if layout is None:
            return None, "is not in use: a newer generation is being published, or a feature that it needs is off"
        return (layout, "") if layout.status is PoolState.READY else (None, layout.fault)
