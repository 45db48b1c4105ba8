"""ResourcePoolStatusRequest: the spec is immutable, and so is the answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dralloc.kube.resource_v1alpha3 import (
    PoolStatus,
    ResourcePoolStatusRequest,
    ResourcePoolStatusRequestSpec,
    ResourcePoolStatusRequestStatus,
    ShareableSummaryStatus,
)
from dralloc.kube.validation.conditions import validate_conditions
from dralloc.kube.validation.formats import (
    validate_dns_subdomain,
    validate_driver_name,
    validate_fully_qualified_name,
    validate_unique,
)
from dralloc.kube.validation.metadata import validate_metadata, validate_metadata_update
from dralloc.primitives.field_errors import FieldError, FieldPath, invalid, required, too_long, too_many
from dralloc.primitives.names import length_in_bytes

LIMIT_MAX: Final = 1000
POOLS_COUNT_MAX: Final = 1000
CONDITIONS_COUNT_MAX: Final = 10
SUMMARY_COUNT_MAX: Final = 32
ERROR_LENGTH_MAX: Final = 256

SPEC: Final = FieldPath.of("spec")
STATUS: Final = FieldPath.of("status")


def validate_pool_status_request(request: ResourcePoolStatusRequest) -> Iterator[FieldError]:
    yield from validate_metadata(request.metadata, namespaced=False)
    yield from _validate_spec(request.spec)


def validate_pool_status_request_update(
    new: ResourcePoolStatusRequest, old: ResourcePoolStatusRequest
) -> Iterator[FieldError]:
    yield from validate_metadata_update(new.metadata, old.metadata)
    if new.spec != old.spec:
        yield invalid(SPEC, "<value omitted>", "field is immutable")


def validate_pool_status(new: ResourcePoolStatusRequest, old: ResourcePoolStatusRequest) -> Iterator[FieldError]:
    yield from validate_metadata_update(new.metadata, old.metadata)
    if old.status is not None and new.status != old.status:
        yield invalid(STATUS, "<value omitted>", "field is immutable")
    elif new.status is not None and new.status != old.status:
        yield from _validate_status(new.status)


def _validate_spec(spec: ResourcePoolStatusRequestSpec) -> Iterator[FieldError]:
    yield from validate_driver_name(spec.driver, SPEC.child("driver"))
    if spec.pool_name is not None:
        for segment in spec.pool_name.split("/"):
            yield from validate_dns_subdomain(segment, SPEC.child("poolName"))
    if spec.limit is not None and not 1 <= spec.limit <= LIMIT_MAX:
        yield invalid(SPEC.child("limit"), spec.limit, f"must be between 1 and {LIMIT_MAX}")
    if spec.default_partition_type_attribute is not None:
        path = SPEC.child("defaultPartitionTypeAttribute")
        yield from validate_fully_qualified_name(spec.default_partition_type_attribute, path)


def _validate_status(status: ResourcePoolStatusRequestStatus) -> Iterator[FieldError]:
    yield from _validate_count(status.pool_count, STATUS.child("poolCount"), is_required=True)
    if len(status.pools) > POOLS_COUNT_MAX:
        yield too_many(STATUS.child("pools"), len(status.pools), POOLS_COUNT_MAX)
    for position, pool in enumerate(status.pools):
        yield from _validate_pool(pool, STATUS.child("pools").index(position))
    yield from validate_conditions(status.conditions, STATUS.child("conditions"), CONDITIONS_COUNT_MAX)


def _validate_pool(pool: PoolStatus, path: FieldPath) -> Iterator[FieldError]:
    yield from validate_driver_name(pool.driver, path.child("driver"))
    if not pool.pool_name:
        yield required(path.child("poolName"))
    else:
        for segment in pool.pool_name.split("/"):
            yield from validate_dns_subdomain(segment, path.child("poolName"))
    if pool.node_name is not None:
        yield from validate_dns_subdomain(pool.node_name, path.child("nodeName"))
    yield from _validate_count(pool.generation, path.child("generation"))
    yield from _validate_count(pool.resource_slice_count, path.child("resourceSliceCount"), least=1)
    for name, count in (
        ("totalDevices", pool.total_devices),
        ("allocatedDevices", pool.allocated_devices),
        ("availableDevices", pool.available_devices),
        ("unavailableDevices", pool.unavailable_devices),
    ):
        yield from _validate_count(count, path.child(name))
    if pool.validation_error is not None and length_in_bytes(pool.validation_error) > ERROR_LENGTH_MAX:
        yield too_long(path.child("validationError"), ERROR_LENGTH_MAX)
    yield from _validate_partitions(pool, path.child("partitionSummary"))
    if pool.shareable_summary is not None:
        yield from _validate_shareable(pool.shareable_summary, path.child("shareableSummary"))


def _validate_partitions(pool: PoolStatus, path: FieldPath) -> Iterator[FieldError]:
    if len(pool.partition_summary) > SUMMARY_COUNT_MAX:
        yield too_many(path, len(pool.partition_summary), SUMMARY_COUNT_MAX)
    for position, each in enumerate(pool.partition_summary):
        where = path.index(position)
        for name, text in (("attribute", each.attribute), ("type", each.type)):
            if not text:
                yield required(where.child(name))
        yield from _validate_count(each.total, where.child("total"), is_required=True)
        yield from _validate_count(each.allocatable, where.child("allocatable"), is_required=True)
    yield from validate_unique(pool.partition_summary, path, lambda each: (each.attribute, each.type))


def _validate_shareable(summary: ShareableSummaryStatus, path: FieldPath) -> Iterator[FieldError]:
    for name, count in (
        ("fullyAvailableDevices", summary.fully_available_devices),
        ("partiallyAvailableDevices", summary.partially_available_devices),
    ):
        yield from _validate_count(count, path.child(name), is_required=True)
    if len(summary.capacity) > SUMMARY_COUNT_MAX:
        yield too_many(path.child("capacity"), len(summary.capacity), SUMMARY_COUNT_MAX)
    yield from validate_unique(summary.capacity, path.child("capacity"), lambda each: each.name)


def _validate_count(
    count: int | None, path: FieldPath, *, least: int = 0, is_required: bool = False
) -> Iterator[FieldError]:
    if count is None:
        if is_required:
            yield required(path)
    elif count < least:
        yield invalid(path, count, f"must be greater than or equal to {least}")
