"""ResourceSlice: some or all devices of a pool, or their shared counters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dralloc.kube.gated_fields import has_list
from dralloc.kube.resource_v1 import CounterSet, Device, ResourcePool, ResourceSlice, ResourceSliceSpec
from dralloc.kube.validation import formats
from dralloc.kube.validation.conditions import validate_skipped_operations, validate_unprepare_skipped
from dralloc.kube.validation.context import ValidationContext
from dralloc.kube.validation.device import (
    validate_counters,
    validate_counters_size,
    validate_declared_device,
    validate_device,
)
from dralloc.kube.validation.metadata import validate_metadata, validate_metadata_update
from dralloc.kube.validation.node_selector import validate_node_selector
from dralloc.primitives.field_errors import FieldError, FieldPath, forbidden, invalid, required, too_many

DEVICES_COUNT_MAX: Final = 128
# Devices with taints, counters or lists are more expensive for consumers.
ADVANCED_DEVICES_COUNT_MAX: Final = 64
COUNTER_SETS_COUNT_MAX: Final = 8

SPEC: Final = FieldPath.of("spec")


def validate_resource_slice(obj: ResourceSlice, context: ValidationContext) -> Iterator[FieldError]:
    yield from validate_metadata(obj.metadata, namespaced=False)
    yield from _validate_spec(obj.spec, None, context)


def validate_resource_slice_update(
    new: ResourceSlice, old: ResourceSlice, context: ValidationContext
) -> Iterator[FieldError]:
    yield from validate_metadata_update(new.metadata, old.metadata)
    yield from _validate_immutable(new.spec, old.spec)
    yield from _validate_spec(new.spec, old.spec, context)


def _validate_immutable(new: ResourceSliceSpec, old: ResourceSliceSpec) -> Iterator[FieldError]:
    if new.driver != old.driver:
        yield invalid(SPEC.child("driver"), new.driver, "field is immutable")
    if new.pool.name != old.pool.name:
        yield invalid(SPEC.child("pool", "name"), new.pool.name, "field is immutable")
    if new.node_name != old.node_name:
        yield invalid(SPEC.child("nodeName"), new.node_name, "field is immutable")


def _validate_spec(
    spec: ResourceSliceSpec, old: ResourceSliceSpec | None, context: ValidationContext
) -> Iterator[FieldError]:
    yield from formats.validate_driver_name(spec.driver, SPEC.child("driver"))
    yield from _validate_pool(spec.pool, SPEC.child("pool"))
    yield from _validate_nodes(spec)
    if spec.devices is not None and spec.shared_counters is not None:
        yield invalid(
            SPEC, "", "devices and sharedCounters are mutually exclusive: publish them in two slices of the pool"
        )
    yield from _validate_devices(spec, old, context)
    yield from _validate_counter_sets(spec.shared_counters or (), SPEC.child("sharedCounters"))
    yield from _validate_partition_type(spec, old, context)
    operations = SPEC.child("skipNodeOperations")
    if old is None or old.skip_node_operations != spec.skip_node_operations:
        yield from validate_skipped_operations(spec.skip_node_operations, operations)
    yield from validate_unprepare_skipped(spec.skip_node_operations, operations)


def _validate_pool(pool: ResourcePool, path: FieldPath) -> Iterator[FieldError]:
    yield from formats.validate_pool_name(pool.name, path.child("name"))
    if pool.resource_slice_count <= 0:
        yield invalid(path.child("resourceSliceCount"), pool.resource_slice_count, "must be greater than zero")
    if pool.generation < 0:
        yield invalid(path.child("generation"), pool.generation, "must be greater than or equal to zero")


def _validate_nodes(spec: ResourceSliceSpec) -> Iterator[FieldError]:
    """Exactly one way to select the nodes that can access the devices."""
    if spec.node_name is not None:
        if spec.node_name:
            yield from formats.validate_dns_subdomain(spec.node_name, SPEC.child("nodeName"))
        else:
            yield invalid(SPEC.child("nodeName"), "", "must be unset or not empty")
    if spec.node_selector is not None:
        yield from validate_node_selector(spec.node_selector, SPEC.child("nodeSelector"))
        if len(spec.node_selector.node_selector_terms or ()) != 1:
            yield invalid(
                SPEC.child("nodeSelector", "nodeSelectorTerms"), "", "must have exactly one node selector term"
            )
    if spec.all_nodes is False:
        yield invalid(SPEC.child("allNodes"), False, "must be unset or true")
    if spec.per_device_node_selection is False:
        yield invalid(SPEC.child("perDeviceNodeSelection"), False, "must be unset or true")
    ways = sum(map(bool, (spec.node_name, spec.node_selector, spec.all_nodes, spec.per_device_node_selection)))
    if ways == 0:
        yield required(SPEC, "one of nodeName, nodeSelector, allNodes and perDeviceNodeSelection is required")
    elif ways > 1:
        yield invalid(SPEC, "", "only one of nodeName, nodeSelector, allNodes and perDeviceNodeSelection may be set")


def _validate_devices(
    spec: ResourceSliceSpec, old: ResourceSliceSpec | None, context: ValidationContext
) -> Iterator[FieldError]:
    path, devices = SPEC.child("devices"), spec.devices or ()
    old_devices = {} if old is None else {device.name: device for device in reversed(old.devices or ())}
    changed = old is None or devices != (old.devices or ())
    for position, device in enumerate(devices):
        yield from validate_declared_device(device, context.declared_device(path.index(position)), effects=changed)
    count_max = ADVANCED_DEVICES_COUNT_MAX if any(map(is_advanced, devices)) else DEVICES_COUNT_MAX
    if len(devices) > count_max:
        yield too_many(path, len(devices), count_max)
        return
    chooses_nodes = spec.per_device_node_selection is True
    for position, device in enumerate(devices):
        before = old_devices.get(device.name)
        yield from validate_device(device, before, path.index(position), context, chooses_nodes=chooses_nodes)
    yield from formats.validate_unique(devices, path, lambda device: device.name)


def is_advanced(device: Device) -> bool:
    """True if a slice with this device has a lower device limit."""
    return bool(device.taints or device.consumes_counters) or any(map(has_list, device.attributes.values()))


def _validate_counter_sets(sets: tuple[CounterSet, ...], path: FieldPath) -> Iterator[FieldError]:
    if len(sets) > COUNTER_SETS_COUNT_MAX:
        yield too_many(path, len(sets), COUNTER_SETS_COUNT_MAX)
        return
    for position, counter_set in enumerate(sets):
        where = path.index(position)
        yield from formats.validate_required_label(counter_set.name, where.child("name"))
        yield from validate_counters(counter_set.counters, where.child("counters"))
        yield from validate_counters_size(counter_set.counters, where.child("counters"))
    yield from formats.validate_unique(sets, path, lambda counter_set: counter_set.name)


# --- Partition types -------------------------------------------------------------------------------------------


def _validate_partition_type(
    spec: ResourceSliceSpec, old: ResourceSliceSpec | None, context: ValidationContext
) -> Iterator[FieldError]:
    """Every partition has its type in the attribute that the slice names."""
    name, path = spec.partition_type_attribute, SPEC.child("partitionTypeAttribute")
    if name is None:
        return
    if "DRAPartitionableDevicesType" in context.gates:
        faults = tuple(formats.validate_fully_qualified_name(name, path))
        yield from faults
    else:
        faults = ()
        if old is None or old.partition_type_attribute != name:
            yield forbidden(path, "the feature gate DRAPartitionableDevicesType is off")
    devices = spec.devices or ()
    if not any(device.consumes_counters for device in devices):
        yield invalid(path, name, "no device of the slice consumes counters")
    if faults or "/" not in name:
        return
    for position, device in enumerate(devices):
        if device.consumes_counters:
            yield from _validate_type_of(device, name, spec.driver, SPEC.child("devices").index(position))


def _validate_type_of(device: Device, name: str, driver: str, path: FieldPath) -> Iterator[FieldError]:
    domain, _, identifier = name.partition("/")
    attribute = device.attributes.get(name)
    if attribute is None and domain == driver:
        attribute = device.attributes.get(identifier)
    where = path.child("attributes").key(name)
    if attribute is None:
        yield required(where, "the attribute named by partitionTypeAttribute is required")
    elif attribute.string is None:
        yield invalid(where, name, "the type of a partition must be a string")
