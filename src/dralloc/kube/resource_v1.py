"""The hub: `resource.k8s.io/v1`, the one version that the rest of the project works with.

An absent list or map is empty. Where absent and empty differ (a slice's devices, the list members of an attribute), or
where Kubernetes prints `null`, the field may be `None`; a stored object never has an empty tuple there. Enumerations
are plain strings, so that an unknown value is a validation error and not a decoding error.
"""

from __future__ import annotations

from typing import Final

from msgspec import Raw, field

from dralloc.kube.meta_v1 import ApiObject, Condition, NodeSelector, ObjectMeta
from dralloc.kube.wire import Int64, Time, Wire, printed
from dralloc.primitives.quantity import Quantity

GROUP: Final = "resource.k8s.io"

# The JSON of an absent value.
NULL: Final = Raw(b"null")

# Inside `DeviceAttribute`, `bool` is a member.
Bool = bool

EXACT_COUNT: Final = "ExactCount"
ALL: Final = "All"
AGGREGATED_CAPACITY: Final = "AggregatedCapacity"
FROM_CLASS: Final = "FromClass"
FROM_CLAIM: Final = "FromClaim"
EXISTS: Final = "Exists"
EQUAL: Final = "Equal"
EFFECT_NONE: Final = "None"
NO_SCHEDULE: Final = "NoSchedule"
NO_EXECUTE: Final = "NoExecute"
ALWAYS_CONSUMED: Final = "AlwaysConsumed"
CONSUMED_OR_NEVER: Final = "ConsumedOrNever"
BLOCK_OR_SHARE: Final = "BlockOrShare"
KEEP: Final = "Keep"
GIVE_TO_LAST: Final = "GiveToLast"
FIRST_FIT: Final = "FirstFit"
LEAST_AVAILABLE: Final = "LeastAvailable"
MOST_AVAILABLE: Final = "MostAvailable"

# --- ResourceSlice -------------------------------------------------------------------------------------


class ResourcePool(Wire):
    """One set of devices that a driver manages; it may be spread over several slices."""

    name: str = printed("")
    generation: Int64 = printed(0)
    resource_slice_count: Int64 = printed(0)


class DeviceAttribute(Wire):
    """Exactly one member is set."""

    int: Int64 | None = None
    bool: Bool | None = None
    string: str | None = None
    version: str | None = None
    ints: tuple[Int64, ...] | None = None
    bools: tuple[Bool, ...] | None = None
    strings: tuple[str, ...] | None = None
    versions: tuple[str, ...] | None = None


class CapacityRequestPolicyRange(Wire):
    min: Quantity | None = None
    max: Quantity | None = None
    step: Quantity | None = None


class CapacityRequestPolicy(Wire):
    """How a requested amount is rounded, and the default if none is requested (KEP-5075)."""

    default: Quantity | None = printed(None)
    valid_values: tuple[Quantity, ...] = ()
    valid_range: CapacityRequestPolicyRange | None = None
    strategy: str = ""
    zero_consumption: bool | None = None


class DeviceCapacity(Wire):
    """An amount that a device has, and how much of it one claim may take."""

    value: Quantity = printed(Quantity.ZERO)
    request_policy: CapacityRequestPolicy | None = None
    request_policy_name: str | None = None


class Counter(Wire):
    value: Quantity = printed(Quantity.ZERO)


class CounterSet(Wire):
    """Named amounts that the devices of a pool consume."""

    name: str = printed("")
    counters: dict[str, Counter] = field(default_factory=dict)


class DeviceCounterConsumption(Wire):
    counter_set: str = printed("")
    counters: dict[str, Counter] = field(default_factory=dict)
    compatibility_groups: tuple[str, ...] = ()


class DeviceTaint(Wire):
    key: str = printed("")
    value: str = ""
    effect: str = printed("")
    time_added: Time | None = None


class NodeAllocatableMapping(Wire):
    capacity_key: str | None = None
    capacity_multiplier: Quantity | None = None
    device_multiplier: Quantity | None = None


class NodeAllocatableOverhead(Wire):
    per_pod: Quantity | None = None
    per_container: Quantity | None = None


class NodeAllocatableResource(Wire):
    mapping: NodeAllocatableMapping | None = None
    overhead: NodeAllocatableOverhead | None = None


