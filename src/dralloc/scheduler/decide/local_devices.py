"""The devices that only one node can use, as strategies see them: how much of each is left, before and after a pod.

Nodes with slices of the same content have one `UnitLayout`, and equal states of a layout are one `LocalDevices`, so that what a strategy
computes about a state is computed once. A *unit* is a device, or a card: partitions that draw from one counter set are counted as
what is left of the set. Devices that several nodes can use are no node's loss and are left out.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from operator import is_
from typing import Any, Final, NamedTuple

from dralloc.devices.allocator.candidate_devices import DeviceCriteria, matches_of
from dralloc.devices.allocator.features import Features
from dralloc.devices.allocator.outcome import Allocated, DeviceAllocation
from dralloc.devices.allocator.requests import Alternative
from dralloc.devices.allocator.single_request import SingleRequest
from dralloc.devices.device_usage import FREE, DeviceUsage
from dralloc.devices.identity import DeviceId, PoolId
from dralloc.devices.node_selectors import NodeFacts
from dralloc.devices.pool_usage import PoolUsage
from dralloc.devices.pools import PoolSlices, PoolState
from dralloc.devices.slices import IndexedSlice
from dralloc.devices.snapshot import NodeView, Snapshot, VisiblePool
from dralloc.kube.resource_v1 import FIRST_FIT
from dralloc.primitives.persistent_map import PersistentMap
from dralloc.scheduler.decide.device_judge import DeviceJudge

# Amounts of devices are counted in thousandths of a device.
WHOLE: Final = 1000
STATES_MAX: Final = 20_000
NODES_MAX: Final = 20_000

# What is left of a unit, or what a request takes of it, in nanos by capacity or counter.
Amounts = tuple[int, ...]


class Unit(NamedTuple):
    """`bits` are the device of the slice; or the partitions of a card, with their slices in `slices`."""

    slices: tuple[IndexedSlice, ...]
    bits: tuple[int, ...]
    names: tuple[Hashable, ...]
    values: Amounts
    is_shareable: bool
    is_card: bool = False

    def idle(self, left: Amounts) -> int:
        """In thousandths. What is left of a device is what is left of its scarcest capacity; of a card, the mean."""
        parts = [WHOLE * max(amount, 0) // value for amount, value in zip(left, self.values, strict=True) if value > 0]
        if not parts:
            return WHOLE
        return sum(parts) // len(parts) if self.is_card else min(parts)

    def size(self, charge: Amounts) -> int:
        """What a request takes, in thousandths."""
        parts = [WHOLE * amount // value for amount, value in zip(charge, self.values, strict=True) if value > 0]
        if not parts:
            return 0
        return sum(parts) // len(parts) if self.is_card else max(parts)


def copies(left: Amounts, charge: Amounts) -> int:
    """How often a unit can serve a request; one that takes nothing is served as often as there are thousandths."""
    return min((max(have, 0) // take for have, take in zip(left, charge, strict=True) if take > 0), default=WHOLE)


class LocalDevices:
    """A state of a layout: what is left of each unit."""

    __slots__ = ("answers", "idle", "layout", "left")

    def __init__(self, layout: UnitLayout, left: tuple[Amounts, ...]) -> None:
        self.layout = layout
        self.left = left
        self.idle = sum(self.idle_by_unit)
        # What strategies compute about the state.
        self.answers: dict[Hashable, Any] = {}

    @property
    def idle_by_unit(self) -> tuple[int, ...]:
        return tuple(unit.idle(left) for unit, left in zip(self.layout.units, self.left, strict=True))

    def after_first_fit(self, criteria: DeviceCriteria, count: int) -> LocalDevices | None:
        """The state after one plain request; None if it is not served."""
        key = criteria, count
        if key not in self.answers:
            self.answers[key] = self._first_fit(criteria, count)
        found: LocalDevices | None = self.answers[key]
        return found

    def _first_fit(self, criteria: DeviceCriteria, count: int) -> LocalDevices | None:
        left = list(self.left)
        for index, charge in enumerate(self.layout.charges(criteria)):
            if charge is not None and count and copies(left[index], charge):
                left[index] = tuple(have - take for have, take in zip(left[index], charge, strict=True))
                count -= 1
        return self.layout.state(tuple(left)) if not count else None


class UnitLayout:
    """The units of a node, in the order in which the allocator tries devices."""

    def __init__(self, units: tuple[Unit, ...], features: Features) -> None:
        self.units = units
        self.has_cards = any(unit.is_card for unit in units)
        self.has_terms = any(each.terms for unit in units for each in unit.slices)
        self._shares = features.consumable_capacity
        self._states: dict[tuple[Amounts, ...], LocalDevices] = {}
        self._charges: dict[DeviceCriteria, tuple[Amounts | None, ...]] = {}
        self.answers: dict[Hashable, Any] = {}

    def state(self, left: tuple[Amounts, ...]) -> LocalDevices:
        known = self._states.get(left)
        if known is None:
            if len(self._states) >= STATES_MAX:
                self._states.clear()
            known = self._states[left] = LocalDevices(self, left)
        return known

    def charges(self, criteria: DeviceCriteria) -> tuple[Amounts | None, ...]:
        """What a request takes of each unit; None where the unit does not match."""
        known = self._charges.get(criteria)
        if known is None:
            known = self._charges[criteria] = tuple(self._charge(unit, criteria) for unit in self.units)
        return known

    def _charge(self, unit: Unit, criteria: DeviceCriteria) -> Amounts | None:
        found: list[Amounts] = []
        for indexed, bit in zip(unit.slices, unit.bits, strict=True):
            matches = matches_of(indexed, criteria)
            if not (matches.matched & ~matches.barred) >> bit & 1:
                continue
            if unit.is_card:
                drawn = dict(indexed.draws[bit])
                found.append(tuple(drawn.get(name, 0) for name in unit.names))  # type: ignore[call-overload]
            elif unit.is_shareable and self._shares:
                charge = matches.charges[bit].nanos
                found.append(charge if len(charge) == len(unit.values) else (0,) * len(unit.values))
            else:
                found.append(unit.values)
        # Of a card, the smallest partition counts.
        return min(found, key=lambda charge: (unit.size(charge), charge), default=None)


class _NodeUnits(NamedTuple):
    """A node's layout, with the devices of the node that its units are."""

    view: NodeView
    pool_ids: tuple[PoolId, ...]
    layout: UnitLayout
    # By unit: the pool and the device, or the counter set of a card.
    owners: tuple[tuple[VisiblePool, str], ...]
    unit_of: Mapping[DeviceId, int]
    is_everything: bool


