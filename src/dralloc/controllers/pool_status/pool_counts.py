"""What is free in a pool: its devices by state, partitions by type, and the capacity of devices that can be shared.

A device is allocated, available or unavailable. Unavailable are devices that no claim uses and that cannot be allocated: they have
a taint, or other devices use their counters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from dralloc.api.resource_v1 import Device, DeviceRequestAllocationResult, ResourceClaim, ResourceSlice
from dralloc.api.resource_v1alpha3 import (
    PartitionTypeStatus,
    PoolStatus,
    ShareableCapacityStatus,
    ShareableSummaryStatus,
)
from dralloc.devices.counters import CounterId, amounts_of, draws_of
from dralloc.devices.device_usage import counted_results
from dralloc.devices.identity import PoolId
from dralloc.devices.pool_generation import generation_of
from dralloc.devices.taint_rules import TaintRules
from dralloc.devices.taints import repels
from dralloc.primitives.quantity import NANOS, Quantity

SUMMARY_MAX: Final = 32
ERROR_LENGTH_MAX: Final = 256
INCOMPLETE: Final = "PoolIncomplete:"

T = TypeVar("T")
Results = Sequence[DeviceRequestAllocationResult]


class _SummaryError(Exception):
    """Why partitions or capacities cannot be summed up."""


def results_by_pool(claims: Iterable[ResourceClaim]) -> dict[PoolId, list[DeviceRequestAllocationResult]]:
    """What claims use in each pool."""
    found: dict[PoolId, list[DeviceRequestAllocationResult]] = {}
    for claim in claims:
        for result in counted_results(claim):
            found.setdefault(PoolId.of_result(result), []).append(result)
    return found


def count_pool(
    slices: Sequence[ResourceSlice], results: Results, rules: TaintRules, default_attribute: str | None
) -> PoolStatus:
    """The status of a pool, from the slices of its newest generation and what claims use of it."""
    first = slices[0].spec
    nodes = {each.spec.node_name for each in slices}
    pool_id = PoolId.of_slice(slices[0])
    pool = PoolStatus(
        driver=pool_id.driver,
        pool_name=pool_id.pool,
        node_name=next(iter(nodes)) or None if len(nodes) == 1 else None,
        generation=generation_of(slices[0]),
    )
    expected = max(each.spec.pool.resource_slice_count for each in slices)
    if len(slices) < expected:
        told = f"{INCOMPLETE} pool {pool_id} is incomplete: observed {len(slices)}/{expected} slices"
        return replace(pool, validation_error=_short(f"{told} at generation {first.pool.generation}"))
    return _Counts.of(slices, results, rules).complete(pool, default_attribute)


class _Counts(Struct, frozen=True):
    """A complete pool. `used` are the names of the devices in use, `left` what they leave of the pool's counters."""

    slices: Sequence[ResourceSlice]
    results: Results
    rules: TaintRules
    used: frozenset[str]
    left: Mapping[CounterId, int]

    @classmethod
    def of(cls, slices: Sequence[ResourceSlice], results: Results, rules: TaintRules) -> _Counts:
        used = frozenset(result.device for result in results)
        left = Counter(amounts_of(each for item in slices for each in item.spec.shared_counters or ()))
        for item in slices:
            for device in item.spec.devices or ():
                if device.name in used:
                    left.subtract(dict(draws_of(device)))
        return cls(slices, results, rules, used, left)

    @property
    def devices(self) -> Iterator[Device]:
        return (device for item in self.slices for device in item.spec.devices or ())

    def complete(self, pool: PoolStatus, default_attribute: str | None) -> PoolStatus:
        tainted = _tainted_names(self.devices, self.rules, PoolId.of_slice(self.slices[0]))
        idle = [device for device in self.devices if device.name not in self.used]
        blocked = [device for device in idle if device.name in tainted or not self._has_counters(device)]
        partitions, partition_error = _attempt(lambda: self._partitions(default_attribute))
        shareable, capacity_error = _attempt(self._shareable)
        error = partition_error or capacity_error
        return replace(
            pool,
            resource_slice_count=len(self.slices),
            total_devices=sum(1 for _ in self.devices),
            allocated_devices=len(self.used),
            available_devices=len(idle) - len(blocked),
            unavailable_devices=len(blocked),
            partition_summary=partitions or (),
            shareable_summary=shareable,
            validation_error=_short(error) if error else None,
        )

    def _has_counters(self, device: Device) -> bool:
        return all(self.left.get(counter, 0) >= nanos for counter, nanos in draws_of(device))

    # --- Partitions ---------------------------------------------------------------------------------------------

    def _partitions(self, default_attribute: str | None) -> tuple[PartitionTypeStatus, ...]:
        declared = any(each.spec.partition_type_attribute for each in self.slices)
        if not declared and default_attribute is None:
            return ()
        groups: dict[tuple[str, str], list[Device]] = {}
        for item in self.slices:
            attribute = item.spec.partition_type_attribute if declared else default_attribute
            for device in item.spec.devices or ():
                if attribute and device.consumes_counters:
                    kind = _type_of(device, attribute, item.spec.driver)
                    groups.setdefault((attribute, kind), []).append(device)
        if not any(each.spec.shared_counters for each in self.slices):
            raise _SummaryError("PartitionTypeMissing: the pool publishes no sharedCounters")
        if len(groups) > SUMMARY_MAX:
            raise _SummaryError(f"PartitionSummaryOverCap: {len(groups)} types, more than {SUMMARY_MAX}")
        return tuple(self._group(*key, devices) for key, devices in sorted(groups.items()))

    def _group(self, attribute: str, kind: str, devices: Sequence[Device]) -> PartitionTypeStatus:
        if len({_cost(device) for device in devices}) > 1:
            raise _SummaryError(f"PartitionCostMismatch: partitions of type {kind} consume different counters")
        left, count = dict(self.left), 0
        for device in devices:
            draws = draws_of(device)
            if device.name not in self.used and all(left.get(counter, 0) >= nanos for counter, nanos in draws):
                count += 1
                for counter, nanos in draws:
                    left[counter] -= nanos
        return PartitionTypeStatus(attribute=attribute, type=kind, total=len(devices), allocatable=count)

    # --- Devices that can be shared -----------------------------------------------------------------------------

    def _shareable(self) -> ShareableSummaryStatus | None:
        devices = [device for device in self.devices if device.allow_multiple_allocations]
        if not devices:
            return None
        totals: Counter[str] = Counter()
        for device in devices:
            totals.update({name: each.value.nanos for name, each in device.capacity.items()})
        if len(totals) > SUMMARY_MAX:
            raise _SummaryError(f"ShareableSummaryOverCap: {len(totals)} capacities, more than {SUMMARY_MAX}")
        consumed: Counter[str] = Counter()
        by_device: dict[str, Counter[str]] = {}
        for result in self.results:
            amounts = {name: amount.nanos for name, amount in result.consumed_capacity.items()}
            consumed.update(amounts)
            by_device.setdefault(result.device, Counter()).update(amounts)
        shared = [device for device in devices if device.name in self.used]
        return ShareableSummaryStatus(
            fully_available_devices=len(devices) - len(shared),
            partially_available_devices=sum(_has_left(device, by_device[device.name]) for device in shared),
            capacity=tuple(_capacity(name, totals[name], consumed[name]) for name in sorted(totals)),
        )


