"""The devices that one node has for one demand, evaluated strip by strip as the search reaches them.

Joins what does not change during an allocation: matching devices of slices, usage by allocated claims, taint rules,
placement. Everything is lazy: an easy problem on a node that sees 100,000 devices evaluates a few of them.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import NamedTuple

from dralloc.cel.errors import CelError
from dralloc.devices.allocator.attribute_constraints import Constraint, Values
from dralloc.devices.allocator.candidate_devices import MatchStage, SliceMatches, matches_of
from dralloc.devices.allocator.outcome import Fatal, FatalCause, SearchAborted
from dralloc.devices.allocator.requests import Alternative, Demand
from dralloc.devices.counters import CounterId, Groups
from dralloc.devices.identity import PoolId
from dralloc.devices.pool_usage import PoolUsage
from dralloc.devices.pools import PoolState
from dralloc.devices.share_terms import ShareTerms
from dralloc.devices.slices import bits_of
from dralloc.devices.snapshot import NodeView, Snapshot, Strip, VisiblePool
from dralloc.devices.taints import repels

OPTIONAL_NODE_OPERATIONS = "DRAOptionalNodeOperations"


class Stock(NamedTuple):
    """The devices of a strip for one alternative.

    The search may take `usable` devices and ends with an error at a `faulty` one. `shared` are the usable devices with shares
    in use, which may have too little capacity left.
    """

    usable: int
    faulty: int
    shared: int
    matches: SliceMatches


class DeviceCandidate(NamedTuple):
    """A device in the total order of a node."""

    strip: Strip
    bit: int

    @property
    def position(self) -> int:
        return self.strip.offset + self.bit


class Supply:
    def __init__(self, snapshot: Snapshot, view: NodeView, demand: Demand) -> None:
        self.strips = view.strips
        self.features = demand.features
        self._snapshot = snapshot
        self._view = view
        self._stocks: list[dict[int, Stock]] = [{} for _ in demand.alternatives]
        self._everything: list[tuple[DeviceCandidate, ...] | None] = [None] * len(demand.alternatives)
        self._usage: dict[PoolId, PoolUsage] = {}
        self._counters: dict[PoolId, Mapping[CounterId, int] | None] = {}
        self._groups: dict[PoolId, Mapping[str, Groups]] = {}
        self._values: dict[tuple[Constraint, int], Values | None] = {}

    # --- Candidates -------------------------------------------------------------------------------------------

    def stock(self, alternative: Alternative, strip: Strip) -> Stock:
        stocks = self._stocks[alternative.number]
        stock = stocks.get(strip.number)
        if stock is None:
            stock = stocks[strip.number] = self._make_stock(alternative, strip)
        return stock

    def reach(self, alternative: Alternative) -> Hashable:  # noqa: ARG002  # all alternatives see the node's devices
        """Equal for two alternatives only if they may have the same devices, as far as nodes decide it."""
        return None

    def _make_stock(self, alternative: Alternative, strip: Strip) -> Stock:
        matches = matches_of(strip.slice, alternative.criteria)
        matched, faulty = self._placed(strip, matches)
        usage = self.usage(strip.pool)
        dedicated, shared = usage.dedicated[strip.slice_index], usage.shared[strip.slice_index]
        in_use = 0 if alternative.is_admin else self.features.taken(dedicated, shared, strip.slice.shareable)
        usable = matched & ~(in_use | matches.barred | self.barred_here(alternative, strip))
        return Stock(usable, faulty & ~in_use, usable & shared, matches)

    def _placed(self, strip: Strip, matches: SliceMatches) -> tuple[int, int]:
        """Devices of the node that match, and devices where that cannot be evaluated."""
        if not strip.slice.selects_per_device:
            return matches.matched, matches.faulty_selection | matches.faulty_capacity
        here, unclear = self._view.placement(strip)
        selected = matches.matched | matches.faulty_capacity
        return matches.matched & here, matches.faulty_selection | matches.faulty_capacity & here | selected & unclear

    def barred_here(self, alternative: Alternative, strip: Strip) -> int:
        """Devices that taint rules, or node operations that the node cannot skip, exclude."""
        barred = 0
        if self.features.device_taints and self.features.taint_rules:
            for mask, taint in strip.slice.taints_from(self._snapshot.rules):
                if repels(taint, alternative.tolerations):
                    barred |= mask
        if self._cannot_skip_operations(strip):
            barred = strip.slice.everything
        return barred

    def _cannot_skip_operations(self, strip: Strip) -> bool:
        if not self.features.is_experimental or not strip.slice.source.spec.skip_node_operations:
            return False
        is_declared = OPTIONAL_NODE_OPERATIONS in self._view.node.declared_features
        return not (self.features.optional_node_operations and is_declared)

    def wanted(self, alternative: Alternative) -> int:
        """The number of devices that the alternative takes; the least, if it depends on what they give."""
        if alternative.is_aggregated:
            return 1
        return len(self.everything_for(alternative)) if alternative.takes_all else alternative.count

    def everything_for(self, alternative: Alternative) -> tuple[DeviceCandidate, ...]:
        """All devices that match an alternative that takes all, including those in use or tainted.

        Raises SearchAborted if a device cannot be evaluated or a pool is not ready.
        """
        known = self._everything[alternative.number]
        if known is None:
            known = self._everything[alternative.number] = self._find_everything(alternative)
        return known

    def _find_everything(self, alternative: Alternative) -> tuple[DeviceCandidate, ...]:
        candidates: list[DeviceCandidate] = []
        for pool, strips in zip(self._view.pools, self._view.strips_by_pool, strict=True):
            if pool.layout.status is not PoolState.READY:
                why = f"{pool.pool_id} {pool.layout.fault}"
                raise SearchAborted(Fatal(FatalCause.POOL_NOT_READY, why, alternative.claim, alternative.name))
            for strip in strips:
                matched, faulty = self._placed(strip, matches_of(strip.slice, alternative.criteria))
                for bit in bits_of(matched | faulty):
                    if faulty >> bit & 1:
                        raise self.fault(alternative, DeviceCandidate(strip, bit))
                    candidates.append(DeviceCandidate(strip, bit))
        return tuple(candidates)

    # --- Amounts ----------------------------------------------------------------------------------------------

    def usage(self, pool: VisiblePool) -> PoolUsage:
        pool_id = pool.pool_id
        usage = self._usage.get(pool_id)
        if usage is None:
            usage = self._snapshot.usage.get(pool_id) or PoolUsage.unused(pool.slices.slices)
            self._usage[pool_id] = usage
        return usage

    def free(self, candidate: DeviceCandidate) -> tuple[int, ...]:
        """The capacity that shares in use leave of the device, in the order of its capacities.

        For a device with share terms, this is the beginning of its state.
        """
        device = candidate.strip.slice.devices[candidate.bit]
        usage = self.usage(candidate.strip.pool).of(device.name)
        if (terms := self.terms(candidate.strip, candidate.bit)) is not None:
            return terms.state(usage)
        consumed = usage.consumed
        return tuple([each.value.nanos - consumed.get(name, 0) for name, each in device.capacity.items()])

    def allocations(self, candidate: DeviceCandidate) -> int:
        """How often claims of the cluster have the device."""
        strip, bit = candidate
        usage = self.usage(strip.pool).of(strip.slice.devices[bit].name)
        return usage.dedicated + usage.shares

    def terms(self, strip: Strip, bit: int) -> ShareTerms | None:
        """None if what a share of the device consumes does not depend on other shares."""
        return strip.slice.terms.get(bit) if self.features.consumable_capacity else None

    def lacks_capacity(self, stock: Stock, strip: Strip, bit: int) -> bool:
        """True if shares in use leave too little capacity of the device."""
        device = strip.slice.devices[bit]
        usage = self.usage(strip.pool).of(device.name)
        if strip.slice.terms and (terms := self.terms(strip, bit)) is not None:
            charge = stock.matches.charges[bit]
            if charge.is_partial:
                return False
            return terms.amounts(terms.state(usage), charge.nanos, charge.unasked) is None
        consumed = usage.consumed
        for (name, capacity), amount in zip(device.capacity.items(), stock.matches.charges[bit].nanos, strict=False):
            if capacity.value.nanos - consumed.get(name, 0) < amount:
                return True
        return False

    def is_shareable(self, candidate: DeviceCandidate) -> bool:
        return self.features.consumable_capacity and bool(candidate.strip.slice.shareable >> candidate.bit & 1)

    def is_shared(self, candidate: DeviceCandidate) -> bool:
        strip, bit = candidate
        return bool(self.usage(strip.pool).shared[strip.slice_index] >> bit & 1)

    def counters(self, pool: VisiblePool) -> Mapping[CounterId, int] | None:
        """What is left of the pool's counters; None if one is overdrawn, which blocks all devices that consume counters."""
        if pool.pool_id not in self._counters:
            left = pool.slices.counters_left(pool.layout, self.usage(pool))
            self._counters[pool.pool_id] = None if any(amount < 0 for amount in left.values()) else left
        return self._counters[pool.pool_id]

    def groups(self, pool: VisiblePool) -> Mapping[str, Groups]:
        """The compatibility groups of devices in use, by counter set."""
        if pool.pool_id not in self._groups:
            self._groups[pool.pool_id] = pool.slices.groups_in_use(pool.layout, self.usage(pool))
        return self._groups[pool.pool_id]

    def values(self, constraint: Constraint, candidate: DeviceCandidate) -> Values | None:
        """Raises CelError if a derived attribute cannot be evaluated."""
        key = (constraint, candidate.position)
        if key not in self._values:
            self._values[key] = constraint.values_at(candidate.strip.slice, candidate.bit)
        return self._values[key]

    # --- Errors -----------------------------------------------------------------------------------------------

    def fault(self, alternative: Alternative, candidate: DeviceCandidate) -> SearchAborted:
        """The error of a device that is faulty for the alternative."""
        device_id = candidate.strip.slice.device_id(candidate.bit)
        fault = matches_of(candidate.strip.slice, alternative.criteria).faults.get(candidate.bit)
        device_class = None
        if fault is None:
            detail = str(self._view.placement_faults(candidate.strip)[candidate.bit])
        elif fault.stage is MatchStage.CAPACITY:
            detail = fault.message
        else:
            detail = f"{fault.stage.value} #{fault.position}: {fault.message}"
            device_class = alternative.device_class.metadata.name if fault.stage is MatchStage.CLASS_SELECTOR else None
        return SearchAborted(
            Fatal(FatalCause.EVALUATION_ERROR, detail, alternative.claim, alternative.name, device_class, device_id)
        )

    def derived_fault(
        self, alternative: Alternative, constraint: Constraint, candidate: DeviceCandidate, error: CelError
    ) -> SearchAborted:
        detail = f"derived attribute {constraint.label}: {error}"
        device_id = candidate.strip.slice.device_id(candidate.bit)
        cause = FatalCause.EVALUATION_ERROR
        return SearchAborted(Fatal(cause, detail, alternative.claim, alternative.name, device=device_id))

    def constraint_fault(self, alternative: Alternative, candidate: DeviceCandidate) -> SearchAborted:
        device_id = candidate.strip.slice.device_id(candidate.bit)
        cause = FatalCause.CONSTRAINT_ON_ALL
        return SearchAborted(Fatal(cause, claim=alternative.claim, request=alternative.name, device=device_id))
