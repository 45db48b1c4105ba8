"""The answer to a request for the status of pools, and when the request is deleted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from dralloc.api.meta_v1 import Condition
from dralloc.api.resource_v1 import DeviceRequestAllocationResult, ResourceSlice
from dralloc.api.resource_v1alpha3 import (
    COMPLETE,
    DEFAULT_LIMIT,
    FAILED,
    ResourcePoolStatusRequest,
    ResourcePoolStatusRequestStatus,
)
from dralloc.api.timestamps import print_timestamp, stated_time
from dralloc.controllers.pool_status.pool_counts import INCOMPLETE, count_pool
from dralloc.devices.identity import PoolId
from dralloc.devices.pool_generation import newest_slices
from dralloc.devices.taint_rules import TaintRules

ANSWERED_TTL: Final = timedelta(hours=1)
PENDING_TTL: Final = timedelta(hours=24)
# Drivers that are publishing a pool get this time before it is reported as incomplete.
INCOMPLETE_WAIT: Final = timedelta(seconds=2)


def answer(
    request: ResourcePoolStatusRequest,
    slices: Sequence[ResourceSlice],
    results: Mapping[PoolId, Sequence[DeviceRequestAllocationResult]],
    rules: TaintRules,
    now: datetime,
) -> ResourcePoolStatusRequestStatus:
    """The status of the pools that the request asks for. `slices` are those of the driver."""
    spec = request.spec
    pools = newest_slices(slices)
    wanted = sorted(each for each in pools if spec.pool_name in (None, each.pool))
    listed = tuple(
        count_pool(pools[each], results.get(each, ()), rules, spec.default_partition_type_attribute)
        for each in wanted[: spec.limit or DEFAULT_LIMIT]
    )
    errors = sum(1 for each in listed if each.validation_error)
    message = f"Calculated status for {len(listed)} pools" + (f" ({errors} incomplete)" if errors else "")
    condition = Condition(
        type=COMPLETE,
        status="True",
        reason="CalculationComplete",
        message=message,
        last_transition_time=print_timestamp(now),
    )
    return ResourcePoolStatusRequestStatus(pool_count=len(wanted), pools=listed, conditions=(condition,))


def is_premature(request: ResourcePoolStatusRequest, status: ResourcePoolStatusRequestStatus, now: datetime) -> bool:
    """True if a pool is incomplete and may be complete in a moment."""
    created = stated_time(request.metadata.creation_timestamp)
    is_new = created is not None and now - created < INCOMPLETE_WAIT
    return is_new and any((each.validation_error or "").startswith(INCOMPLETE) for each in status.pools)


def expiry(request: ResourcePoolStatusRequest) -> datetime | None:
    """When the request is deleted; None if it has no time."""
    created = stated_time(request.metadata.creation_timestamp)
    if request.status is None:
        return created + PENDING_TTL if created is not None else None
    ended = (each for each in request.status.conditions if each.type in (COMPLETE, FAILED) and each.status == "True")
    answered = next((stated_time(each.last_transition_time) for each in ended), None) or created
    return answered + ANSWERED_TTL if answered is not None else None
