"""Descriptions of the fields of `resource.k8s.io` for `kubectl explain`, by type and JSON name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_REQUEST: Final = {
    "name": "The name by which constraints, configuration and containers refer to the request.",
    "deviceClassName": "The DeviceClass that the devices must belong to.",
    "selectors": "Selectors that every device must match, in addition to those of its class.",
    "allocationMode": "ExactCount allocates `count` devices, All every matching device, AggregatedCapacity as many as the requested capacities need in total (gate DRAAggregatedCapacity). The default is ExactCount.",
    "count": "The number of devices with mode ExactCount, by default 1, and the most devices with mode AggregatedCapacity, by default 32.",
    "adminAccess": "Access to devices that are in use, for monitoring. Only in namespaces with the admin-access label.",
    "tolerations": "Taints of devices that the request tolerates.",
    "capacity": "The requested capacity of each device. A device that allows multiple allocations is consumed by this amount.",
    "derivedAttributes": "Attributes that are computed from a device's attributes.",
    "devicePreference": "Which of the matching devices is tried first: FirstFit, LeastAvailable or MostAvailable. Without it, the preference of the class. Alpha: gate DRADevicePreference.",
    "allocations": "How often a device may be allocated already, for the request to use it. Alpha: gate DRADevicePreference.",
}

_DEVICE: Final = {
    "attributes": "The device's attributes, for selectors and constraints.",
    "capacity": "The capacities of the device.",
    "consumesCounters": "The counters that the device consumes when it is allocated.",
    "nodeName": "The node that has the device.",
    "nodeSelector": "The nodes that can use the device.",
    "allNodes": "Every node can use the device.",
    "taints": "Taints; claims that do not tolerate them do not get the device.",
    "bindsToNode": "A claim with this device is bound to the node it was allocated for.",
    "bindingConditions": "Conditions that must be true before a pod is bound.",
    "bindingFailureConditions": "Conditions that deallocate the claim if one is true.",
    "allowMultipleAllocations": "Whether several claims can share the device within its capacity.",
    "nodeAllocatableResources": "The node resources that the device provides or consumes.",
    "requestPolicies": "Request policies by name, for the capacities of the device; at most 8. Alpha: gate DRANamedRequestPolicies.",
    "remainder": "Keep or GiveToLast: what becomes of the other capacities when one is used up. The default is Keep. Alpha: gate DRACapacityRemainder.",
}

RESOURCE_DESCRIPTIONS: Final[Mapping[str, Mapping[str, str]]] = {
    "ResourceSlice": {
        "spec": "The devices, their driver and their location.",
    },
    "ResourceSliceSpec": {
        "driver": "The driver that publishes the slice and manages its devices. It cannot be changed.",
        "pool": "The pool that the devices belong to.",
        "nodeName": "The node that has the devices. It cannot be changed.",
        "nodeSelector": "The nodes that can use the devices.",
        "allNodes": "Every node can use the devices.",
        "perDeviceNodeSelection": "Each device states the nodes that can use it.",
        "devices": "The devices. A slice has devices or shared counters, not both.",
        "sharedCounters": "Counter sets that the pool's devices consume when they are allocated.",
        "partitionTypeAttribute": "The attribute that names the type of a partition.",
        "skipNodeOperations": "Driver calls that the node agent skips.",
    },
    "ResourcePool": {
        "name": "The pool's name; often that of its node.",
        "generation": "The generation of the pool. Only slices of the highest generation are used.",
        "resourceSliceCount": "The number of slices of a complete pool.",
    },
    "Device": {
        **_DEVICE,
        "name": "The device's name, unique in its pool.",
        "basic": "All properties of the device but its name.",
    },
    "BasicDevice": _DEVICE,
    "DeviceAttribute": {
        "int": "A number.",
        "bool": "A boolean.",
        "string": "A string of at most 64 characters.",
        "version": "A semantic version.",
        "ints": "Several numbers.",
        "bools": "Several booleans.",
        "strings": "Several strings.",
        "versions": "Several semantic versions.",
    },
    "DeviceCapacity": {
        "value": "The amount.",
        "requestPolicy": "How requested amounts are rounded, and the default amount.",
        "requestPolicyName": "The name of a policy of the device, instead of requestPolicy. Alpha: gate DRANamedRequestPolicies.",
    },
    "CapacityRequestPolicy": {
        "default": "The amount that a request without an amount consumes.",
        "validValues": "The amounts that can be consumed; requests are rounded up.",
        "validRange": "The range of amounts that can be consumed.",
        "strategy": "AlwaysConsumed, ConsumedOrNever or BlockOrShare: what the first user without an amount means for others. The default is AlwaysConsumed. Alpha: gate DRACapacityStrategies.",
        "zeroConsumption": "Nothing is consumed; a requested amount is the least that a device must have. It excludes all other fields. Alpha: gate DRAZeroConsumption.",
    },
    "CapacityRequestPolicyRange": {
        "min": "The minimum amount.",
        "max": "The maximum amount.",
        "step": "The step between the minimum and larger amounts.",
    },
    "CounterSet": {"name": "The name by which devices refer to the set.", "counters": "The available amounts."},
    "Counter": {"value": "The amount."},
    "DeviceCounterConsumption": {
        "counterSet": "The counter set that is consumed.",
        "counters": "The consumed amount of each counter.",
        "compatibilityGroups": "Only devices that share a group can consume the set at the same time.",
    },
    "DeviceTaint": {
        "key": "The key of the taint.",
        "value": "The value of the taint.",
        "effect": "NoSchedule keeps new pods away, NoExecute also evicts running ones, None does neither.",
        "timeAdded": "When the taint was added.",
    },
    "NodeAllocatableResource": {
        "mapping": "The amount of the node resource that a device provides.",
        "overhead": "The additional amount of the node resource that using a device consumes.",
    },
    "NodeAllocatableMapping": {
        "capacityKey": "The capacity that the amount is computed from.",
        "capacityMultiplier": "The amount for one unit of that capacity.",
        "deviceMultiplier": "The amount for the device.",
    },
    "NodeAllocatableOverhead": {
        "perPod": "The amount for each pod.",
        "perContainer": "The amount for each container.",
    },
    # --- DeviceClass
    "DeviceClass": {"spec": "The selectors and configuration of the class."},
    "DeviceClassSpec": {
        "selectors": "Selectors that every device of the class matches.",
        "config": "Configuration for the drivers of the class's devices.",
        "extendedResourceName": "The extended resource name by which pods can request devices of the class.",
        "devicePreference": "The preference of requests that have none: FirstFit, LeastAvailable or MostAvailable. Alpha: gate DRADevicePreference.",
    },
    "DeviceSelector": {"cel": "A CEL expression."},
    "CELDeviceSelector": {"expression": "True for devices that match. The variable is `device`."},
    "DeviceClassConfiguration": {"opaque": "Parameters for one driver."},
    "OpaqueDeviceConfiguration": {
        "driver": "The driver that the parameters are for.",
        "parameters": "The parameters, which only the driver interprets.",
    },
    # --- ResourceClaim
    "ResourceClaim": {
        "spec": "The requested devices. It cannot be changed.",
        "status": "The allocation and its consumers.",
    },
    "ResourceClaimSpec": {
        "devices": "The requested devices.",
        "reservedFor": "The workload whose pods use the claim; it is listed as the consumer instead of its pods.",
    },
    "DeviceClaim": {
        "requests": "The requests, each for devices of one class or of alternatives.",
        "constraints": "Constraints across the devices of several requests.",
        "config": "Configuration for the drivers.",
    },
    "DeviceRequest": {
        **_REQUEST,
        "exactly": "A request without alternatives.",
        "firstAvailable": "Alternatives in order of preference; the first that can be allocated is used.",
    },
    "ExactDeviceRequest": _REQUEST,
    "DeviceSubRequest": {
        **_REQUEST,
        "name": "The name of the alternative; references have the form `request/alternative`.",
    },
    "CapacityRequirements": {
        "requests": "The requested amount of each capacity; with mode AggregatedCapacity, the total of all devices.",
        "limits": "How far use may burst above the request. A device must have this much; it is not consumed. Alpha: gate DRACapacityLimits.",
    },
    "DeviceAllocationsRange": {
        "min": "The device must be allocated at least this often already.",
        "max": "The device may be allocated this often already; 0 requests a free device.",
    },
    "DeviceToleration": {
        "key": "The taint's key; empty matches all keys.",
        "operator": "Exists or Equal. The default is Equal.",
        "value": "The taint's value, with operator Equal.",
        "effect": "The taint's effect; empty matches all effects.",
        "tolerationSeconds": "How long a NoExecute taint is tolerated.",
    },
    "DeviceDerivedAttribute": {
        "name": "The attribute's name.",
        "expression": "The attribute's value as a CEL expression.",
    },
    "DeviceConstraint": {
        "requests": "The requests that the constraint applies to; all if empty.",
        "matchAttribute": "All devices must have the same value of this attribute.",
        "distinctAttribute": "Every device must have a different value of this attribute.",
        "distinctAttributes": "Every two devices must differ in at least one of these 2 to 8 attributes. Alpha: gate DRADistinctAttributes.",
    },
    "DeviceClaimConfiguration": {
        "requests": "The requests that the configuration applies to; all if empty.",
        "opaque": "Parameters for one driver.",
    },
    "ConsumerReference": {
        "apiGroup": "The consumer's API group; empty for pods.",
        "resource": "The consumer's resource, such as `pods`.",
        "name": "The consumer's name.",
        "uid": "The consumer's UID.",
    },
    "ResourceClaimStatus": {
        "allocation": "The allocated devices; absent if the claim is not allocated.",
        "reservedFor": "The consumers that may use the devices; at most 256.",
        "devices": "The status of devices, as reported by drivers.",
    },
    "AllocationResult": {
        "devices": "The devices and their configuration.",
        "nodeSelector": "The nodes that can use the devices; all if absent.",
        "allocationTimestamp": "When the devices were allocated.",
        "reservedForAnyPod": "Any pod that names the claim may use it, without being listed as consumer.",
    },
    "DeviceAllocationResult": {
        "results": "One entry for each device, or share of a device.",
        "config": "Configuration of class and claim for the drivers.",
    },
    "DeviceRequestAllocationResult": {
        "request": "The request of the device; `request/alternative` for an alternative.",
        "driver": "The device's driver.",
        "pool": "The device's pool.",
        "device": "The device's name.",
        "adminAccess": "The device is allocated for monitoring, and others may use it.",
        "tolerations": "The request's tolerations.",
        "bindingConditions": "Conditions that must be true before a pod is bound.",
        "bindingFailureConditions": "Conditions that deallocate the claim if one is true.",
        "shareID": "The unique ID of this share of the device.",
        "consumedCapacity": "The consumed amount of each capacity.",
        "skipNodeOperations": "Driver calls that the node agent skips.",
        "capacityLimits": "How far use of each capacity may burst, for the driver. Alpha: gate DRACapacityLimits.",
    },
    "DeviceAllocationConfiguration": {
        "source": "FromClass or FromClaim.",
        "requests": "The requests that the configuration applies to; all if empty.",
        "opaque": "Parameters for one driver.",
    },
    "AllocatedDeviceStatus": {
        "driver": "The device's driver.",
        "pool": "The device's pool.",
        "device": "The device's name.",
        "shareID": "The share of the device.",
        "conditions": "The device's conditions.",
        "data": "Further status of the driver.",
        "networkData": "The device as a network interface.",
    },
    "NetworkDeviceData": {
        "interfaceName": "The interface's name.",
        "ips": "The interface's addresses.",
        "hardwareAddress": "The interface's hardware address.",
    },
    # --- ResourceClaimTemplate, DeviceTaintRule
    "ResourceClaimTemplate": {"spec": "The claims that are created from it. It cannot be changed."},
    "ResourceClaimTemplateSpec": {
        "metadata": "Labels and annotations of the claims.",
        "spec": "The spec of the claims.",
    },
    "DeviceTaintRule": {"spec": "The taint and the devices that get it.", "status": "The progress of evictions."},
    "ResourcePoolStatusRequest": {
        "spec": "The pools that are asked about. It cannot be changed.",
        "status": "The answer, written once; a new answer takes a new request.",
    },
    "ResourcePoolStatusRequestSpec": {
        "driver": "The driver whose pools are asked about.",
        "poolName": "The only pool; all pools of the driver if it is absent.",
        "limit": "The number of pools in the answer, 1 to 1000 (default 100).",
        "defaultPartitionTypeAttribute": "The string attribute that names the type of a partition in pools whose slices name none.",
    },
    "ResourcePoolStatusRequestStatus": {
        "poolCount": "The number of pools that match; more than there are in pools if the limit was reached.",
        "pools": "The pools, by driver and name.",
        "conditions": "Complete or Failed.",
    },
    "PoolStatus": {
        "driver": "The driver.",
        "poolName": "The pool.",
        "nodeName": "The node of the pool, if all its slices are for one node.",
        "totalDevices": "The number of devices.",
        "allocatedDevices": "The number of devices that claims use; a shared device counts once.",
        "availableDevices": "The number of devices that no claim uses and that can be allocated.",
        "unavailableDevices": "The number of devices that no claim uses and that cannot be allocated: they have a taint, or other devices use their counters.",
        "resourceSliceCount": "The number of slices.",
        "generation": "The newest generation.",
        "validationError": "Why counts are missing: the pool is incomplete, or its partitions have no types.",
        "partitionSummary": "Partitions by type.",
        "shareableSummary": "Devices that can be shared.",
    },
    "PartitionTypeStatus": {
        "attribute": "The attribute that names the type.",
        "type": "The type.",
        "total": "The number of partitions.",
        "allocatable": "How many of them can be allocated now, if no other type is.",
    },
    "ShareableSummaryStatus": {
        "fullyAvailableDevices": "The number of devices that have no share.",
        "partiallyAvailableDevices": "The number of devices that have shares and capacity left.",
        "capacity": "Capacities, summed over the devices.",
    },
    "ShareableCapacityStatus": {
        "name": "The capacity.",
        "total": "What the devices have.",
        "consumed": "What shares consume.",
        "available": "What is left.",
    },
    "DeviceTaintRuleSpec": {
        "deviceSelector": "The devices that are tainted: all if empty, none if absent.",
        "taint": "The taint.",
    },
    "DeviceTaintSelector": {
        "driver": "Only devices of this driver.",
        "pool": "Only devices of this pool.",
        "device": "Only devices of this name.",
    },
    "DeviceTaintRuleStatus": {"conditions": "Whether pods are being evicted because of the taint."},
}
