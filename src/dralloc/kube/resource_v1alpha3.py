"""`resource.k8s.io/v1alpha3`: requests for the status of resource pools (KEP-5677). A request is answered once."""

from __future__ import annotations

from typing import Final

from dralloc.kube.meta_v1 import ApiObject, Condition
from dralloc.kube.wire import Int32, Int64, Wire, printed
from dralloc.primitives.quantity import Quantity

VERSION: Final = "v1alpha3"

# Types of conditions; one of them is true once the request is answered.
COMPLETE: Final = "Complete"
FAILED: Final = "Failed"

DEFAULT_LIMIT: Final = 100


class ResourcePoolStatusRequestSpec(Wire):
    """Which pools: those of a driver, or one of them. `limit` bounds the answer."""

    driver: str = printed("")
    pool_name: str | None = None
    limit: Int32 | None = None
    default_partition_type_attribute: str | None = None


class PartitionTypeStatus(Wire):
    """Partitions of one type: how many there are, and how many could be allocated together now."""

    attribute: str = printed("")
    type: str = printed("")
    total: Int32 | None = None
    allocatable: Int32 | None = None


class ShareableCapacityStatus(Wire):
    """One capacity, summed over the devices that can be shared."""

    name: str = printed("")
    total: Quantity | None = None
    consumed: Quantity | None = None
    available: Quantity | None = None


class ShareableSummaryStatus(Wire):
    """Devices that can be shared: without any share, and with shares but something left."""

    fully_available_devices: Int32 | None = None
    partially_available_devices: Int32 | None = None
    capacity: tuple[ShareableCapacityStatus, ...] = ()


class PoolStatus(Wire):
    """The devices of one pool. Without counts if `validation_error` says that the pool is incomplete."""

    driver: str = printed("")
    pool_name: str = printed("")
    node_name: str | None = None
    total_devices: Int32 | None = None
    allocated_devices: Int32 | None = None
    available_devices: Int32 | None = None
    unavailable_devices: Int32 | None = None
    resource_slice_count: Int32 | None = None
    generation: Int64 = printed(0)
    validation_error: str | None = None
    partition_summary: tuple[PartitionTypeStatus, ...] = ()
    shareable_summary: ShareableSummaryStatus | None = None


class ResourcePoolStatusRequestStatus(Wire):
    """`pool_count` is the number of pools that match; `pools` has the first of them."""

    pool_count: Int32 | None = None
    pools: tuple[PoolStatus, ...] = ()
    conditions: tuple[Condition, ...] = ()


class ResourcePoolStatusRequest(ApiObject):
    spec: ResourcePoolStatusRequestSpec = ResourcePoolStatusRequestSpec()
    status: ResourcePoolStatusRequestStatus | None = None