class DeviceUse(NamedTuple):
    """What a pod takes: by first fit, if it has one plain request; otherwise the devices that a search finds."""

    judge: DeviceJudge
    plain: Alternative | None

    @classmethod
    def of(cls, judge: DeviceJudge) -> DeviceUse:
        demand = judge.demand
        is_single = SingleRequest.of(demand) is not None and demand.alternatives[0].preference == FIRST_FIT
        return cls(judge, demand.alternatives[0] if is_single else None)


class _NodeDevices(NamedTuple):
    """The devices of a node, and what they were found from."""

    node: NodeFacts
    pools: PersistentMap[PoolId, PoolSlices]
    placements: object
    units: _NodeUnits
    usages: list[PoolUsage | None]
    devices: LocalDevices


class LocalDeviceIndex:
    """The local devices of nodes in any number of snapshots."""

    def __init__(self, features: Features) -> None:
        self._features = features
        self._layouts: dict[Hashable, UnitLayout] = {}
        self._nodes: dict[str, _NodeUnits] = {}
        self._states: dict[str, _NodeDevices] = {}

    def of(self, node: NodeFacts, snapshot: Snapshot) -> LocalDevices:
        known = self._states.get(node.name)
        pools, placements = snapshot.pools, snapshot.placements
        if known is not None and known.pools is pools and known.placements is placements and known.node is node:
            units = known.units
        else:
            known, units = None, self._units(node, snapshot)
        usages = [*map(snapshot.usage.get, units.pool_ids)]
        if known is not None and all(map(is_, known.usages, usages)):
            return known.devices
        state = units.layout.state(tuple(self._left(units, snapshot)))
        self._states[node.name] = _NodeDevices(node, pools, placements, units, usages, state)
        return state

    def after(self, before: LocalDevices, use: DeviceUse, node: NodeFacts, snapshot: Snapshot) -> LocalDevices | None:
        """The state of a node that gets a pod with the demand; None if the demand is not served."""
        if use.plain is not None and self.is_everything(before, node, snapshot):
            return before.after_first_fit(use.plain.criteria, use.plain.count)
        judge = use.judge
        outcome = judge.search(judge.key(node, snapshot), node, snapshot).outcome
        if not isinstance(outcome, Allocated):
            return None
        taken = [device for claim in outcome.claims for device in claim.devices if not device.admin_access]
        return _reduced(before, self._nodes[node.name], taken)

    def is_everything(self, devices: LocalDevices, node: NodeFacts, snapshot: Snapshot) -> bool:
        """True if what is left of its units is all that tells the node's devices from those of others."""
        layout = devices.layout
        return self._nodes[node.name].is_everything and not (layout.has_cards or layout.has_terms or snapshot.rules)

    # --- The units of a node ----------------------------------------------------------------------------------------

    def _units(self, node: NodeFacts, snapshot: Snapshot) -> _NodeUnits:
        view = snapshot.view(node, self._features.visibility)
        known = self._nodes.get(node.name)
        if known is None or known.view is not view:
            if len(self._nodes) >= NODES_MAX:
                self._nodes.clear()
                self._states.clear()
            known = self._nodes[node.name] = self._find_units(node, view, snapshot)
        return known

    def _find_units(self, node: NodeFacts, view: NodeView, snapshot: Snapshot) -> _NodeUnits:
        pools = tuple(
            pool
            for pool in view.pools
            if pool.layout.status is PoolState.READY and snapshot.only_node(pool.pool_id) == node.name
        )
        found = [unit for pool in pools for unit in _units_of(pool)]
        units = tuple(unit for _, unit in found)
        content = tuple(
            (tuple(pool.slices.slices[index].kind for index in pool.layout.slices), tuple(pool.layout.counters.items()))
            for pool in pools
        )
        layout = self._layouts.get(content)
        if layout is None:
            layout = self._layouts[content] = UnitLayout(units, self._features)
        unit_of = {
            indexed.device_id(bit): index
            for index, unit in enumerate(units)
            for indexed, bit in zip(unit.slices, unit.bits, strict=True)
        }
        pool_ids = tuple(pool.pool_id for pool in pools)
        owners = tuple(each for each, _ in found)
        return _NodeUnits(view, pool_ids, layout, owners, unit_of, len(pools) == len(view.pools))

    def _left(self, units: _NodeUnits, snapshot: Snapshot) -> Iterator[Amounts]:
        for unit, (pool, name) in zip(units.layout.units, units.owners, strict=True):
            usage = snapshot.usage.get(pool.slices.pool_id)
            if usage is None:
                yield unit.values
            elif unit.is_card:
                left = pool.slices.counters_left(pool.layout, usage)
                yield tuple(left[counter] for counter in unit.names)  # type: ignore[index]
            else:
                yield self._left_of(unit, usage.of(name))

    def _left_of(self, unit: Unit, used: DeviceUsage) -> Amounts:
        if used is FREE or used.is_free:
            return unit.values
        if used.dedicated or not unit.is_shareable or not self._features.consumable_capacity:
            return (0,) * len(unit.values)
        consumed = used.consumed
        return tuple(
            [value - consumed.get(name, 0) for name, value in zip(unit.names, unit.values, strict=True)]  # type: ignore[call-overload]
        )


