"""Fields behind feature gates: while a gate is off, its fields are dropped from writes.

Nothing is dropped if the stored object uses the feature already: turning a gate off must not damage existing objects,
and a client that writes back what it read must not lose anything. Dropping is silent and comes before validation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter
from typing import Any, Final, Generic, TypeVar

from msgspec.structs import replace

from dralloc.kube.resource_v1 import (
    AGGREGATED_CAPACITY,
    AllocationResult,
    CapacityRequestPolicy,
    Device,
    DeviceAttribute,
    DeviceCapacity,
    DeviceClassSpec,
    DeviceRequest,
    DeviceRequestAllocationResult,
    DeviceSubRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
    ResourceSliceSpec,
)
from dralloc.kube.wire import map_changed
from dralloc.primitives.features import FeatureGates

PartT = TypeVar("PartT")
AskT = TypeVar("AskT", ExactDeviceRequest, DeviceSubRequest)


@dataclass(frozen=True, slots=True, eq=False)
class GatedFields(Generic[PartT]):
    """The fields that a feature adds to a part of an object: whether they are used, and the part without them."""

    gates: tuple[str, ...]
    in_use: Callable[[PartT], bool]
    cleared: Callable[[PartT], PartT]


def drop_disabled(
    features: tuple[GatedFields[PartT], ...], new: PartT, old: PartT | None, gates: FeatureGates
) -> PartT:
    """Returns the new part without the fields of disabled features that the old part does not use."""
    for feature in _disabled(features, gates):
        if feature.in_use(new) and (old is None or not feature.in_use(old)):
            new = feature.cleared(new)
    return new


# A process has one set of gates, or a few in tests.
@lru_cache(maxsize=256)
def _disabled(features: tuple[GatedFields[PartT], ...], gates: FeatureGates) -> tuple[GatedFields[PartT], ...]:
    return tuple(feature for feature in features if not all(gate in gates for gate in feature.gates))


def _fields(**empty: Any) -> tuple[Callable[[Any], bool], Callable[[Any], Any]]:
    """Whether a part has any of these fields, and the part with all of them empty."""
    get, values = attrgetter(*empty), tuple(empty.values())
    # For one field, `attrgetter` returns the value itself.
    unused = values if len(values) > 1 else values[0]
    return lambda part: bool(get(part) != unused), lambda part: replace(part, **empty)


# --- ResourceSlice ---------------------------------------------------------------------------------------------


def _any_device(uses: Callable[[Device], bool]) -> Callable[[ResourceSliceSpec], bool]:
    return lambda spec: any(map(uses, spec.devices or ()))


def _all_devices(clear: Callable[[Device], Device]) -> Callable[[ResourceSliceSpec], ResourceSliceSpec]:
    return lambda spec: spec if spec.devices is None else replace(spec, devices=tuple(map(clear, spec.devices)))


def _device_fields(*gates: str, **empty: Any) -> GatedFields[ResourceSliceSpec]:
    in_use, cleared = _fields(**empty)
    return GatedFields(gates, _any_device(in_use), _all_devices(cleared))


def _is_partitionable(spec: ResourceSliceSpec) -> bool:
    return (
        bool(spec.shared_counters)
        or spec.per_device_node_selection is not None
        or any(map(_is_partition, spec.devices or ()))
    )


def _is_partition(device: Device) -> bool:
    return bool(device.consumes_counters) or any(
        placement is not None for placement in (device.node_name, device.node_selector, device.all_nodes)
    )


def _without_partitions(spec: ResourceSliceSpec) -> ResourceSliceSpec:
    clear = _all_devices(
        lambda device: replace(device, consumes_counters=(), node_name=None, node_selector=None, all_nodes=None)
    )
    return replace(clear(spec), shared_counters=None, per_device_node_selection=None)


def _is_shareable(device: Device) -> bool:
    return device.allow_multiple_allocations is not None or any(
        capacity.request_policy is not None for capacity in device.capacity.values()
    )


def _without_sharing(device: Device) -> Device:
    capacity = {name: _without_policy(amount) for name, amount in device.capacity.items()}
    return replace(device, allow_multiple_allocations=None, capacity=capacity)


def _without_policy(capacity: DeviceCapacity) -> DeviceCapacity:
    return capacity if capacity.request_policy is None else replace(capacity, request_policy=None)


def _any_policy(uses: Callable[[CapacityRequestPolicy], bool]) -> Callable[[Device], bool]:
    """True for devices with such a policy, named or of a capacity."""

    def in_use(device: Device) -> bool:
        for capacity in device.capacity.values():
            if capacity.request_policy is not None and uses(capacity.request_policy):
                return True
        return bool(device.request_policies) and any(map(uses, device.request_policies.values()))

    return in_use


def _all_policies(**empty: Any) -> Callable[[Device], Device]:
    def cleared(device: Device) -> Device:
        named = {name: replace(policy, **empty) for name, policy in device.request_policies.items()}
        capacity = {
            name: amount
            if amount.request_policy is None
            else replace(amount, request_policy=replace(amount.request_policy, **empty))
            for name, amount in device.capacity.items()
        }
        return replace(device, capacity=capacity, request_policies=named)

    return cleared


def _policy_fields(gate: str, **empty: Any) -> GatedFields[ResourceSliceSpec]:
    in_use, _ = _fields(**empty)
    return GatedFields((gate,), _any_device(_any_policy(in_use)), _all_devices(_all_policies(**empty)))


def _has_named_policies(device: Device) -> bool:
    if device.request_policies:
        return True
    for capacity in device.capacity.values():  # noqa: SIM110, twice as fast as `any`
        if capacity.request_policy_name is not None:
            return True
    return False


def _without_named_policies(device: Device) -> Device:
    capacity = {name: replace(amount, request_policy_name=None) for name, amount in device.capacity.items()}
    return replace(device, capacity=capacity, request_policies={})


def has_list(attribute: DeviceAttribute) -> bool:
    return (
        attribute.strings is not None
        or attribute.ints is not None
        or attribute.bools is not None
        or attribute.versions is not None
    )


def _without_lists(device: Device) -> Device:
    attributes = {
        name: replace(attribute, ints=None, bools=None, strings=None, versions=None)
        if has_list(attribute)
        else attribute
        for name, attribute in device.attributes.items()
    }
    return replace(device, attributes=attributes)


def _without_compatibility_groups(device: Device) -> Device:
    return replace(
        device, consumes_counters=tuple(replace(used, compatibility_groups=()) for used in device.consumes_counters)
    )


SLICE_FEATURES: Final[tuple[GatedFields[ResourceSliceSpec], ...]] = (
    _device_fields("DRADeviceTaints", taints=()),
    GatedFields(("DRAPartitionableDevices",), _is_partitionable, _without_partitions),
    _device_fields(
        "DRADeviceBindingConditions",
        "DRAResourceClaimDeviceStatus",
        binds_to_node=None,
        binding_conditions=(),
        binding_failure_conditions=(),
    ),
    GatedFields(("DRAConsumableCapacity",), _any_device(_is_shareable), _all_devices(_without_sharing)),
    GatedFields(
        ("DRADeviceCompatibilityGroups",),
        _any_device(lambda device: any(used.compatibility_groups for used in device.consumes_counters)),
        _all_devices(_without_compatibility_groups),
    ),
    _device_fields("DRANodeAllocatableResources", node_allocatable_resources={}),
    GatedFields(
        ("DRAListTypeAttributes",),
        _any_device(lambda device: any(map(has_list, device.attributes.values()))),
        _all_devices(_without_lists),
    ),
    GatedFields(("DRAPartitionableDevicesType",), *_fields(partition_type_attribute=None)),
    GatedFields(("DRAOptionalNodeOperations",), *_fields(skip_node_operations=())),
    _policy_fields("DRACapacityStrategies", strategy=""),
    _policy_fields("DRAZeroConsumption", zero_consumption=None),
    GatedFields(("DRANamedRequestPolicies",), _any_device(_has_named_policies), _all_devices(_without_named_policies)),
    _device_fields("DRACapacityRemainder", remainder=None),
)


# --- DeviceClass -----------------------------------------------------------------------------------------------

CLASS_FEATURES: Final[tuple[GatedFields[DeviceClassSpec], ...]] = (
    GatedFields(("DRAExtendedResource",), *_fields(extended_resource_name=None)),
    GatedFields(("DRADevicePreference",), *_fields(device_preference=None)),
)


# --- Spec of a claim or a template -----------------------------------------------------------------------------


def _asks(spec: ResourceClaimSpec) -> Iterator[ExactDeviceRequest | DeviceSubRequest]:
    for request in spec.devices.requests or ():
        if request.exactly is not None:
            yield request.exactly
        yield from request.first_available


def _all_requests(clear: Callable[[DeviceRequest], DeviceRequest]) -> Callable[[ResourceClaimSpec], ResourceClaimSpec]:
    def cleared(spec: ResourceClaimSpec) -> ResourceClaimSpec:
        requests = map_changed(spec.devices.requests or (), clear)
        return replace(spec, devices=replace(spec.devices, requests=requests))

    return cleared


def _all_asks(**cleared: Any) -> Callable[[ResourceClaimSpec], ResourceClaimSpec]:
    def clear(request: DeviceRequest) -> DeviceRequest:
        exactly = None if request.exactly is None else replace(request.exactly, **cleared)
        return replace(
            request, exactly=exactly, first_available=tuple(replace(sub, **cleared) for sub in request.first_available)
        )

    return _all_requests(clear)


def _ask_fields(gate: str, **empty: Any) -> GatedFields[ResourceClaimSpec]:
    in_use, _ = _fields(**empty)
    return GatedFields((gate,), lambda spec: any(map(in_use, _asks(spec))), _all_asks(**empty))


def _without_admin_access(request: DeviceRequest) -> DeviceRequest:
    return request if request.exactly is None else replace(request, exactly=replace(request.exactly, admin_access=None))


def uses_admin_access(spec: ResourceClaimSpec) -> bool:
    return any(
        request.exactly is not None and request.exactly.admin_access is not None
        for request in spec.devices.requests or ()
    )


def uses_consumable_capacity(spec: ResourceClaimSpec) -> bool:
    return any(constraint.distinct_attribute is not None for constraint in spec.devices.constraints) or any(
        ask.capacity is not None for ask in _asks(spec)
    )


def _without_capacities(spec: ResourceClaimSpec) -> ResourceClaimSpec:
    constraints = tuple(replace(constraint, distinct_attribute=None) for constraint in spec.devices.constraints)
    spec = _all_asks(capacity=None)(spec)
    return replace(spec, devices=replace(spec.devices, constraints=constraints))


def _uses_limits(spec: ResourceClaimSpec) -> bool:
    return any(ask.capacity is not None and ask.capacity.limits for ask in _asks(spec))


def _without_limits(request: DeviceRequest) -> DeviceRequest:
    exactly = None if request.exactly is None else _without_ask_limits(request.exactly)
    return replace(request, exactly=exactly, first_available=tuple(map(_without_ask_limits, request.first_available)))


def _without_ask_limits(ask: AskT) -> AskT:
    return ask if ask.capacity is None else replace(ask, capacity=replace(ask.capacity, limits={}))


def _without_distinct_attributes(spec: ResourceClaimSpec) -> ResourceClaimSpec:
    constraints = tuple(replace(constraint, distinct_attributes=()) for constraint in spec.devices.constraints)
    return replace(spec, devices=replace(spec.devices, constraints=constraints))


def uses_aggregated_capacity(spec: ResourceClaimSpec) -> bool:
    return any(ask.allocation_mode == AGGREGATED_CAPACITY for ask in _asks(spec))


# The mode AggregatedCapacity is a value, not a field: while its gate is off, validation refuses it. Without the mode,
# the request would mean one device.
CLAIM_SPEC_FEATURES: Final[tuple[GatedFields[ResourceClaimSpec], ...]] = (
    GatedFields(
        ("DRAPrioritizedList",),
        lambda spec: any(request.first_available for request in spec.devices.requests or ()),
        _all_requests(lambda request: replace(request, first_available=())),
    ),
    _ask_fields("DRADeviceTaints", tolerations=()),
    GatedFields(("DRAAdminAccess",), uses_admin_access, _all_requests(_without_admin_access)),
    GatedFields(("DRAConsumableCapacity",), uses_consumable_capacity, _without_capacities),
    _ask_fields("DRADerivedAttributes", derived_attributes=()),
    GatedFields(("DRAReservedForWorkloads",), *_fields(reserved_for=None)),
    GatedFields(("DRACapacityLimits",), _uses_limits, _all_requests(_without_limits)),
    _ask_fields("DRADevicePreference", device_preference=None, allocations=None),
    GatedFields(
        ("DRADistinctAttributes",),
        lambda spec: any(constraint.distinct_attributes for constraint in spec.devices.constraints),
        _without_distinct_attributes,
    ),
)


# --- Status of a claim -----------------------------------------------------------------------------------------


def _results(claim: ResourceClaim) -> tuple[DeviceRequestAllocationResult, ...]:
    return () if claim.status.allocation is None else claim.status.allocation.devices.results


def _all_results(
    clear: Callable[[DeviceRequestAllocationResult], DeviceRequestAllocationResult],
) -> Callable[[ResourceClaim], ResourceClaim]:
    def cleared(claim: ResourceClaim) -> ResourceClaim:
        allocation = claim.status.allocation
        if allocation is None:
            return claim
        devices = replace(allocation.devices, results=tuple(map(clear, allocation.devices.results)))
        return _with_allocation(claim, replace(allocation, devices=devices))

    return cleared


def _result_fields(gate: str, **empty: Any) -> GatedFields[ResourceClaim]:
    in_use, cleared = _fields(**empty)
    return GatedFields((gate,), lambda claim: any(map(in_use, _results(claim))), _all_results(cleared))


def _with_allocation(claim: ResourceClaim, allocation: AllocationResult) -> ResourceClaim:
    return replace(claim, status=replace(claim.status, allocation=allocation))


def _holds_shares(claim: ResourceClaim) -> bool:
    return (
        uses_consumable_capacity(claim.spec)
        or any(result.share_id is not None or result.consumed_capacity for result in _results(claim))
        or any(device.share_id is not None for device in claim.status.devices)
    )


def _without_shares(claim: ResourceClaim) -> ResourceClaim:
    claim = _all_results(lambda result: replace(result, share_id=None, consumed_capacity={}))(claim)
    devices = tuple(replace(device, share_id=None) for device in claim.status.devices)
    return replace(claim, status=replace(claim.status, devices=devices))


def _is_for_any_pod(claim: ResourceClaim) -> bool:
    allocation = claim.status.allocation
    return claim.spec.reserved_for is not None or (
        allocation is not None and allocation.reserved_for_any_pod is not None
    )


def _not_for_any_pod(claim: ResourceClaim) -> ResourceClaim:
    allocation = claim.status.allocation
    return claim if allocation is None else _with_allocation(claim, replace(allocation, reserved_for_any_pod=None))


CLAIM_STATUS_FEATURES: Final[tuple[GatedFields[ResourceClaim], ...]] = (
    GatedFields(
        ("DRAResourceClaimDeviceStatus",),
        lambda claim: bool(claim.status.devices),
        lambda claim: replace(claim, status=replace(claim.status, devices=())),
    ),
    GatedFields(
        ("DRAAdminAccess",),
        lambda claim: (
            uses_admin_access(claim.spec) or any(result.admin_access is not None for result in _results(claim))
        ),
        _all_results(lambda result: replace(result, admin_access=None)),
    ),
    GatedFields(("DRAConsumableCapacity",), _holds_shares, _without_shares),
    _result_fields("DRADeviceBindingConditions", binding_conditions=(), binding_failure_conditions=()),
    _result_fields("DRAOptionalNodeOperations", skip_node_operations=()),
    GatedFields(("DRAReservedForWorkloads",), _is_for_any_pod, _not_for_any_pod),
    GatedFields(
        ("DRACapacityLimits",),
        lambda claim: _uses_limits(claim.spec) or any(result.capacity_limits for result in _results(claim)),
        _all_results(lambda result: replace(result, capacity_limits={})),
    ),
)
