"""`resource.k8s.io/v1beta1` where it differs from the hub: the fields of an exact request are in the request itself,
and those of a device in `basic`. Everything else is the hub's.
"""

from __future__ import annotations

from msgspec import field

from dralloc.kube import resource_v1 as hub
from dralloc.kube.meta_v1 import ApiObject, NodeSelector, ObjectMeta
from dralloc.kube.wire import Int64, Wire, printed


class BasicDevice(Wire):
    """A device without its name."""

    attributes: dict[str, hub.DeviceAttribute] = field(default_factory=dict)
    capacity: dict[str, hub.DeviceCapacity] = field(default_factory=dict)
    consumes_counters: tuple[hub.DeviceCounterConsumption, ...] = ()
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    taints: tuple[hub.DeviceTaint, ...] = ()
    binds_to_node: bool | None = None
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()
    allow_multiple_allocations: bool | None = None
    node_allocatable_resources: dict[str, hub.NodeAllocatableResource] = field(default_factory=dict)
    request_policies: dict[str, hub.CapacityRequestPolicy] = field(default_factory=dict)
    remainder: str | None = None


class Device(Wire):
    name: str = printed("")
    basic: BasicDevice | None = None


class ResourceSliceSpec(Wire):
    driver: str = printed("")
    pool: hub.ResourcePool = field(default_factory=lambda: hub.ResourcePool())
    node_name: str = ""
    node_selector: NodeSelector | None = None
    all_nodes: bool = False
    devices: tuple[Device, ...] | None = None
    per_device_node_selection: bool | None = None
    shared_counters: tuple[hub.CounterSet, ...] | None = None
    partition_type_attribute: str | None = None
    skip_node_operations: tuple[str, ...] = ()


class ResourceSlice(ApiObject):
    spec: ResourceSliceSpec = field(default_factory=lambda: ResourceSliceSpec())


class DeviceRequest(Wire):
    """An exact request if any of its own fields is set, even to an empty list; otherwise a list of alternatives."""

    name: str = printed("")
    device_class_name: str = printed("")
    selectors: tuple[hub.DeviceSelector, ...] | None = None
    allocation_mode: str = ""
    count: Int64 = 0
    admin_access: bool | None = None
    first_available: tuple[hub.DeviceSubRequest, ...] = ()
    tolerations: tuple[hub.DeviceToleration, ...] | None = None
    capacity: hub.CapacityRequirements | None = None
    derived_attributes: tuple[hub.DeviceDerivedAttribute, ...] | None = None
    device_preference: str | None = None
    allocations: hub.DeviceAllocationsRange | None = None


class DeviceClaim(Wire):
    requests: tuple[DeviceRequest, ...] | None = printed(None)
    constraints: tuple[hub.DeviceConstraint, ...] = ()
    config: tuple[hub.DeviceClaimConfiguration, ...] = ()


class ResourceClaimSpec(Wire):
    devices: DeviceClaim = field(default_factory=lambda: DeviceClaim())
    reserved_for: hub.ConsumerReference | None = None


class ResourceClaim(ApiObject):
    spec: ResourceClaimSpec = field(default_factory=lambda: ResourceClaimSpec())
    status: hub.ResourceClaimStatus = field(default_factory=lambda: hub.ResourceClaimStatus())


class ResourceClaimTemplateSpec(Wire):
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: ResourceClaimSpec = field(default_factory=lambda: ResourceClaimSpec())


class ResourceClaimTemplate(ApiObject):
    spec: ResourceClaimTemplateSpec = field(default_factory=lambda: ResourceClaimTemplateSpec())
