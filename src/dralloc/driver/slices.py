"""Splits pools into slices, and validates them before they are published.

Devices keep their order, in which an allocator tries them. A slice has up to 128 devices, or 64 if one of them has taints,
counters or lists; counter sets have slices of their own.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from dralloc.devices.share_terms import capacities_of
from dralloc.driver.devices import Pool
from dralloc.kube.canonical_form import with_canonical_times
from dralloc.kube.meta_v1 import ObjectMeta
from dralloc.kube.resource_v1 import CounterSet, Device, ResourcePool, ResourceSlice, ResourceSliceSpec
from dralloc.kube.timestamps import BadTimestamp
from dralloc.kube.validation.context import ValidationContext
from dralloc.kube.validation.resource_slice import (
    ADVANCED_DEVICES_COUNT_MAX,
    COUNTER_SETS_COUNT_MAX,
    DEVICES_COUNT_MAX,
    is_advanced,
    validate_resource_slice,
)
from dralloc.primitives.features import GATES, FeatureGates
from dralloc.primitives.field_errors import FieldError

# Fields of disabled features are dropped by the server and reported; they are not errors here.
EVERY_GATE = FeatureGates.only(GATES)
# The arguments of the builders by the end of the field that they set; the first one counts.
ARGUMENTS: Final = {
    "validRange.min": "capacity(minimum=...)",
    "validRange.max": "capacity(maximum=...)",
    "validRange.step": "capacity(step=...)",
    "requestPolicy.default": "capacity(default=...)",
    "validValues": "capacity(valid=...)",
    "requestPolicy": "device(shareable=True)",
    "requestPolicyName": "capacity(policy_name=...)",
    "consumesCounters": "device(draws=...)",
}


class InvalidPools(ValueError):
    """The pools are not valid; the message lists all errors."""

    def __init__(self, faults: Sequence[str]) -> None:
        super().__init__("; ".join(faults))
        self.faults = tuple(faults)


def slices_of(pool: Pool, driver: str, node_name: str | None) -> tuple[ResourceSliceSpec, ...]:
    """The slices of a pool in their order, without generation and count, which depend on the published slices.

    A pool without devices has one slice, which shows that the driver is alive.
    """
    is_placed = pool.node_selector is not None or pool.all_nodes or pool.per_device_nodes
    frame = ResourceSliceSpec(
        driver=driver,
        pool=ResourcePool(name=pool.name),
        node_name=None if is_placed else node_name,
        node_selector=pool.node_selector,
        all_nodes=True if pool.all_nodes else None,
        per_device_node_selection=True if pool.per_device_nodes else None,
        skip_node_operations=pool.skip_node_operations,
    )
    counters = (replace(frame, shared_counters=sets) for sets in _split_counters(pool.counters))
    devices = (
        replace(frame, devices=part, partition_type_attribute=_partition_type(pool, part))
        for part in _split_devices(pool.devices)
    )
    return (*counters, *devices) or (frame,)


def check_pools(pools: Sequence[Pool], driver: str, node_name: str | None) -> None:
    """Raise `InvalidPools` with everything that an API server or an allocator would refuse."""
    faults = [fault for pool in pools for fault in _find_faults(pool, driver, node_name)]
    faults += [
        f"pool {name} is listed {count} times"
        for name, count in Counter(pool.name for pool in pools).items()
        if count > 1
    ]
    if faults:
        raise InvalidPools(faults)


def _split_devices(devices: Iterable[Device]) -> Iterator[tuple[Device, ...]]:
    part: list[Device] = []
    takes_few = False
    for device in devices:
        count_max = ADVANCED_DEVICES_COUNT_MAX if takes_few or is_advanced(device) else DEVICES_COUNT_MAX
        if len(part) >= count_max:
            yield tuple(part)
            part, takes_few = [], False
        part.append(device)
        takes_few = takes_few or is_advanced(device)
    if part:
        yield tuple(part)


def _split_counters(sets: Sequence[CounterSet]) -> Iterator[tuple[CounterSet, ...]]:
    for start in range(0, len(sets), COUNTER_SETS_COUNT_MAX):
        yield tuple(sets[start : start + COUNTER_SETS_COUNT_MAX])


def _partition_type(pool: Pool, devices: Sequence[Device]) -> str | None:
    """The attribute, which is allowed only in slices with partitions."""
    return pool.partition_type_attribute if any(device.consumes_counters for device in devices) else None


def _find_faults(pool: Pool, driver: str, node_name: str | None) -> Iterator[str]:
    specs = slices_of(pool, driver, node_name)
    counted = ResourcePool(name=pool.name, generation=pool.generation, resource_slice_count=len(specs))
    for index, spec in enumerate(specs):
        # Any valid name; the server generates the real one.
        proposed = ResourceSlice(metadata=ObjectMeta(name="slice"), spec=replace(spec, pool=counted))
        try:
            faults = tuple(validate_resource_slice(with_canonical_times(proposed), ValidationContext(EVERY_GATE)))
        except BadTimestamp as error:
            yield f"pool {pool.name}, slice {index}: {error}"
        else:
            yield from (f"pool {pool.name}, slice {index}: {fault}{_hint(fault, spec)}" for fault in faults)
    yield from (f"pool {pool.name}: {fault}" for fault in _find_faults_across(pool))


def _hint(fault: FieldError, spec: ResourceSliceSpec) -> str:
    """The device and the argument that the fault is about, for those who know the builders rather than the fields."""
    inside = re.match(r"spec\.devices\[(\d+)\]\.(.+)", str(fault.path))
    if inside is None:
        return ""
    field = re.sub(r"\[[^\]]*\]", "", inside[2])
    argument = next((argument for end, argument in ARGUMENTS.items() if field.endswith(end)), "")
    name = (spec.devices or ())[int(inside[1])].name
    return f" (device {name}: {argument})" if argument else f" (device {name})"


def _find_faults_across(pool: Pool) -> Iterator[str]:
    """Faults that no single slice shows: duplicate names, missing counters, and defaults that never fit."""
    for device in pool.devices:
        yield from _find_large_defaults(device)
    for name, count in Counter(device.name for device in pool.devices).items():
        if count > 1:
            yield f"device {name} is listed {count} times"
    for name, count in Counter(counters.name for counters in pool.counters).items():
        if count > 1:
            yield f"counter set {name} is listed {count} times"
    sets = {counters.name: counters.counters for counters in pool.counters}
    for device in pool.devices:
        for drawn in device.consumes_counters:
            if drawn.counter_set not in sets:
                yield f"device {device.name} consumes counter set {drawn.counter_set}, which the pool does not have"
                continue
            for name in sorted(drawn.counters.keys() - sets[drawn.counter_set].keys()):
                yield f"device {device.name} consumes counter {name}, which counter set {drawn.counter_set} does not have"


def _find_large_defaults(device: Device) -> Iterator[str]:
    """A server accepts them, but a request that names no amount is never satisfied."""
    for name, capacity in capacities_of(device).items():
        policy = capacity.request_policy
        if policy is not None and policy.default is not None and policy.default > capacity.value:
            yield (
                f"device {device.name}, capacity {name}: the default, {policy.default}, is more than the whole amount, {capacity.value}: "
                "no request that names no amount would fit; lower capacity(default=...)"
            )
