"""What the fields mean, in a sentence each: `kubectl explain` shows these.

By type and field as they are written in JSON. What is left out explains itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_REQUEST: Final = {
    "name": "What constraints, configuration and containers call this request.",
    "deviceClassName": "The DeviceClass that the devices must belong to.",
    "selectors": "Conditions that every device must fulfil, besides those of its class.",
    "allocationMode": "ExactCount gives `count` devices, All gives every device that matches. The default is ExactCount.",
    "count": "How many devices are wanted with mode ExactCount. The default is 1.",
    "adminAccess": "Gives access to devices that others use, for monitoring. Only in namespaces with the admin-access label.",
    "tolerations": "Taints that do not keep a device from being given out.",
    "capacity": "How much of a device's capacity is wanted. On a shareable device, that much is consumed.",
    "derivedAttributes": "Attributes that are computed from those of a device.",
}

_DEVICE: Final = {
    "attributes": "What the device is like; selectors and constraints look at these.",
    "capacity": "How much the device has of what can be asked for.",
    "consumesCounters": "What the device draws from shared counters when it is given out.",
    "nodeName": "The node that has the device.",
    "nodeSelector": "The nodes that can use the device.",
    "allNodes": "Every node can use the device.",
    "taints": "Keep the device from claims that do not tolerate them.",
    "bindsToNode": "A claim with this device is bound to the node it was allocated for.",
    "bindingConditions": "Conditions that must be true before a pod is bound.",
    "bindingFailureConditions": "Conditions that, when true, undo the allocation.",
    "allowMultipleAllocations": "Several claims can use the device at once, as far as its capacity goes.",
    "nodeAllocatableResources": "What of the node's own resources the device stands for or takes.",
}

DESCRIPTIONS: Final[Mapping[str, Mapping[str, str]]] = {
    "ObjectMeta": {
        "name": "The object's name, unique among those of its kind in a namespace. It cannot be changed.",
        "generateName": "What a name begins with that the server makes up, where none is given.",
        "namespace": "The space in which the name is unique. Objects outside of namespaces have none.",
        "selfLink": "Not in use any more.",
        "uid": "Tells the object from others that had its name before.",
        "resourceVersion": "Changes with every write. An update that states an old one is refused.",
        "generation": "Counts the changes of what is wanted (the spec).",
        "creationTimestamp": "When the object was created.",
        "deletionTimestamp": "When the object was deleted, or will have ended; it goes when nothing holds it any more.",
        "deletionGracePeriodSeconds": "How long the object gets to end by itself.",
        "labels": "Names and values to select objects by.",
        "annotations": "Names and values that tools keep with the object.",
        "ownerReferences": "The objects that this one depends on: when they are all gone, it goes too.",
        "finalizers": "Who must clean up before the object can go.",
        "managedFields": "Who has set which fields.",
    },
    "OwnerReference": {
        "apiVersion": "The owner's API version.",
        "kind": "The owner's kind.",
        "name": "The owner's name.",
        "uid": "The owner's UID.",
        "controller": "Whether this is the owner that manages the object.",
        "blockOwnerDeletion": "Whether the owner, when deleted in the foreground, waits for this object.",
    },
    "Condition": {
        "type": "What the condition is about.",
        "status": "True, False or Unknown.",
        "observedGeneration": "The generation of the object that this was said of.",
        "lastTransitionTime": "When the status last changed.",
        "reason": "Why, in one word for programs.",
        "message": "Why, in words for people.",
    },
    "NodeSelector": {"nodeSelectorTerms": "A node is selected if one of these matches it."},
    "NodeSelectorTerm": {
        "matchExpressions": "Conditions on the node's labels, all of which must hold.",
        "matchFields": "Conditions on the node's fields, all of which must hold.",
    },
    "NodeSelectorRequirement": {
        "key": "The label or field.",
        "operator": "In, NotIn, Exists, DoesNotExist, Gt or Lt.",
        "values": "What the label's or field's value is compared with.",
    },
    # --- ResourceSlice
    "ResourceSlice": {
        "spec": "The devices, who manages them, and where they are.",
    },
    "ResourceSliceSpec": {
        "driver": "The driver that publishes the slice and manages its devices. It cannot be changed.",
        "pool": "The pool that the devices belong to.",
        "nodeName": "The node that has the devices. It cannot be changed.",
        "nodeSelector": "The nodes that can use the devices.",
        "allNodes": "Every node can use the devices.",
        "perDeviceNodeSelection": "Each device says for itself which nodes can use it.",
        "devices": "The devices. A slice has devices or shared counters, not both.",
        "sharedCounters": "Amounts that the pool's devices draw from when they are given out.",
        "partitionTypeAttribute": "The attribute that tells partitions of one type from those of another.",
        "skipNodeOperations": "Calls that the node need not make to the driver.",
    },
    "ResourcePool": {
        "name": "The pool's name; often that of its node.",
        "generation": "Counts the pool's changes. Only slices of the highest generation count.",
        "resourceSliceCount": "How many slices of this generation the pool has when it is complete.",
    },
    "Device": {
        **_DEVICE,
        "name": "The device's name, unique in its pool.",
        "basic": "All about the device but its name.",
    },
    "BasicDevice": _DEVICE,
    "DeviceAttribute": {
        "int": "A number.",
        "bool": "True or false.",
        "string": "A text of at most 64 characters.",
        "version": "A semantic version.",
        "ints": "Several numbers.",
        "bools": "Several truth values.",
        "strings": "Several texts.",
        "versions": "Several semantic versions.",
    },
    "DeviceCapacity": {
        "value": "How much there is.",
        "requestPolicy": "How requests for a part of it are rounded, and what is taken where nothing is asked.",
    },
    "CapacityRequestPolicy": {
        "default": "What is consumed where a request does not say.",
        "validValues": "Amounts that can be consumed: a request is rounded up to the next.",
        "validRange": "The range of amounts that can be consumed.",
    },
    "CapacityRequestPolicyRange": {
        "min": "The least that is consumed.",
        "max": "The most that can be asked for.",
        "step": "What amounts above the least are rounded up to multiples of.",
    },
    "CounterSet": {"name": "What devices call the set.", "counters": "The amounts that there are."},
    "Counter": {"value": "The amount."},
    "DeviceCounterConsumption": {
        "counterSet": "The set that is drawn from.",
        "counters": "How much is drawn of each counter.",
        "compatibilityGroups": "Only devices that share a group can draw from the set at the same time.",
    },
    "DeviceTaint": {
        "key": "What the taint is about.",
        "value": "More about it.",
        "effect": "NoSchedule keeps new pods away, NoExecute also evicts running ones, None does neither.",
        "timeAdded": "When the taint was added.",
    },
    "NodeAllocatableResource": {
        "mapping": "How much of the node's own resource a device stands for.",
        "overhead": "How much of the node's own resource using a device takes on top.",
    },
    "NodeAllocatableMapping": {
        "capacityKey": "The capacity that the amount is computed from.",
        "capacityMultiplier": "How much one unit of that capacity stands for.",
        "deviceMultiplier": "How much the device stands for.",
    },
    "NodeAllocatableOverhead": {
        "perPod": "How much each pod takes.",
        "perContainer": "How much each container takes.",
    },
    # --- DeviceClass
    "DeviceClass": {"spec": "Which devices are of the class, and how they are configured."},
    "DeviceClassSpec": {
        "selectors": "Conditions that every device of the class fulfils.",
        "config": "Configuration for the drivers of the class's devices.",
        "extendedResourceName": "The name under which pods can ask for devices of the class like for any extended resource.",
    },
    "DeviceSelector": {"cel": "A condition as a CEL expression."},
    "CELDeviceSelector": {"expression": "True for the devices that are wanted. The device is `device`."},
    "DeviceClassConfiguration": {"opaque": "Parameters for one driver."},
    "OpaqueDeviceConfiguration": {
        "driver": "The driver that the parameters are for.",
        "parameters": "The parameters; only the driver knows what they mean.",
    },
    # --- ResourceClaim
    "ResourceClaim": {
        "spec": "What is wanted. It cannot be changed.",
        "status": "What was given, and who uses it.",
    },
    "ResourceClaimSpec": {
        "devices": "The devices that are wanted.",
        "reservedFor": "The workload whose pods use the claim; it is listed as consumer in place of each of them.",
    },
    "DeviceClaim": {
        "requests": "What is wanted: each request is for devices of one kind.",
        "constraints": "What the devices of several requests must have in common, or not.",
        "config": "Configuration for the drivers.",
    },
    "DeviceRequest": {
        **_REQUEST,
        "exactly": "The devices that are wanted, without alternatives.",
        "firstAvailable": "Alternatives, in order of preference: the first that can be given is.",
    },
    "ExactDeviceRequest": _REQUEST,
    "DeviceSubRequest": {**_REQUEST, "name": "What the alternative is called: `request/alternative`."},
    "CapacityRequirements": {"requests": "How much of each capacity is wanted."},
    "DeviceToleration": {
        "key": "The taint's key; empty matches all keys.",
        "operator": "Exists, or Equal, which is the default.",
        "value": "The taint's value, with operator Equal.",
        "effect": "The taint's effect; empty matches all effects.",
        "tolerationSeconds": "How long a NoExecute taint is tolerated.",
    },
    "DeviceDerivedAttribute": {
        "name": "The attribute's name.",
        "expression": "The attribute's value as a CEL expression.",
    },
    "DeviceConstraint": {
        "requests": "The requests that this is about; all of them where none is named.",
        "matchAttribute": "All devices must have the same value of this attribute.",
        "distinctAttribute": "Every device must have another value of this attribute.",
    },
    "DeviceClaimConfiguration": {
        "requests": "The requests that this is for; all of them where none is named.",
        "opaque": "Parameters for one driver.",
    },
    "ConsumerReference": {
        "apiGroup": "The consumer's API group; empty for pods.",
        "resource": "The consumer's resource, such as `pods`.",
        "name": "The consumer's name.",
        "uid": "The consumer's UID.",
    },
    "ResourceClaimStatus": {
        "allocation": "The devices that were given. Absent: none yet.",
        "reservedFor": "Who may use the devices now; at most 256.",
        "devices": "What drivers say about the devices.",
    },
    "AllocationResult": {
        "devices": "The devices, and how they are configured.",
        "nodeSelector": "Where the devices can be used; everywhere, if absent.",
        "allocationTimestamp": "When the devices were given.",
        "reservedForAnyPod": "Any pod that names the claim may use it, without being listed as consumer.",
    },
    "DeviceAllocationResult": {
        "results": "One entry for each device, or share of a device.",
        "config": "Configuration of class and claim for the drivers.",
    },
    "DeviceRequestAllocationResult": {
        "request": "The request that the device was given for; `request/alternative` if there were several.",
        "driver": "The device's driver.",
        "pool": "The device's pool.",
        "device": "The device's name.",
        "adminAccess": "The device was given for monitoring; others may use it.",
        "tolerations": "The request's tolerations.",
        "bindingConditions": "Conditions that must be true before a pod is bound.",
        "bindingFailureConditions": "Conditions that, when true, undo the allocation.",
        "shareID": "Tells this share of the device from others.",
        "consumedCapacity": "How much of each capacity this share consumes.",
        "skipNodeOperations": "Calls that the node need not make to the driver.",
    },
    "DeviceAllocationConfiguration": {
        "source": "FromClass or FromClaim.",
        "requests": "The requests that this is for; all of them where none is named.",
        "opaque": "Parameters for one driver.",
    },
    "AllocatedDeviceStatus": {
        "driver": "The device's driver.",
        "pool": "The device's pool.",
        "device": "The device's name.",
        "shareID": "The share of the device that this is about.",
        "conditions": "The device's conditions.",
        "data": "What else the driver has to say.",
        "networkData": "The device as a network interface.",
    },
    "NetworkDeviceData": {
        "interfaceName": "The interface's name.",
        "ips": "The interface's addresses.",
        "hardwareAddress": "The interface's hardware address.",
    },
    # --- ResourceClaimTemplate, DeviceTaintRule
    "ResourceClaimTemplate": {"spec": "The claims that are made from it. It cannot be changed."},
    "ResourceClaimTemplateSpec": {
        "metadata": "Labels and annotations of the claims.",
        "spec": "What the claims ask for.",
    },
    "DeviceTaintRule": {"spec": "Which devices get which taint.", "status": "How far the taint has taken effect."},
    "PriorityClass": {
        "value": "How important pods of the class are: those with more are placed first. It cannot change.",
        "globalDefault": "Pods that name no class have this one. There can be only one such class.",
        "description": "For whom the class is meant.",
        "preemptionPolicy": "Whether its pods may take the place of others (PreemptLowerPriority) or not (Never). Nobody does here.",
    },
    "DeviceTaintRuleSpec": {
        "deviceSelector": "The devices that are tainted. Empty: all of them; absent: none.",
        "taint": "The taint.",
    },
    "DeviceTaintSelector": {
        "driver": "Only devices of this driver.",
        "pool": "Only devices of this pool.",
        "device": "Only devices of this name.",
    },
    "DeviceTaintRuleStatus": {"conditions": "Whether pods are being evicted because of the taint."},
}

# What whole objects are, where their types do not say it themselves.
KINDS: Final[Mapping[str, str]] = {
    "ResourceSlice": "Devices of one pool that a driver publishes. A pool may consist of several slices.",
    "DeviceClass": "Devices that are alike, under one name: claims ask for devices of a class.",
    "ResourceClaim": "A wish for devices, and what was given for it. Pods use devices by naming a claim.",
    "ResourceClaimTemplate": "Claims to be made: each pod that names the template gets one of its own.",
    "DeviceTaintRule": "A taint for devices, put on by an administrator and not by their driver.",
    "ObjectMeta": "What every object has: its name, its labels, who owns it.",
    "Pod": "Containers that run together on one node. Only fields that matter here are explained; all are kept.",
    "Node": "A machine that runs pods. Only fields that matter here are explained; all are kept.",
    "Namespace": "A space of names for objects.",
    "Event": "Something that happened to an object.",
    "ResourceQuota": "How much the objects of a namespace may ask for.",
    "Lease": "Who leads, and until when.",
    "Job": "Work that some pods do until they succeed. Only fields that matter here are explained; all are kept.",
    "PriorityClass": "How important pods are that name it, and whether they may take the place of others.",
    "Deployment": "Pods of which so many are to run. Kept, and not run here.",
    "DaemonSet": "A pod for every node, such as a driver. Kept, and not run here.",
    "ServiceAccount": "Who a program in a pod is. Kept; there are no tokens for it here.",
    "Role": "What may be done in a namespace. Kept, and not enforced here.",
    "ClusterRole": "What may be done in all namespaces, and outside of them. Kept, and not enforced here.",
    "RoleBinding": "Who has a role in a namespace. Kept, and not enforced here.",
    "ClusterRoleBinding": "Who has a role everywhere. Kept, and not enforced here.",
}

# Every object has these.
OBJECT_MEMBERS: Final[Mapping[str, str]] = {
    "apiVersion": "The version of the API that the object is written in.",
    "kind": "What the object is.",
    "metadata": "The object's name, labels and the like.",
}


def describe_type(type_name: str) -> str:
    """What the type is for, or nothing where we do not say."""
    return KINDS.get(type_name, "")


def describe_field(type_name: str, field: str) -> str:
    """What the field means, or nothing where we do not say."""
    return DESCRIPTIONS.get(type_name, {}).get(field) or OBJECT_MEMBERS.get(field, "")
