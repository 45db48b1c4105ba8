"""What a request says about amounts and about the order of devices: limits, totals, preference, allocations.

No released Kubernetes has these fields; their rules are our own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dralloc.api.resource_v1 import (
    AGGREGATED_CAPACITY,
    ALL,
    FIRST_FIT,
    LEAST_AVAILABLE,
    MOST_AVAILABLE,
    CapacityRequirements,
    DeviceSubRequest,
    ExactDeviceRequest,
)
from dralloc.api.validation import formats
from dralloc.primitives.field_errors import FieldError, FieldPath, forbidden, invalid, required, too_many

PREFERENCES: Final = (FIRST_FIT, LEAST_AVAILABLE, MOST_AVAILABLE)
LIMITS_COUNT_MAX: Final = 32
# As many devices as a claim can have.
AGGREGATED_COUNT_MAX: Final = 32

Ask = ExactDeviceRequest | DeviceSubRequest


def validate_requested_capacity(ask: Ask, path: FieldPath) -> Iterator[FieldError]:
    if ask.allocation_mode == AGGREGATED_CAPACITY:
        yield from _validate_aggregated(ask, path)
    elif ask.capacity is not None and ask.capacity.limits:
        yield from _validate_limits(ask.capacity, path.child("capacity", "limits"))
    if ask.device_preference is not None:
        yield from validate_device_preference(ask.device_preference, path.child("devicePreference"))
    if ask.allocations is not None:
        yield from _validate_allocations(ask, path.child("allocations"))


def validate_device_preference(preference: str, path: FieldPath) -> Iterator[FieldError]:
    yield from formats.validate_choice(preference, path, PREFERENCES)


def _validate_limits(capacity: CapacityRequirements, path: FieldPath) -> Iterator[FieldError]:
    if len(capacity.limits) > LIMITS_COUNT_MAX:
        yield too_many(path, len(capacity.limits), LIMITS_COUNT_MAX)
        return
    for name, limit in capacity.limits.items():
        yield from formats.validate_qualified_name(name, path)
        where, request = path.key(name), capacity.requests.get(name)
        if limit.sign < 0:
            yield invalid(where, limit, "must be greater than or equal to zero")
        elif request is not None and limit < request:
            yield invalid(where, limit, f"must be greater than or equal to the request, {request}")


def _validate_aggregated(ask: Ask, path: FieldPath) -> Iterator[FieldError]:
    """The requests are totals over all devices, so a limit of one device has no meaning."""
    if not 0 < ask.count <= AGGREGATED_COUNT_MAX:
        yield invalid(path.child("count"), ask.count, f"must be between 1 and {AGGREGATED_COUNT_MAX}")
    totals, where = ask.capacity.requests if ask.capacity else {}, path.child("capacity", "requests")
    if not totals:
        yield required(where, f"required when allocationMode is {AGGREGATED_CAPACITY}")
    for name, total in totals.items():
        yield from formats.validate_qualified_name(name, where)
        if total.sign <= 0:
            yield invalid(where.key(name), total, "must be greater than zero")
    if ask.capacity is not None and ask.capacity.limits:
        yield forbidden(
            path.child("capacity", "limits"), f"may not be set when allocationMode is {AGGREGATED_CAPACITY}"
        )
    if isinstance(ask, ExactDeviceRequest) and ask.admin_access:
        yield forbidden(path.child("adminAccess"), f"may not be set when allocationMode is {AGGREGATED_CAPACITY}")


def _validate_allocations(ask: Ask, path: FieldPath) -> Iterator[FieldError]:
    """A request for all devices cannot depend on how often each is allocated: `All` means none is left out."""
    allocations = ask.allocations
    assert allocations is not None, "the caller looks for requests that have the field"
    if ask.allocation_mode == ALL:
        yield forbidden(path, "may not be set when allocationMode is All")
    if allocations.min is None and allocations.max is None:
        yield required(path, "at least one of min and max is required")
    for name, bound in (("min", allocations.min), ("max", allocations.max)):
        if bound is not None and bound < 0:
            yield invalid(path.child(name), bound, "must be greater than or equal to zero")
    if allocations.min is not None and allocations.max is not None and allocations.max < allocations.min:
        yield invalid(path.child("max"), allocations.max, f"must be greater than or equal to min, {allocations.min}")
