"""docs/reference/feature-gates.md: every gate with its default and its purpose."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from dralloc.primitives.features import GATES
from scripts.reference.markdown import table

GATE_TEXTS: Final[Mapping[str, str]] = {
    "DynamicResourceAllocation": "Dynamic resource allocation as a whole.",
    "DRAAdminAccess": "`adminAccess` in requests: access to devices in use, for monitoring, in labelled namespaces.",
    "DRAPrioritizedList": "`firstAvailable` in requests: alternatives in order of preference (KEP-4816).",
    "DRAResourceClaimDeviceStatus": "`status.devices` of claims: the drivers' status of allocated devices.",
    "DRAResourceClaimGranularStatusAuthorization": "Writing an allocation or a driver's device status requires separate permissions.",
    "DRAConsumableCapacity": "Devices shared by capacity: `allowMultipleAllocations`, `requestPolicy`, `capacity.requests`, `distinctAttribute` (KEP-5075).",
    "DRAFractionalCapacityRange": "Fractional steps in request policies.",
    "DRAPartitionableDevices": "Devices that consume shared counters: `sharedCounters`, `consumesCounters`, per-device node selection.",
    "DRAResourcePoolStatus": "The kind `ResourcePoolStatusRequest` (`resource.k8s.io/v1alpha3`): what is free in the pools of a driver, without rights on claims (KEP-5677).",
    "DRAPartitionableDevicesType": "The type of a partition, in slices and in requests for the status of pools.",
    "DRADeviceCompatibilityGroups": "Devices of one counter set are allocated together only within a compatibility group.",
    "DRADeviceTaints": "Taints in slices, tolerations in requests, eviction.",
    "DRADeviceTaintRules": "Taints by an administrator's rule (`DeviceTaintRule`).",
    "DRADeviceBindingConditions": "Devices that must be ready before a pod is bound.",
    "DRAExtendedResource": "`extendedResourceName` of classes: pods that request it in `resources` get devices of the class, through a claim that the scheduler makes.",
    "DRAListTypeAttributes": "Attributes with lists of values.",
    "DRANodeAllocatableResources": "Devices that represent resources of the node itself.",
    "DRAOptionalNodeOperations": "Devices whose driver need not be called on the node.",
    "DRADerivedAttributes": "Attributes that a request computes from a device, for `matchAttribute` and `distinctAttribute`. While the gate is off, a stored claim that has them is not allocated, with a message.",
    "DRASchedulerFilterTimeout": "A limit on the search for devices on one node. Here the limit is a number of steps.",
    "ResourceHealthStatus": "Health of devices in the status of pods.",
    "GenericWorkload": "The kinds `Workload` and `PodGroup` (`scheduling.k8s.io/v1beta1`), and `schedulingGroup` of pods (KEP-4671).",
    "DRAWorkloadResourceClaims": "`resourceClaims` of PodGroups: one claim for all pods of a group (KEP-5729).",
    "TopologyAwareWorkloadScheduling": "`schedulingConstraints` of PodGroups: all pods on nodes with the same value of a label.",
    "WorkloadWithJob": "`scheduling` of Jobs: the Job controller creates a Workload and a PodGroup for the pods of a Job.",
    "PodGroupPreemptionPolicy": "`preemptionPolicy` of PodGroups.",
    "DRAReservedForWorkloads": "`spec.reservedFor` of claims: one claim for all pods of a workload (KEP-5194). No released Kubernetes has it.",
    "DRACapacityLimits": "`capacity.limits` in requests: how far use may burst; the driver learns it from `capacityLimits` in the result.",
    "DRAAggregatedCapacity": "`allocationMode: AggregatedCapacity`: as many devices as it takes for a total capacity. While the gate is off, the mode is refused.",
    "DRACapacityStrategies": "`requestPolicy.strategy`: whether the first user decides if a capacity is consumed.",
    "DRANamedRequestPolicies": "`requestPolicies` of a device and `requestPolicyName` of its capacities.",
    "DRAZeroConsumption": "`requestPolicy.zeroConsumption`: a capacity that requests compare with and do not consume.",
    "DRACapacityRemainder": "`remainder` of a device: what is available of its other capacities when one is used up goes to the last share.",
    "DRADevicePreference": "`devicePreference` and `allocations` in requests, `devicePreference` of classes: which device comes first.",
    "DRADistinctAttributes": "`distinctAttributes` of constraints: devices differ in at least one of several attributes.",
    "DRAPreemption": "The scheduler evicts pods of lower priority to free devices, cpu and memory for a pod of higher priority. `dralloc up` has it on.",
}


def gates_page() -> Iterator[str]:
    assert set(GATE_TEXTS) == set(GATES), "every gate is described"
    yield "# Feature gates"
    yield "`--feature-gates NAME=true,NAME=false` of `dralloc up`, `dralloc apiserver`, `dralloc scheduler`, `dralloc controllers` and of every command that"
    yield "validates manifests or allocates devices. A gate that does not exist, is locked, or lacks a gate that it requires is an error at start-up."
    yield "`AllAlpha=true` turns on every alpha gate that the same setting does not name, except those that require a beta gate that is off."
    yield "[Operations](../operations.md#feature-gates) describes what happens to objects when a gate is turned off and on again."
    yield ""
    rows = (
        [
            f"`{gate.name}`",
            ("on" if gate.default else "off" if gate.beta else "off, alpha") + (", locked" if gate.locked else ""),
            ", ".join(f"`{name}`" for name in gate.requires if name != "DynamicResourceAllocation"),
            GATE_TEXTS[gate.name],
        ]
        for gate in GATES.values()
    )
    yield from table(["gate", "default", "requires", "purpose"], rows)
