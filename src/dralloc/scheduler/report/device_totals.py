"""The devices of each driver in a few numbers, for metrics: how many are free, their shares, what is left, the largest fit.

What is free can be claimed, by the allocator's own checks. Devices that consume counters overlap, so that their counter sets count
instead of their capacities, as in `dralloc top devices --summary`. The numbers follow changes: a node is computed again only after it
changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping
from typing import Final, NamedTuple

from dralloc.devices.allocator.availability import PoolAvailability
from dralloc.devices.allocator.features import Features
from dralloc.devices.allocator.headroom import CapacityReport, capacities_left
from dralloc.devices.device_usage import FREE, DeviceUsage
from dralloc.devices.slices import IndexedSlice, bits_of
from dralloc.scheduler.contract import ClusterView
from dralloc.scheduler.decide.node_fit import misfit_of_offer
from dralloc.scheduler.report.device_places import DevicePlaces, LocalPool, Place, PlacedPools
from dralloc.scheduler.report.stranded_devices import ANY_POD

# Of each driver, so that no driver makes more series.
CAPACITIES_MAX: Final = 100
KNOWN_MAX: Final = 20_000


class CapacityTotals(NamedTuple):
    """In nanos. `largest` is the most that one more request can get of one device: 0 if none fits, None for a counter, which no
    request names."""

    value: int
    free: int
    largest: int | None


class DriverTotals(NamedTuple):
    """`free` devices are in no use, and a claim can get each of them."""

    devices: int
    free: int
    shares: int
    capacities: Mapping[str, CapacityTotals]


class _PlaceTotals:
    """The devices of a driver in one place."""

    def __init__(self) -> None:
        self.devices = self.free = self.shares = 0
        self.value: Counter[str] = Counter()
        self.left: Counter[str] = Counter()
        self.largest: dict[str, int] = {}


class DeviceTotals:
    def __init__(self, view: ClusterView, features: Features) -> None:
        self._view = view
        self._features = features.of_scheduler()
        self._places = DevicePlaces(view, self._features)
        self._known: dict[Place, Mapping[str, _PlaceTotals]] = {}
        self._causes_known: dict[Place, tuple[object, ...]] = {}
        self._counts: Counter[tuple[str, str]] = Counter()
        # By driver and capacity: what there is and what is left, and how many places have which largest fit.
        self._value: Counter[tuple[str, str]] = Counter()
        self._left: Counter[tuple[str, str]] = Counter()
        self._largest: dict[tuple[str, str], Counter[int]] = {}
        # Of devices with the same content, of which the same is used.
        self._capacities: dict[Hashable, tuple[tuple[CapacityReport, ...], bool]] = {}

    def by_driver(self) -> Mapping[str, DriverTotals]:
        """Every driver that has devices in ready pools."""
        for _ in self.follow():
            pass
        return {
            driver: DriverTotals(
                devices, self._counts[driver, "free"], self._counts[driver, "shares"], self._capacities_of(driver)
            )
            for (driver, what), devices in sorted(self._counts.items())
            if what == "devices" and devices
        }

    def follow(self) -> Iterator[None]:
        """Take in what changed, one place in each step."""
        for place in self._places.outdated(self._known):
            self._take(place)
            yield

    def _take(self, place: Place) -> None:
        there = self._places.devices_at(place)
        causes = self._causes(there)
        if causes == self._causes_known.get(place, ()):
            # Something else of the node changed, or one change concerns all places.
            return
        self._count(place, -1)
        self._known.pop(place, None)
        self._causes_known.pop(place, None)
        if there is not None:
            self._causes_known[place] = causes
            self._known[place] = {driver: self._totals(there, mine) for driver, mine in there.pools.items()}
            self._count(place, 1)

    def _causes(self, there: PlacedPools | None) -> tuple[object, ...]:
        """What the totals of a place are made from; pools, their use and rules are compared by identity."""
        if there is None:
            return ()
        usage = self._view.snapshot.usage
        pools = [local.pool for mine in there.pools.values() for local in mine]
        return (
            there.place,
            _is_closed(there),
            self._view.snapshot.rules,
            *(part for pool in pools for part in (pool.slices, pool.layout, usage.get(pool.pool_id))),
        )

    def _capacities_of(self, driver: str) -> dict[str, CapacityTotals]:
        names = sorted(name for of, name in self._value if of == driver)[:CAPACITIES_MAX]
        return {
            name: CapacityTotals(
                self._value[driver, name],
                self._left[driver, name],
                max(self._largest.get((driver, name), ()), default=None),
            )
            for name in names
        }

    def _count(self, place: Place, sign: int) -> None:
        for driver, each in self._known.get(place, {}).items():
            for what, number in (("devices", each.devices), ("free", each.free), ("shares", each.shares)):
                self._counts[driver, what] += sign * number
            for sums, amounts in ((self._value, each.value), (self._left, each.left)):
                for name, amount in amounts.items():
                    sums[driver, name] += sign * amount
                    if sums is self._value and not sums[driver, name]:
                        del sums[driver, name]
            for name, amount in each.largest.items():
                fits = self._largest.setdefault((driver, name), Counter())
                fits[amount] += sign
                if not fits[amount]:
                    del fits[amount]
                if not fits:
                    del self._largest[driver, name]

    # --- One place --------------------------------------------------------------------------------------------------

    def _totals(self, there: PlacedPools, mine: list[LocalPool]) -> _PlaceTotals:
        is_closed = _is_closed(there)
        totals = _PlaceTotals()
        for local in mine:
            availability = PoolAvailability(self._view.snapshot, there.place, local.pool, self._features)
            drawing: list[tuple[IndexedSlice, int]] = []
            is_counting = False
            for indexed in local.slices:
                is_counting = is_counting or bool(indexed.counting)
                drawing += self._add_slice(totals, there, indexed, availability, is_closed)
            if is_counting and self._features.partitionable_devices:
                mine_of = _sets_of(local)
                for counter_id, amount in local.pool.layout.counters.items():
                    totals.value[counter_id.counter] += amount if counter_id.counter_set in mine_of else 0
                for counter_id, amount in availability.drawn_together(drawing).items():
                    totals.left[counter_id.counter] += amount if counter_id.counter_set in mine_of else 0
        return totals

    def _add_slice(
        self,
        totals: _PlaceTotals,
        there: PlacedPools,
        indexed: IndexedSlice,
        availability: PoolAvailability,
        is_closed: bool,
    ) -> Iterator[tuple[IndexedSlice, int]]:
        """Adds the devices of a slice; yields those that consume counters and are free."""
        usage = self._view.snapshot.usage.get(indexed.pool_id)
        blocks = {} if is_closed else availability.blocks(indexed)
        for bit in bits_of(indexed.devices_for(there.place)[0]):
            device = indexed.devices[bit]
            used = usage.of(device.name) if usage is not None else FREE
            is_shareable = self._features.consumable_capacity and bool(device.allow_multiple_allocations)
            is_whole = used.dedicated > 0 or (used.shares > 0 and not is_shareable)
            is_open = not is_closed and bit not in blocks and not is_whole
            capacities, has_room = self._capacities_left(indexed, bit, used, is_open)
            draws = bool(device.consumes_counters) and self._features.partitionable_devices
            is_free = is_open and has_room and not used.shares
            totals.devices += 1
            totals.free += is_free
            totals.shares += used.shares
            for each in capacities:
                largest = each.largest.nanos if each.largest is not None else 0
                totals.largest[each.name] = max(totals.largest.get(each.name, 0), largest)
                if not draws:
                    totals.value[each.name] += each.value.nanos
                    totals.left[each.name] += each.free.nanos
            if draws and is_free:
                yield indexed, bit

    def _capacities_left(
        self, indexed: IndexedSlice, bit: int, used: DeviceUsage, is_open: bool
    ) -> tuple[tuple[CapacityReport, ...], bool]:
        amounts = (tuple(sorted(used.consumed.items())), tuple(sorted(used.without.items()))) if used.shares else ()
        key = (indexed.shape(bit), is_open, used.dedicated > 0, used.shares > 0, amounts)
        found = self._capacities.get(key)
        if found is None:
            if len(self._capacities) >= KNOWN_MAX:
                self._capacities.clear()
            found = capacities_left(indexed.devices[bit], used, self._features, is_open=is_open)
            self._capacities[key] = found
        return found


def _is_closed(there: PlacedPools) -> bool:
    """True if the node takes no pod without tolerations."""
    return there.node is not None and misfit_of_offer(ANY_POD, there.node.offer) is not None


def _sets_of(local: LocalPool) -> frozenset[str]:
    """The counter sets that count here. One from which devices of several nodes draw counts on the first of them."""
    first: dict[str, str] = {}
    for indexed in local.pool.slices.slices:
        for bit in bits_of(indexed.counting):
            for use in indexed.devices[bit].consumes_counters:
                first[use.counter_set] = min(first.get(use.counter_set, indexed.node_name), indexed.node_name)
    here = {indexed.node_name for indexed in local.slices}
    return frozenset(name for name, node in first.items() if node in here)
