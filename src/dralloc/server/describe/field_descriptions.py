"""Descriptions of fields for `kubectl explain`, by type and JSON name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from dralloc.server.describe.resource_field_descriptions import RESOURCE_DESCRIPTIONS

DESCRIPTIONS: Final[Mapping[str, Mapping[str, str]]] = {
    **RESOURCE_DESCRIPTIONS,
    "ObjectMeta": {
        "name": "The object's name, unique among those of its kind in a namespace. It cannot be changed.",
        "generateName": "The prefix of a generated name, if no name is given.",
        "namespace": "The namespace of the object. Cluster-scoped objects have none.",
        "selfLink": "Deprecated and unused.",
        "uid": "The unique identity of the object; a later object of the same name has another.",
        "resourceVersion": "Changes with every write. An update that states an old one is refused.",
        "generation": "The number of changes of the spec.",
        "creationTimestamp": "When the object was created.",
        "deletionTimestamp": "When the object was deleted, or its grace period ends. It is removed once it has no finalizers.",
        "deletionGracePeriodSeconds": "The grace period of the deletion.",
        "labels": "Keys and values to select objects by.",
        "annotations": "Keys and values that tools store with the object.",
        "ownerReferences": "The owners of the object: it is deleted when all of them are gone.",
        "finalizers": "Names of clean-up steps that must be done before the object is removed.",
        "managedFields": "The managers of the object's fields.",
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
        "type": "The type of the condition.",
        "status": "True, False or Unknown.",
        "observedGeneration": "The generation of the object that the condition was set for.",
        "lastTransitionTime": "When the status last changed.",
        "reason": "A machine-readable reason of the last transition.",
        "message": "A human-readable explanation.",
    },
    "NodeSelector": {"nodeSelectorTerms": "A node is selected if one of these matches it."},
    "NodeSelectorTerm": {
        "matchExpressions": "Requirements on the node's labels, all of which must match.",
        "matchFields": "Requirements on the node's fields, all of which must match.",
    },
    "NodeSelectorRequirement": {
        "key": "The label or field.",
        "operator": "In, NotIn, Exists, DoesNotExist, Gt or Lt.",
        "values": "The values to compare with.",
    },
    # --- ResourceSlice
    "ConfigMap": {
        "data": "Texts by key.",
        "binaryData": "Bytes by key, in base64.",
        "immutable": "If true, the data cannot be changed.",
    },
    "Secret": {
        "data": "Secret bytes by key, in base64.",
        "stringData": "Secret texts by key; written only, and moved into data.",
        "type": "What the secret is for; it cannot be changed.",
        "immutable": "If true, the data cannot be changed.",
    },
    "PriorityClass": {
        "value": "The priority of pods of the class; higher ones are scheduled first. It cannot be changed.",
        "globalDefault": "Whether pods without a class get this class. Only one class can be the default.",
        "description": "The purpose of the class.",
        "preemptionPolicy": "PreemptLowerPriority or Never: whether pods of the class may evict others (gate DRAPreemption).",
    },
    "PodGroup": {"spec": "How the pods are scheduled, and the claims that they share.", "status": "The group's state."},
    "PodGroupSpec": {
        "parentCompositePodGroupName": "Not supported: the field is dropped.",
        "workloadRef": "The template of a Workload that the group was made from. It cannot be changed.",
        "schedulingPolicy": "How the pods are scheduled: exactly one of basic and gang.",
        "schedulingConstraints": "Where the pods may be placed together. It cannot be changed.",
        "resourceClaims": "Claims that are reserved for the group as a whole, and shared by its pods. They cannot be changed.",
        "disruptionMode": "Whether pods are disrupted one by one (single, the default) or together (all).",
        "priorityClassName": "The PriorityClass of the group.",
        "priority": "The priority, from the PriorityClass.",
        "preemptionPolicy": "PreemptLowerPriority or Never, from the PriorityClass.",
    },
    "PodGroupStatus": {
        "conditions": "PodGroupInitiallyScheduled and DisruptionTarget.",
        "resourceClaimStatuses": "The claims that were created from templates.",
    },
    "PodGroupSchedulingPolicy": {
        "basic": "Each pod is scheduled by itself.",
        "gang": "The pods are scheduled together, or not at all.",
    },
    "GangSchedulingPolicy": {"minCount": "The number of pods that must be placed together. It can be changed."},
    "PodGroupSchedulingConstraints": {"topology": "At most one topology constraint."},
    "TopologyConstraint": {"key": "The node label whose value must be the same for all pods."},
    "PodGroupResourceClaim": {
        "name": "The name by which pods refer to the claim; a pod's entry must have the same name and source.",
        "resourceClaimName": "An existing claim.",
        "resourceClaimTemplateName": "The template from which one claim is created for the whole group.",
    },
    "PodGroupResourceClaimStatus": {
        "name": "The name of an entry in spec.resourceClaims.",
        "resourceClaimName": "The claim that was created for it.",
    },
    "WorkloadReference": {"workloadName": "The name of the Workload.", "templateName": "The name of its template."},
    "Workload": {"spec": "The groups of pods of the workload."},
    "WorkloadSpec": {
        "controllerRef": "The object whose pods these are, such as a Job. It cannot be changed.",
        "podGroupTemplates": "The groups of pods. None can be added or removed.",
        "compositePodGroupTemplates": "Not supported: the field is dropped.",
    },
    "PodGroupTemplate": {
        "name": "The name by which groups refer to the template.",
        "schedulingPolicy": "The policy of groups.",
        "schedulingConstraints": "The constraints of groups.",
        "resourceClaims": "The shared claims of groups.",
        "disruptionMode": "The disruption mode of groups.",
        "priorityClassName": "The PriorityClass of groups; the same in all templates.",
        "priority": "The priority of groups; the same in all templates.",
        "preemptionPolicy": "The preemption policy of groups.",
    },
}

# Descriptions of kinds.
KINDS: Final[Mapping[str, str]] = {
    "ResourceSlice": "Devices of one pool that a driver publishes. A pool may consist of several slices.",
    "DeviceClass": "A set of devices that claims request by the name of the class.",
    "ResourceClaim": "A request for devices, and its allocation. Pods use devices by referring to a claim.",
    "ResourceClaimTemplate": "A template for claims: each pod that refers to it gets a claim of its own.",
    "DeviceTaintRule": "A taint that an administrator, and not the driver, puts on devices.",
    "ObjectMeta": "The metadata of every object.",
    "Pod": "Containers that run together on one node. Only fields that dralloc uses are described; all are stored.",
    "Node": "A machine that runs pods. Only fields that dralloc uses are described; all are stored.",
    "Namespace": "A scope for the names of objects.",
    "Event": "Something that happened to an object.",
    "ResourceQuota": "Limits on the objects of a namespace.",
    "Lease": "The holder of a lock, such as a leader, and its expiry.",
    "Job": "Runs pods until a number of them succeed. Only fields that dralloc uses are described; all are stored.",
    "ResourcePoolStatusRequest": "Asks what is free in the pools of a driver. A controller answers once, and deletes the request an hour later.",
    "PriorityClass": "The priority of the pods that refer to it.",
    "PodGroup": "Pods that are scheduled by one policy and can share claims.",
    "Workload": "The groups of pods that a workload consists of, as templates.",
    "Deployment": "A number of replicas of a pod. Stored, but not run by dralloc.",
    "DaemonSet": "A pod on every node, such as a driver. Stored, but not run by dralloc.",
    "ConfigMap": "Configuration for programs.",
    "Secret": "Secret values for programs.",
    "ServiceAccount": "The identity of a program; tokens are issued for it.",
    "SelfSubjectReview": "Asks who the user of the request is.",
    "TokenReview": "Asks whose token it is.",
    "LocalSubjectAccessReview": "Asks whether a user may do something in one namespace.",
    "SelfSubjectAccessReview": "Asks whether the user of the request may do something.",
    "SelfSubjectRulesReview": "Asks for the rules that hold for the user of the request in a namespace.",
    "SubjectAccessReview": "Asks whether a user may do something.",
    "Service": "A name and address for pods. Stored, but nothing routes to it.",
    "CSINode": "The storage drivers of a node. Stored, but not used by dralloc.",
    "Role": "Permissions in a namespace.",
    "ClusterRole": "Permissions in the whole cluster.",
    "RoleBinding": "Grants a role in a namespace.",
    "ClusterRoleBinding": "Grants a role in the whole cluster.",
}

# Every object has these.
OBJECT_MEMBERS: Final[Mapping[str, str]] = {
    "apiVersion": "The API version of the object.",
    "kind": "The kind of the object.",
    "metadata": "The object's metadata, such as name and labels.",
}


def describe_type(type_name: str) -> str:
    """The description of a type; empty if there is none."""
    return KINDS.get(type_name, "")


def describe_field(type_name: str, field: str) -> str:
    """The description of a field; empty if there is none."""
    return DESCRIPTIONS.get(type_name, {}).get(field) or OBJECT_MEMBERS.get(field, "")
