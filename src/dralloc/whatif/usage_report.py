"""What there is of every device, who holds how much of it, and what could still be had.

Claims are namespaced, so nobody who looks at claims sees what a device has left; slices do not say it either. This joins the
two, for reports and for explanations.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from dralloc.allocator.features import Features
from dralloc.allocator.headroom import largest_request
from dralloc.api.resource_v1 import ConsumerReference, Device, DeviceRequestAllocationResult, DeviceTaint, ResourceClaim
from dralloc.devices.counters import CounterId
from dralloc.devices.device_usage import FREE, DeviceUsage
from dralloc.devices.identity import ClaimId, DeviceId, PoolId
from dralloc.primitives.quantity import Quantity, quantity_like
from dralloc.snapshot.cluster import Snapshot
from dralloc.snapshot.node_selectors import NodeFacts, NodeSelectorError
from dralloc.snapshot.pool_usage import PoolUsage
from dralloc.snapshot.pools import Layout, PoolSlices, PoolStatus
from dralloc.snapshot.slices import IndexedSlice, newest_indexed


@dataclass(frozen=True, slots=True)
class Holding:
    """A device, or a share of it, that a claim has. Admin access takes nothing away from others."""

    claim_id: ClaimId
    request: str
    share_id: str | None
    consumed: Mapping[str, Quantity]
    is_admin: bool
    consumers: tuple[ConsumerReference, ...] = ()


def holdings(claims: Iterable[ResourceClaim]) -> dict[DeviceId, list[Holding]]:
    """For every device that any of the claims has, who has it, by name."""
    found: dict[DeviceId, list[Holding]] = {}
    for claim in sorted(claims, key=ClaimId.of):
        allocation = claim.status.allocation
        for result in allocation.devices.results if allocation is not None else ():
            found.setdefault(DeviceId.of(result), []).append(_holding(claim, result))
    return found


def _holding(claim: ResourceClaim, result: DeviceRequestAllocationResult) -> Holding:
    return Holding(
        ClaimId.of(claim),
        result.request,
        result.share_id,
        result.consumed_capacity,
        bool(result.admin_access),
        claim.status.reserved_for,
    )


# --- Devices ------------------------------------------------------------------------------------------------------------


class DeviceState(Enum):
    FREE = "free"
    # Given out whole.
    IN_USE = "in use"
    # Some claims have shares, and there may be room for more.
    SHARED = "shared"
    # No further share fits, however little is asked for.
    FULL = "full"
    # Claims hold it, but no slice has it any more.
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class CapacityReport:
    """`largest` is the most that one more request could get, after rounding; None where none would fit."""

    name: str
    value: Quantity
    used: Quantity
    free: Quantity
    largest: Quantity | None

    @property
    def is_exhausted(self) -> bool:
        """Whether nothing is left; a request for nothing may still fit."""
        return not self.free and bool(self.value)


@dataclass(frozen=True, slots=True)
class DeviceReport:
    device_id: DeviceId
    state: DeviceState
    is_shareable: bool
    capacities: tuple[CapacityReport, ...]
    holdings: tuple[Holding, ...]
    taints: tuple[DeviceTaint, ...]
    device: Device


@dataclass(frozen=True, slots=True)
class CounterReport:
    counter_id: CounterId
    value: Quantity
    left: Quantity


@dataclass(frozen=True, slots=True)
class PoolReport:
    """The devices of a pool that are for one node, or, with no node, for several."""

    pool_id: PoolId
    node: str
    # Why its devices cannot be given out; empty where they can.
    fault: str
    devices: tuple[DeviceReport, ...]
    counters: tuple[CounterReport, ...]


def usage_report(snapshot: Snapshot, features: Features) -> tuple[PoolReport, ...]:
    """Every pool, by node and name; pools that are not for one node come first."""
    return UsageReporter(features).reports(snapshot)


class _KnownPool(NamedTuple):
    """The reports about a pool, and what they were made from; all of it but the holdings is equal only to itself."""

    causes: tuple[object, ...]
    holdings: Mapping[DeviceId, list[Holding]]
    reports: tuple[PoolReport, ...]


class UsageReporter:
    """Reports about one snapshot after the other. A pool of which nothing has changed keeps its reports, as the same objects."""

    def __init__(self, features: Features) -> None:
        self._features = features
        self._known: dict[PoolId, _KnownPool] = {}
        # Of devices that have the same, and of which the same is used: most are like many others.
        self._capacities_known: dict[Hashable, tuple[CapacityReport, ...]] = {}

    def reports(self, snapshot: Snapshot) -> tuple[PoolReport, ...]:
        """Every pool, by node and name; pools that are not for one node come first."""
        held: dict[PoolId, dict[DeviceId, list[Holding]]] = {}
        for device_id, holders in holdings(snapshot.claims.values()).items():
            held.setdefault(device_id.pool_id, {})[device_id] = holders
        before, self._known = self._known, {}
        for pool_id, slices in snapshot.pools.items():
            self._known[pool_id] = self._pool(before.get(pool_id), snapshot, slices, held.get(pool_id, {}))
        reports = [report for known in self._known.values() for report in known.reports]
        reports.extend(_gone(reports, held))
        return tuple(sorted(reports, key=lambda report: (report.node, report.pool_id)))

    def _pool(
        self,
        known: _KnownPool | None,
        snapshot: Snapshot,
        slices: PoolSlices,
        held: Mapping[DeviceId, list[Holding]],
    ) -> _KnownPool:
        # Which nodes there are matters only to pools that do not say which node they are for.
        nodes = None if all(indexed.node_name for indexed in slices.slices) else snapshot.nodes
        causes = (slices, snapshot.usage.get(slices.pool_id), snapshot.rules, nodes)
        if (
            known is not None
            and all(now is then for now, then in zip(causes, known.causes, strict=True))
            and known.holdings == held
        ):
            return known
        reporter = _PoolReporter(snapshot, self._features, held, self._capacities_known)
        return _KnownPool(causes, held, tuple(reporter.reports(slices)))


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


class _PoolReporter:
    def __init__(
        self,
        snapshot: Snapshot,
        features: Features,
        held: Mapping[DeviceId, list[Holding]],
        capacities_known: dict[Hashable, tuple[CapacityReport, ...]],
    ) -> None:
        self._snapshot = snapshot
        self._features = features
        self._holdings = held
        self._capacities_known = capacities_known

    # --- Pools ----------------------------------------------------------------------------------------------------------

    def reports(self, slices: PoolSlices) -> Iterator[PoolReport]:
        by_node: dict[str, list[IndexedSlice]] = {}
        for indexed in slices.slices:
            by_node.setdefault(indexed.node_name, []).append(indexed)
        for node_name, placed in sorted(by_node.items()):
            current = newest_indexed(placed)
            layout, fault = self._layout(slices, node_name, current)
            devices = tuple(self._device(indexed, bit) for indexed in current for bit in range(len(indexed.devices)))
            counters = tuple(self._counters(slices, layout)) if layout is not None else ()
            if devices:
                yield PoolReport(slices.pool_id, node_name, fault, devices, counters)

    def _layout(self, slices: PoolSlices, node_name: str, current: list[IndexedSlice]) -> tuple[Layout | None, str]:
        """The pool as a node sees it that these slices are for."""
        node = self._a_node_for(node_name, current)
        if node is None:
            return None, "is for no node that is known"
        try:
            layout = slices.layout(node, self._features.visibility)
        except NodeSelectorError as error:
            return None, str(error)
        if layout is None:
            return None, "is not in use: a newer generation is being published, or a feature that it needs is off"
        return (layout, "") if layout.status is PoolStatus.READY else (None, layout.fault)

    def _a_node_for(self, node_name: str, slices: list[IndexedSlice]) -> NodeFacts | None:
        if node_name:
            return self._snapshot.nodes.get(node_name) or NodeFacts(node_name)
        known = sorted(self._snapshot.nodes.values(), key=lambda node: node.name)
        for node in known or [NodeFacts("")]:
            try:
                if any(indexed.is_for(node) for indexed in slices):
                    return node
            except NodeSelectorError:
                return node
        return None

    def _counters(self, slices: PoolSlices, layout: Layout) -> Iterator[CounterReport]:
        usage = self._snapshot.usage.get(slices.pool_id) or PoolUsage.unused(slices.slices)
        left = slices.counters_left(layout, usage)
        for index in (*layout.slices, *layout.elsewhere, *range(len(slices.slices))):
            for counter_set in slices.slices[index].source.spec.shared_counters or ():
                for name, counter in counter_set.counters.items():
                    counter_id = CounterId(counter_set.name, name)
                    if counter_id in left:
                        yield CounterReport(
                            counter_id, counter.value, quantity_like(counter.value, left.pop(counter_id))
                        )

    # --- Devices --------------------------------------------------------------------------------------------------------

    def _device(self, indexed: IndexedSlice, bit: int) -> DeviceReport:
        device, device_id = indexed.devices[bit], indexed.device_id(bit)
        pool_usage = self._snapshot.usage.get(indexed.pool_id)
        usage = pool_usage.of(device.name) if pool_usage is not None else FREE
        capacities = self._capacities(device, usage)
        rules = indexed.taints_from(self._snapshot.rules) if self._features.taint_rules else ()
        return DeviceReport(
            device_id,
            self._state(device, usage, capacities),
            self._is_shareable(device),
            capacities,
            tuple(self._holdings.get(device_id, ())),
            (*device.taints, *(taint for mask, taint in rules if mask >> bit & 1)),
            device,
        )

    def _is_shareable(self, device: Device) -> bool:
        return self._features.consumable_capacity and bool(device.allow_multiple_allocations)

    def _capacities(self, device: Device, usage: DeviceUsage) -> tuple[CapacityReport, ...]:
        used = (usage.dedicated > 0, usage.shares > 0, tuple(sorted(usage.consumed.items())))
        key = (tuple(device.capacity.items()), self._is_shareable(device), used)
        known = self._capacities_known.get(key)
        if known is None:
            known = self._capacities_known[key] = tuple(self._work_out_capacities(device, usage))
        return known

    def _work_out_capacities(self, device: Device, usage: DeviceUsage) -> Iterator[CapacityReport]:
        free = [capacity.value.nanos - usage.consumed.get(name, 0) for name, capacity in device.capacity.items()]
        is_open = not usage.dedicated and (self._is_shareable(device) or not usage.shares)
        for (name, capacity), nanos in zip(device.capacity.items(), free, strict=True):
            largest = None
            if is_open:
                largest = largest_request(
                    device.capacity, name, free, fractional_ranges=self._features.fractional_ranges
                )
            left = quantity_like(capacity.value, 0 if usage.dedicated else nanos)
            yield CapacityReport(name, capacity.value, capacity.value - left, left, largest)

    def _state(self, device: Device, usage: DeviceUsage, capacities: tuple[CapacityReport, ...]) -> DeviceState:
        if usage.is_free:
            return DeviceState.FREE
        if usage.dedicated or not self._is_shareable(device):
            return DeviceState.IN_USE
        is_full = any(report.largest is None for report in capacities) or (
            bool(capacities) and all(report.is_exhausted for report in capacities)
        )
        return DeviceState.FULL if is_full else DeviceState.SHARED
