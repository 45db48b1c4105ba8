"""ResourceClaim status: allocation, reservations, and the device status from drivers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from dralloc.kube import resource_v1
from dralloc.kube.validation import formats
from dralloc.kube.validation.conditions import (
    validate_binding_conditions,
    validate_conditions,
    validate_skipped_operations,
    validate_unprepare_skipped,
)
from dralloc.kube.validation.configuration import CONFIG_COUNT_MAX, validate_opaque
from dralloc.kube.validation.metadata import validate_metadata_update
from dralloc.kube.validation.node_selector import validate_node_selector
from dralloc.kube.validation.resource_claim import RequestNames, validate_consumer
from dralloc.kube.validation.taints import validate_toleration_choices, validate_toleration_value
from dralloc.primitives import names
from dralloc.primitives.field_errors import FieldError, FieldPath, forbidden, invalid, required, too_long, too_many
from dralloc.primitives.names import length_in_bytes
from dralloc.primitives.quantity import Quantity

RESULTS_COUNT_MAX: Final = 32
# From the classes and from the claim.
ALLOCATION_CONFIG_COUNT_MAX: Final = 2 * CONFIG_COUNT_MAX
RESERVED_FOR_COUNT_MAX: Final = 256
DEVICE_CONDITIONS_COUNT_MAX: Final = 8
DEVICE_DATA_LENGTH_MAX: Final = 10 * 1024
IPS_COUNT_MAX: Final = 16
INTERFACE_NAME_LENGTH_MAX: Final = 256
HARDWARE_ADDRESS_LENGTH_MAX: Final = 128

STATUS: Final = FieldPath.of("status")
ALLOCATION: Final = STATUS.child("allocation")


class AllocatedDeviceKey(Struct, frozen=True, gc=False):
    """A device, or one share of it, in a claim's allocation. An absent share ID equals an empty one."""

    driver: str
    pool: str
    device: str
    share_id: str

    @classmethod
    def of(
        cls, entry: resource_v1.DeviceRequestAllocationResult | resource_v1.AllocatedDeviceStatus
    ) -> AllocatedDeviceKey:
        return cls(entry.driver, entry.pool, entry.device, entry.share_id or "")

    def __str__(self) -> str:
        return "/".join(filter(None, (self.driver, self.pool, self.device, self.share_id)))


def allocated_devices(status: resource_v1.ResourceClaimStatus) -> frozenset[AllocatedDeviceKey]:
    if status.allocation is None:
        return frozenset()
    return frozenset(map(AllocatedDeviceKey.of, status.allocation.devices.results))


def validate_resource_claim_status_update(
    new: resource_v1.ResourceClaim, old: resource_v1.ResourceClaim, *, allocation_changed: bool
) -> Iterator[FieldError]:
    yield from validate_metadata_update(new.metadata, old.metadata)
    yield from _validate_reservations(new, old)
    if new.status.devices:
        yield from _validate_devices(new.status)
    allocation = new.status.allocation
    if allocation is None:
        return
    if old.status.allocation is None:
        yield from _validate_allocation(allocation, new)
    elif allocation_changed:
        yield invalid(ALLOCATION, None, "cannot be modified once set")


# --- Reservations ----------------------------------------------------------------------------------------------


def _validate_reservations(new: resource_v1.ResourceClaim, old: resource_v1.ResourceClaim) -> Iterator[FieldError]:
    consumers, path = new.status.reserved_for, STATUS.child("reservedFor")
    if len(consumers) > RESERVED_FOR_COUNT_MAX:
        yield too_many(path, len(consumers), RESERVED_FOR_COUNT_MAX)
    else:
        for position, consumer in enumerate(consumers):
            yield from validate_consumer(consumer, path.index(position))
        yield from formats.validate_unique(consumers, path, lambda consumer: consumer.uid)
    if consumers and new.status.allocation is None:
        yield forbidden(path, "a claim that is not allocated cannot be reserved")
    elif new.metadata.deletion_timestamp is not None and any(
        consumer not in old.status.reserved_for for consumer in consumers
    ):
        yield forbidden(path, "a claim that is being deleted cannot be reserved for new consumers")


# --- Allocation ------------------------------------------------------------------------------------------------


def _validate_allocation(
    allocation: resource_v1.AllocationResult, claim: resource_v1.ResourceClaim
) -> Iterator[FieldError]:
    """Validates only a new allocation: rules may have become stricter since an old one was made."""
    request_names = RequestNames(claim.spec.devices)
    results, path = allocation.devices.results, ALLOCATION.child("devices", "results")
    if len(results) > RESULTS_COUNT_MAX:
        yield too_many(path, len(results), RESULTS_COUNT_MAX)
    else:
        for position, result in enumerate(results):
            yield from _validate_result(result, path.index(position), request_names)
    if allocation.devices.config:
        yield from _validate_config(allocation.devices.config, request_names)
    if allocation.node_selector is not None:
        yield from validate_node_selector(allocation.node_selector, ALLOCATION.child("nodeSelector"))
    if allocation.reserved_for_any_pod and claim.spec.reserved_for is None:
        yield forbidden(ALLOCATION.child("reservedForAnyPod"), "spec.reservedFor of the claim names no workload")