class Device(Wire):
    """One device of a slice; shareable if `allow_multiple_allocations` is true."""

    name: str = printed("")
    attributes: dict[str, DeviceAttribute] = field(default_factory=dict)
    capacity: dict[str, DeviceCapacity] = field(default_factory=dict)
    consumes_counters: tuple[DeviceCounterConsumption, ...] = ()
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    taints: tuple[DeviceTaint, ...] = ()
    binds_to_node: bool | None = None
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()
    allow_multiple_allocations: bool | None = None
    node_allocatable_resources: dict[str, NodeAllocatableResource] = field(default_factory=dict)
    request_policies: dict[str, CapacityRequestPolicy] = field(default_factory=dict)
    remainder: str | None = None


class ResourceSliceSpec(Wire):
    driver: str = printed("")
    pool: ResourcePool = field(default_factory=lambda: ResourcePool())
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    devices: tuple[Device, ...] | None = None
    per_device_node_selection: bool | None = None
    shared_counters: tuple[CounterSet, ...] | None = None
    partition_type_attribute: str | None = None
    skip_node_operations: tuple[str, ...] = ()


class ResourceSlice(ApiObject):
    spec: ResourceSliceSpec = field(default_factory=lambda: ResourceSliceSpec())


# --- DeviceClass ---------------------------------------------------------------------------------------


class CELDeviceSelector(Wire):
    expression: str = printed("")


class DeviceSelector(Wire):
    cel: CELDeviceSelector | None = None


class OpaqueDeviceConfiguration(Wire):
    """Parameters that only the driver understands, kept byte for byte."""

    driver: str = printed("")
    parameters: Raw = printed(NULL)


class DeviceClassConfiguration(Wire):
    opaque: OpaqueDeviceConfiguration | None = None


class DeviceClassSpec(Wire):
    selectors: tuple[DeviceSelector, ...] = ()
    config: tuple[DeviceClassConfiguration, ...] = ()
    extended_resource_name: str | None = None
    device_preference: str | None = None


class DeviceClass(ApiObject):
    spec: DeviceClassSpec = field(default_factory=lambda: DeviceClassSpec())


# --- ResourceClaim and ResourceClaimTemplate -------------------------------------------------------------


class DeviceToleration(Wire):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: Int64 | None = None


class CapacityRequirements(Wire):
    """The requested amount of each capacity, keyed by the capacity's name (KEP-5075), and how far use may burst."""

    requests: dict[str, Quantity] = field(default_factory=dict)
    limits: dict[str, Quantity] = field(default_factory=dict)


class DeviceAllocationsRange(Wire):
    """How often a device may be allocated already, for it to be a candidate."""

    min: Int64 | None = None
    max: Int64 | None = None

    def admits(self, count: int) -> bool:
        return (self.min is None or count >= self.min) and (self.max is None or count <= self.max)


class DeviceDerivedAttribute(Wire):
    name: str = printed("")
    expression: str = printed("")


class ExactDeviceRequest(Wire):
    """Devices of one class, `count` of them or all that match."""

    device_class_name: str = printed("")
    selectors: tuple[DeviceSelector, ...] = ()
    allocation_mode: str = ""
    count: Int64 = 0
    admin_access: bool | None = None
    tolerations: tuple[DeviceToleration, ...] = ()
    capacity: CapacityRequirements | None = None
    derived_attributes: tuple[DeviceDerivedAttribute, ...] = ()
    device_preference: str | None = None
    allocations: DeviceAllocationsRange | None = None


class DeviceSubRequest(Wire):
    """One alternative of a prioritized list (KEP-4816)."""

    name: str = printed("")
    device_class_name: str = printed("")
    selectors: tuple[DeviceSelector, ...] = ()
    allocation_mode: str = ""
    count: Int64 = 0
    tolerations: tuple[DeviceToleration, ...] = ()
    capacity: CapacityRequirements | None = None
    derived_attributes: tuple[DeviceDerivedAttribute, ...] = ()
    device_preference: str | None = None
    allocations: DeviceAllocationsRange | None = None


class DeviceRequest(Wire):
    """Either `exactly` one kind of device, or the first of several alternatives that fits."""

    name: str = printed("")
    exactly: ExactDeviceRequest | None = None
    first_available: tuple[DeviceSubRequest, ...] = ()