def _units_of(pool: VisiblePool) -> Iterator[tuple[tuple[VisiblePool, str], Unit]]:
    cards: dict[str, list[tuple[IndexedSlice, int]]] = {}
    for index in pool.layout.slices:
        indexed = pool.slices.slices[index]
        for bit, device in enumerate(indexed.devices):
            if indexed.counting >> bit & 1:
                # A partition of several counter sets is counted with the first.
                cards.setdefault(indexed.draws[bit][0][0].counter_set, []).append((indexed, bit))
                continue
            is_shareable = bool(device.allow_multiple_allocations)
            capacities = {name: each.value.nanos for name, each in device.capacity.items()} if is_shareable else {}
            values = tuple(capacities.values()) or (1,)
            names = tuple(capacities) or ("",)
            yield (pool, device.name), Unit((indexed,), (bit,), names, values, is_shareable)
    for name, parts in cards.items():
        counters = {key: value for key, value in pool.layout.counters.items() if key.counter_set == name}
        slices, bits = zip(*parts, strict=True)
        yield (pool, name), Unit(slices, bits, tuple(counters), tuple(counters.values()), False, True)


def _reduced(before: LocalDevices, units: _NodeUnits, taken: Iterable[DeviceAllocation]) -> LocalDevices:
    left = list(before.left)
    for each in taken:
        index = units.unit_of.get(each.device)
        if index is None:
            continue
        unit = units.layout.units[index]
        if unit.is_card:
            drawn = dict(_draws(unit, each.device))
            amounts = tuple(drawn.get(name, 0) for name in unit.names)
        elif each.is_share:
            consumed = each.consumed_capacity
            amounts = tuple(consumed[name].nanos if name in consumed else 0 for name in unit.names)
        else:
            amounts = left[index]
        left[index] = tuple(have - take for have, take in zip(left[index], amounts, strict=True))
    return before.layout.state(tuple(left))


def _draws(unit: Unit, device: DeviceId) -> Iterable[tuple[Hashable, int]]:
    for indexed, bit in zip(unit.slices, unit.bits, strict=True):
        if indexed.devices[bit].name == device.device:
            return indexed.draws[bit]
    return ()