def _validate_result(
    result: resource_v1.DeviceRequestAllocationResult, path: FieldPath, request_names: RequestNames
) -> Iterator[FieldError]:
    yield from request_names.validate_reference(result.request, path.child("request"))
    yield from formats.validate_driver_name(result.driver, path.child("driver"))
    yield from formats.validate_pool_name(result.pool, path.child("pool"))
    yield from formats.validate_dns_label(result.device, path.child("device"))
    for position, toleration in enumerate(result.tolerations):
        where = path.child("tolerations").index(position)
        yield from validate_toleration_choices(toleration, where)
        yield from validate_toleration_value(toleration, where)
    if result.binding_conditions or result.binding_failure_conditions:
        yield from validate_binding_conditions(result.binding_conditions, result.binding_failure_conditions, path, path)
    if result.share_id is not None:
        yield from formats.validate_format(result.share_id, path.child("shareID"), names.uuid)
    if result.skip_node_operations:
        yield from validate_skipped_operations(result.skip_node_operations, path.child("skipNodeOperations"))
        yield from validate_unprepare_skipped(result.skip_node_operations, path.child("skipNodeOperations"))
    for name, limit in result.capacity_limits.items():
        consumed = result.consumed_capacity.get(name, Quantity.ZERO)
        if limit.sign < 0 or limit < consumed:
            detail = f"must be greater than or equal to the consumed capacity, {consumed}"
            yield invalid(path.child("capacityLimits").key(name), limit, detail)


def _validate_config(
    config: tuple[resource_v1.DeviceAllocationConfiguration, ...], request_names: RequestNames
) -> Iterator[FieldError]:
    path = ALLOCATION.child("devices", "config")
    if len(config) > ALLOCATION_CONFIG_COUNT_MAX:
        yield too_many(path, len(config), ALLOCATION_CONFIG_COUNT_MAX)
        return
    for position, entry in enumerate(config):
        where = path.index(position)
        if not entry.source:
            yield required(where.child("source"))
        else:
            yield from formats.validate_choice(
                entry.source, where.child("source"), (resource_v1.FROM_CLAIM, resource_v1.FROM_CLASS)
            )
        yield from request_names.validate_references(entry.requests, where.child("requests"))
        yield from validate_opaque(entry.opaque, where.child("opaque"))


# --- Device status from drivers --------------------------------------------------------------------------------


def _validate_devices(status: resource_v1.ResourceClaimStatus) -> Iterator[FieldError]:
    allocated, path = allocated_devices(status), STATUS.child("devices")
    for position, device in enumerate(status.devices):
        where = path.index(position)
        yield from _validate_device(device, where)
        if AllocatedDeviceKey.of(device) not in allocated:
            yield invalid(where, _shown_key(device), "must be an allocated device in the claim")
    yield from formats.validate_unique(status.devices, path, AllocatedDeviceKey.of)


def _shown_key(device: resource_v1.AllocatedDeviceStatus) -> dict[str, str]:
    """The identity of a device as Kubernetes shows it in messages."""
    key = AllocatedDeviceKey.of(device)
    return {"Driver": key.driver, "Pool": key.pool, "Device": key.device, "ShareID": key.share_id or ""}


def _validate_device(device: resource_v1.AllocatedDeviceStatus, path: FieldPath) -> Iterator[FieldError]:
    yield from formats.validate_driver_name(device.driver, path.child("driver"))
    yield from formats.validate_pool_name(device.pool, path.child("pool"))
    yield from formats.validate_dns_label(device.device, path.child("device"))
    if device.share_id is not None:
        yield from formats.validate_format(device.share_id, path.child("shareID"), names.uuid)
    yield from validate_conditions(device.conditions or (), path.child("conditions"), DEVICE_CONDITIONS_COUNT_MAX)
    if device.data != resource_v1.NULL:
        yield from formats.validate_json_object(device.data, path.child("data"), DEVICE_DATA_LENGTH_MAX)
    if device.network_data is not None:
        yield from _validate_network_data(device.network_data, path.child("networkData"))


def _validate_network_data(network: resource_v1.NetworkDeviceData, path: FieldPath) -> Iterator[FieldError]:
    if length_in_bytes(network.interface_name) > INTERFACE_NAME_LENGTH_MAX:
        yield too_long(path.child("interfaceName"), INTERFACE_NAME_LENGTH_MAX)
    if length_in_bytes(network.hardware_address) > HARDWARE_ADDRESS_LENGTH_MAX:
        yield too_long(path.child("hardwareAddress"), HARDWARE_ADDRESS_LENGTH_MAX)
    addresses = path.child("ips")
    if len(network.ips) > IPS_COUNT_MAX:
        yield too_many(addresses, len(network.ips), IPS_COUNT_MAX)
        return
    for position, address in enumerate(network.ips):
        yield from formats.validate_format(address, addresses.index(position), names.interface_address)
    yield from formats.validate_unique(network.ips, addresses, lambda address: address)