class DeviceConstraint(Wire):
    requests: tuple[str, ...] = ()
    match_attribute: str | None = None
    distinct_attribute: str | None = None
    distinct_attributes: tuple[str, ...] = ()


class DeviceClaimConfiguration(Wire):
    requests: tuple[str, ...] = ()
    opaque: OpaqueDeviceConfiguration | None = None


class DeviceClaim(Wire):
    requests: tuple[DeviceRequest, ...] | None = printed(None)
    constraints: tuple[DeviceConstraint, ...] = ()
    config: tuple[DeviceClaimConfiguration, ...] = ()


class ConsumerReference(Wire):
    """A consumer of a claim: a pod, or (KEP-5194) the workload whose pods use it."""

    api_group: str = ""
    resource: str = printed("")
    name: str = printed("")
    uid: str = printed("")


class ResourceClaimSpec(Wire):
    devices: DeviceClaim = field(default_factory=lambda: DeviceClaim())
    reserved_for: ConsumerReference | None = None


class DeviceRequestAllocationResult(Wire):
    """One device, or one share of it, allocated for one request."""

    request: str = printed("")
    driver: str = printed("")
    pool: str = printed("")
    device: str = printed("")
    admin_access: bool | None = None
    tolerations: tuple[DeviceToleration, ...] = ()
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()
    share_id: str | None = field(default=None, name="shareID")
    consumed_capacity: dict[str, Quantity] = field(default_factory=dict)
    skip_node_operations: tuple[str, ...] = ()
    capacity_limits: dict[str, Quantity] = field(default_factory=dict)


class DeviceAllocationConfiguration(Wire):
    source: str = printed("")
    requests: tuple[str, ...] = ()
    opaque: OpaqueDeviceConfiguration | None = None


class DeviceAllocationResult(Wire):
    results: tuple[DeviceRequestAllocationResult, ...] = ()
    config: tuple[DeviceAllocationConfiguration, ...] = ()


class AllocationResult(Wire):
    devices: DeviceAllocationResult = field(default_factory=lambda: DeviceAllocationResult())
    node_selector: NodeSelector | None = None
    allocation_timestamp: Time | None = None
    reserved_for_any_pod: bool | None = None


class NetworkDeviceData(Wire):
    """Interface and addresses of a network device, for the status of the claim."""

    interface_name: str = ""
    ips: tuple[str, ...] = ()
    hardware_address: str = ""


class AllocatedDeviceStatus(Wire):
    driver: str = printed("")
    pool: str = printed("")
    device: str = printed("")
    share_id: str | None = field(default=None, name="shareID")
    conditions: tuple[Condition, ...] | None = printed(None)
    data: Raw = NULL
    network_data: NetworkDeviceData | None = None


class ResourceClaimStatus(Wire):
    allocation: AllocationResult | None = None
    reserved_for: tuple[ConsumerReference, ...] = ()
    devices: tuple[AllocatedDeviceStatus, ...] = ()


class ResourceClaim(ApiObject):
    spec: ResourceClaimSpec = field(default_factory=lambda: ResourceClaimSpec())
    status: ResourceClaimStatus = field(default_factory=lambda: ResourceClaimStatus())


class ResourceClaimTemplateSpec(Wire):
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: ResourceClaimSpec = field(default_factory=lambda: ResourceClaimSpec())


class ResourceClaimTemplate(ApiObject):
    spec: ResourceClaimTemplateSpec = field(default_factory=lambda: ResourceClaimTemplateSpec())


# --- DeviceTaintRule -------------------------------------------------------------------------------------


class DeviceTaintSelector(Wire):
    """The devices that a rule taints: those for which all given fields match; an empty selector matches every device."""

    driver: str | None = None
    pool: str | None = None
    device: str | None = None


class DeviceTaintRuleSpec(Wire):
    device_selector: DeviceTaintSelector | None = None
    taint: DeviceTaint = field(default_factory=lambda: DeviceTaint())


class DeviceTaintRuleStatus(Wire):
    conditions: tuple[Condition, ...] = ()


class DeviceTaintRule(ApiObject):
    spec: DeviceTaintRuleSpec = field(default_factory=lambda: DeviceTaintRuleSpec())
    status: DeviceTaintRuleStatus = field(default_factory=lambda: DeviceTaintRuleStatus())
