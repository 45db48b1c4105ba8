"""One device of a slice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from dralloc.kube.gated_fields import has_list
from dralloc.kube.resource_v1 import (
    GIVE_TO_LAST,
    KEEP,
    Counter,
    Device,
    DeviceAttribute,
    DeviceCapacity,
    DeviceCounterConsumption,
    NodeAllocatableResource,
)
from dralloc.kube.validation import formats
from dralloc.kube.validation.conditions import validate_binding_conditions
from dralloc.kube.validation.context import ValidationContext
from dralloc.kube.validation.node_selector import validate_node_selector
from dralloc.kube.validation.request_policy import validate_request_policy
from dralloc.kube.validation.taints import validate_effect, validate_taint
from dralloc.primitives.field_errors import (
    FieldError,
    FieldPath,
    forbidden,
    invalid,
    not_found,
    required,
    too_long,
    too_many,
)
from dralloc.primitives.names import length_in_bytes
from dralloc.primitives.quantity import INT64_MAX, Quantity
from dralloc.primitives.semver import fits_semver_grammar

ATTRIBUTES_AND_CAPACITIES_COUNT_MAX: Final = 32
ATTRIBUTE_VALUES_COUNT_MAX: Final = 48
ATTRIBUTE_VALUE_LENGTH_MAX: Final = 64
TAINTS_COUNT_MAX: Final = 16
CONSUMES_COUNTERS_COUNT_MAX: Final = 2
COUNTERS_COUNT_MAX: Final = 32
COMPATIBILITY_GROUPS_COUNT_MAX: Final = 2
REQUEST_POLICIES_COUNT_MAX: Final = 8
REMAINDERS: Final = (GIVE_TO_LAST, KEEP)

# How much of a map key a path shows.
ATTRIBUTE_KEY_SHOWN_MAX: Final = 63 + 1 + 32
NODE_RESOURCES: Final = ("cpu", "memory")
HUGE_PAGES: Final = "hugepages-"


def validate_device(
    device: Device, old: Device | None, path: FieldPath, context: ValidationContext, *, chooses_nodes: bool
) -> Iterator[FieldError]:
    """`chooses_nodes`: the slice delegates node selection to its devices.

    Unchanged capacities and taints are not validated again, because that could only break stored objects.
    """
    yield from formats.validate_dns_label(device.name, path.child("name"))
    yield from _validate_sizes(device, path)
    attributes = path.child("attributes")
    for name in device.attributes:
        if not formats.is_usual_name(name):
            yield from formats.validate_qualified_name(name, attributes)
    for name, attribute in device.attributes.items():
        # Any number and any boolean is valid.
        if attribute.string is not None or attribute.version is not None or has_list(attribute):
            where = attributes.key(formats.shortened(name, ATTRIBUTE_KEY_SHOWN_MAX))
            yield from _validate_attribute(attribute, where)
    if old is None or old.capacity != device.capacity or old.request_policies != device.request_policies:
        yield from _validate_capacities(device, path.child("capacity"), context)
        if device.request_policies:
            yield from _validate_named_policies(device, path.child("requestPolicies"), context)
    if device.remainder is not None:
        yield from _validate_remainder(device, path.child("remainder"))
    if old is None or old.taints != device.taints:
        yield from _validate_taints(device, path.child("taints"))
    if len(device.consumes_counters) <= CONSUMES_COUNTERS_COUNT_MAX:
        for position, consumption in enumerate(device.consumes_counters):
            where = path.child("consumesCounters").index(position).child("counters")
            yield from validate_counters_size(consumption.counters, where)
    yield from _validate_placement(device, path, chooses_nodes=chooses_nodes)
    yield from validate_binding_conditions(
        device.binding_conditions, device.binding_failure_conditions, path, context.declared_device(path)
    )
    for name, resource in device.node_allocatable_resources.items():
        yield from _validate_node_resource(name, resource, device, path.child("nodeAllocatableResources").key(name))


def validate_declared_device(device: Device, path: FieldPath, *, effects: bool) -> Iterator[FieldError]:
    """The declared rules for a device; they apply to every device even if there are too many."""
    for name, attribute in device.attributes.items():
        if _members_with_content(attribute) != 1:
            where = path.child("attributes").key(formats.shortened(name, ATTRIBUTE_KEY_SHOWN_MAX))
            yield invalid(where, name, "exactly one value must be set")
    if effects:
        for position, taint in enumerate(device.taints):
            yield from validate_effect(taint, path.child("taints").index(position))
    yield from _validate_counter_consumptions(device.consumes_counters, path.child("consumesCounters"))
    for name, resource in device.node_allocatable_resources.items():
        mapping = resource.mapping
        if mapping is not None and (mapping.capacity_key is None) == (mapping.device_multiplier is None):
            where = path.child("nodeAllocatableResources").key(name).child("mapping")
            yield invalid(where, name, "exactly one of capacityKey and deviceMultiplier must be set")


def _validate_sizes(device: Device, path: FieldPath) -> Iterator[FieldError]:
    count = len(device.attributes) + len(device.capacity)
    if count > ATTRIBUTES_AND_CAPACITIES_COUNT_MAX:
        detail = f"attributes and capacities together must be no more than {ATTRIBUTES_AND_CAPACITIES_COUNT_MAX}"
        yield invalid(path, count, detail)
    values = sum(_count_values(attribute) for attribute in device.attributes.values())
    if values > ATTRIBUTE_VALUES_COUNT_MAX:
        yield invalid(path, values, f"attribute values must be no more than {ATTRIBUTE_VALUES_COUNT_MAX}")


def _count_values(attribute: DeviceAttribute) -> int:
    if not has_list(attribute):
        return 1
    lists = (attribute.ints, attribute.bools, attribute.strings, attribute.versions)
    return sum(map(len, filter(None, lists))) or 1


# --- Attributes ------------------------------------------------------------------------------------------------


def _members_with_content(attribute: DeviceAttribute) -> int:
    scalars = (attribute.int, attribute.bool, attribute.string, attribute.version)
    count = len(scalars) - scalars.count(None)
    if has_list(attribute):
        count += sum(map(bool, (attribute.ints, attribute.bools, attribute.strings, attribute.versions)))
    return count


def _validate_attribute(attribute: DeviceAttribute, path: FieldPath) -> Iterator[FieldError]:
    if attribute.string is not None:
        yield from _validate_length(attribute.string, path.child("string"))
    if attribute.version is not None:
        yield from _validate_version(attribute.version, path.child("version"))
    if has_list(attribute):
        yield from _validate_lists(attribute, path)


def _validate_lists(attribute: DeviceAttribute, path: FieldPath) -> Iterator[FieldError]:
    for position, text in enumerate(attribute.strings or ()):
        yield from _validate_length(text, path.child("strings").index(position))
    for position, text in enumerate(attribute.versions or ()):
        yield from _validate_version(text, path.child("versions").index(position))
    empty_lists = [name for name in ("ints", "bools", "strings", "versions") if getattr(attribute, name) == ()]
    for name in empty_lists:
        yield invalid(path.child(name), [], "must not be empty")
    # The declared rule does not count an empty list as a value.
    if empty_lists and _members_with_content(attribute) == 1:
        yield invalid(path, empty_lists, "exactly one value must be set")


def _validate_length(text: str, path: FieldPath) -> Iterator[FieldError]:
    if length_in_bytes(text) > ATTRIBUTE_VALUE_LENGTH_MAX:
        yield too_long(path, ATTRIBUTE_VALUE_LENGTH_MAX)


def _validate_version(text: str, path: FieldPath) -> Iterator[FieldError]:
    if not fits_semver_grammar(text):
        yield invalid(path, text, "must be a semantic version, like 1.2.3 or 1.0.0-rc.1")
    yield from _validate_length(text, path)


# --- Capacities, taints, counters ------------------------------------------------------------------------------


def _validate_capacities(device: Device, path: FieldPath, context: ValidationContext) -> Iterator[FieldError]:
    for name, capacity in device.capacity.items():
        if not formats.is_usual_name(name):
            yield from formats.validate_qualified_name(name, path)
        if capacity.request_policy is None and capacity.request_policy_name is None:
            continue
        where = path.key(formats.shortened(name, ATTRIBUTE_KEY_SHOWN_MAX))
        if capacity.request_policy_name is not None:
            yield from _validate_policy_name(capacity, device, where.child("requestPolicyName"))
        if capacity.request_policy is None:
            continue
        if device.allow_multiple_allocations:
            yield from validate_request_policy(
                capacity.request_policy, capacity.value, where.child("requestPolicy"), context.gates
            )
        else:
            yield forbidden(where.child("requestPolicy"), "a request policy requires allowMultipleAllocations")


def _validate_policy_name(capacity: DeviceCapacity, device: Device, path: FieldPath) -> Iterator[FieldError]:
    name = capacity.request_policy_name
    if capacity.request_policy is not None:
        yield forbidden(path, "requestPolicy and requestPolicyName exclude each other")
    if name not in device.request_policies:
        yield not_found(path, name)


def _validate_named_policies(device: Device, path: FieldPath, context: ValidationContext) -> Iterator[FieldError]:
    """Every policy must fit every capacity that uses it."""
    if not device.allow_multiple_allocations:
        yield forbidden(path, "request policies require allowMultipleAllocations")
        return
    if len(device.request_policies) > REQUEST_POLICIES_COUNT_MAX:
        yield too_many(path, len(device.request_policies), REQUEST_POLICIES_COUNT_MAX)
        return
    for name, policy in device.request_policies.items():
        yield from formats.validate_dns_label(name, path)
        users = [capacity.value for capacity in device.capacity.values() if capacity.request_policy_name == name]
        for value in users or (Quantity.of(INT64_MAX),):
            yield from validate_request_policy(policy, value, path.key(name), context.gates)


def _validate_remainder(device: Device, path: FieldPath) -> Iterator[FieldError]:
    yield from formats.validate_choice(device.remainder or "", path, REMAINDERS)
    if not device.allow_multiple_allocations:
        yield forbidden(path, "a remainder requires allowMultipleAllocations")


def _validate_taints(device: Device, path: FieldPath) -> Iterator[FieldError]:
    if len(device.taints) > TAINTS_COUNT_MAX:
        yield too_many(path, len(device.taints), TAINTS_COUNT_MAX)
        return
    for position, taint in enumerate(device.taints):
        yield from validate_taint(taint, path.index(position))


def _validate_counter_consumptions(
    consumptions: tuple[DeviceCounterConsumption, ...], path: FieldPath
) -> Iterator[FieldError]:
    if len(consumptions) > CONSUMES_COUNTERS_COUNT_MAX:
        yield too_many(path, len(consumptions), CONSUMES_COUNTERS_COUNT_MAX)
        return
    for position, consumption in enumerate(consumptions):
        where = path.index(position)
        yield from formats.validate_required_label(consumption.counter_set, where.child("counterSet"))
        yield from validate_counters(consumption.counters, where.child("counters"))
        yield from _validate_compatibility_groups(consumption.compatibility_groups, where.child("compatibilityGroups"))
    yield from formats.validate_unique(consumptions, path, lambda consumption: consumption.counter_set)


def validate_counters(counters: Mapping[str, Counter], path: FieldPath) -> Iterator[FieldError]:
    """At least one counter, each with a valid name. Any amount is valid."""
    if not counters:
        yield required(path)
    for name in counters:
        yield from formats.validate_dns_label(name, path)


def validate_counters_size(counters: Mapping[str, Counter], path: FieldPath) -> Iterator[FieldError]:
    if len(counters) > COUNTERS_COUNT_MAX:
        yield too_many(path, len(counters), COUNTERS_COUNT_MAX)


def _validate_compatibility_groups(groups: tuple[str, ...], path: FieldPath) -> Iterator[FieldError]:
    if len(groups) > COMPATIBILITY_GROUPS_COUNT_MAX:
        yield too_many(path, len(groups), COMPATIBILITY_GROUPS_COUNT_MAX)
        return
    for position, group in enumerate(groups):
        yield from formats.validate_dns_label(group, path.index(position))
    yield from formats.validate_unique(groups, path, lambda group: group)


# --- Nodes -----------------------------------------------------------------------------------------------------


def _validate_placement(device: Device, path: FieldPath, *, chooses_nodes: bool) -> Iterator[FieldError]:
    placements = (device.node_name, device.node_selector, device.all_nodes)
    if not chooses_nodes:
        if placements != (None, None, None):
            detail = "nodeName, nodeSelector and allNodes of a device require perDeviceNodeSelection in the slice"
            yield invalid(path, device.name, detail)
        return
    if device.node_name is not None:
        if device.node_name:
            yield from formats.validate_dns_subdomain(device.node_name, path.child("nodeName"))
        else:
            yield invalid(path.child("nodeName"), "", "must not be empty")
    if device.node_selector is not None:
        yield from validate_node_selector(device.node_selector, path.child("nodeSelector"))
    if device.all_nodes is False:
        yield invalid(path.child("allNodes"), False, "must be unset or true")
    chosen = sum(map(bool, placements))
    if chosen == 0:
        yield required(path, "one of nodeName, nodeSelector and allNodes is required")
    elif chosen > 1:
        yield invalid(path, device.name, "only one of nodeName, nodeSelector and allNodes may be set")


def _validate_node_resource(
    name: str, resource: NodeAllocatableResource, device: Device, path: FieldPath
) -> Iterator[FieldError]:
    if name not in NODE_RESOURCES and not name.startswith(HUGE_PAGES):
        yield invalid(path, name, "must be cpu, memory or hugepages-<size>")
    mapping, overhead = resource.mapping, resource.overhead
    if mapping is None and overhead is None:
        yield required(path, "mapping or overhead is required")
    if mapping is not None:
        where = path.child("mapping")
        if mapping.capacity_key is not None:
            if not mapping.capacity_key:
                yield invalid(where.child("capacityKey"), "", "must not be empty")
            elif mapping.capacity_key not in device.capacity:
                yield not_found(where.child("capacityKey"), mapping.capacity_key)
            if mapping.capacity_multiplier is None:
                yield required(where.child("capacityMultiplier"), "required with capacityKey")
            elif mapping.capacity_multiplier.sign <= 0:
                yield invalid(
                    where.child("capacityMultiplier"), mapping.capacity_multiplier, "must be greater than zero"
                )
        elif mapping.capacity_multiplier is not None:
            yield required(where.child("capacityKey"), "required with capacityMultiplier")
        if mapping.device_multiplier is not None and mapping.device_multiplier.sign <= 0:
            yield invalid(where.child("deviceMultiplier"), mapping.device_multiplier, "must be greater than zero")
    if overhead is not None:
        where = path.child("overhead")
        if overhead.per_pod is None and overhead.per_container is None:
            yield invalid(where, name, "perPod or perContainer must be set")
        for member, amount in (("perPod", overhead.per_pod), ("perContainer", overhead.per_container)):
            if amount is not None and amount.sign < 0:
                yield invalid(where.child(member), amount, "must not be negative")