def _attempt(compute: Callable[[], T]) -> tuple[T | None, str]:
    """The summary, or the error that prevents it."""
    try:
        return compute(), ""
    except _SummaryError as error:
        return None, str(error)


def _tainted_names(devices: Iterable[Device], rules: TaintRules, pool_id: PoolId) -> frozenset[str]:
    from_rules = [each for each in rules.taints_in_pool(pool_id) if repels(each.taint, ())]
    on_all = any(each.device is None for each in from_rules)
    named = {each.device for each in from_rules}
    return frozenset(
        device.name
        for device in devices
        if on_all or device.name in named or any(repels(taint, ()) for taint in device.taints)
    )


def _type_of(device: Device, attribute: str, driver: str) -> str:
    domain, _, name = attribute.partition("/")
    found = device.attributes.get(attribute) or (device.attributes.get(name) if domain == driver else None)
    if found is None or found.string is None:
        raise _SummaryError(f"PartitionTypeMissing: device {device.name} has no string attribute {attribute}")
    return found.string


def _cost(device: Device) -> frozenset[tuple[str, int, int]]:
    """What a partition costs, wherever it is: the counter sets of equal devices have different names."""
    amounts = Counter((counter.counter, nanos) for counter, nanos in draws_of(device))
    return frozenset((name, nanos, count) for (name, nanos), count in amounts.items())


def _has_left(device: Device, consumed: Mapping[str, int]) -> bool:
    return all(consumed.get(name, 0) < each.value.nanos for name, each in device.capacity.items() if each.value.nanos)


def _capacity(name: str, total: int, consumed: int) -> ShareableCapacityStatus:
    return ShareableCapacityStatus(
        name=name, total=_amount(total), consumed=_amount(consumed), available=_amount(max(0, total - consumed))
    )


def _amount(nanos: int) -> Quantity:
    return Quantity.of(nanos // NANOS) if nanos % NANOS == 0 else Quantity.parse(f"{nanos}n")


def _short(text: str) -> str:
    return text.encode()[:ERROR_LENGTH_MAX].decode(errors="ignore")
