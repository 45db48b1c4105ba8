"""`stamp`: the wire form of allocations, made once when they are committed, with share IDs and the time."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from dralloc.devices.allocator.outcome import ClaimAllocation, DeviceAllocation
from dralloc.kube.resource_v1 import AllocationResult, DeviceAllocationResult, DeviceRequestAllocationResult
from dralloc.kube.timestamps import print_timestamp

__all__ = ["stamp"]


def stamp(
    allocation: ClaimAllocation, share_ids: Callable[[], str], allocated_at: datetime | None = None
) -> AllocationResult:
    """The AllocationResult, with a new ID from `share_ids` for each share and the time, where one is given."""
    results = tuple(_device_result(device, share_ids) for device in allocation.devices)
    return AllocationResult(
        devices=DeviceAllocationResult(results=results, config=allocation.config),
        node_selector=allocation.node_selector,
        allocation_timestamp=print_timestamp(allocated_at) if allocated_at is not None else None,
    )


def _device_result(allocated: DeviceAllocation, share_ids: Callable[[], str]) -> DeviceRequestAllocationResult:
    device_id = allocated.device
    return DeviceRequestAllocationResult(
        request=str(allocated.request),
        driver=device_id.driver,
        pool=device_id.pool,
        device=device_id.device,
        admin_access=True if allocated.admin_access else None,
        tolerations=allocated.tolerations,
        binding_conditions=allocated.binding_conditions,
        binding_failure_conditions=allocated.binding_failure_conditions,
        share_id=share_ids() if allocated.is_share else None,
        consumed_capacity=allocated.consumed_capacity,
        capacity_limits=allocated.capacity_limits,
        skip_node_operations=allocated.skip_node_operations,
    )
