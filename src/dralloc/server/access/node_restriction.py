"""NodeRestriction: what a node may write into the objects that the node authorizer lets it write.

Each rule returns why a write is refused, in Kubernetes' words, or an empty text. Roles may give a node more rights; these
rules hold all the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from dralloc.kube.coordination_v1 import NODE_LEASES
from dralloc.kube.meta_v1 import ApiObject
from dralloc.kube.pod_references import MIRROR_POD, UnknownVolume, first_referred_kind
from dralloc.kube.unstructured_object import UnstructuredObject

CREATE: Final = "CREATE"
UPDATE: Final = "UPDATE"
DELETE: Final = "DELETE"

_RESTRICTED_PREFIX: Final = "node-restriction.kubernetes.io"
# Labels and label prefixes of Kubernetes that nodes set on themselves.
_OWN_LABELS: Final = frozenset(
    {
        "kubernetes.io/hostname",
        "kubernetes.io/os",
        "kubernetes.io/arch",
        "beta.kubernetes.io/os",
        "beta.kubernetes.io/arch",
        "beta.kubernetes.io/instance-type",
        "node.kubernetes.io/instance-type",
        "topology.kubernetes.io/zone",
        "topology.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/region",
    }
)
_OWN_PREFIXES: Final = ("kubelet.kubernetes.io", "node.kubernetes.io")


class ObjectWrite(Struct, frozen=True, kw_only=True, gc=False):
    """A write of an object by a node. `name` is that of the URL, or of a new object; `old` is the stored object."""

    node: str
    operation: str
    group: str = ""
    resource: str
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    new: ApiObject | None = None
    old: ApiObject | None = None


def write_refusal(write: ObjectWrite) -> str:
    """Why the node may not write the object. The creation of a pod has further rules: `mirror_pod_refusal`."""
    match write.group, write.resource:
        case "", "pods":
            return _pod(write)
        case "", "nodes":
            return _node(write)
        case "", "persistentvolumeclaims":
            return "" if write.subresource == "status" else "may only update PVC status"
        case "coordination.k8s.io", "leases":
            if write.namespace != NODE_LEASES:
                return f'can only access leases in the "{NODE_LEASES}" system namespace'
            own = write.name == write.node
            return "" if own else "can only access node lease with the same name as the requesting node"
        case "storage.k8s.io", "csinodes":
            own = write.name == write.node
            return "" if own else "can only access CSINode with the same name as the requesting node"
        case "resource.k8s.io", "resourceslices":
            return _slice(write)
    return ""


def eviction_refusal(node: str, pod: ApiObject) -> str:
    return "" if _node_name(pod) == node else f"node {node} can only evict pods with spec.nodeName set to itself"


def token_refusal(node: str, pod: ApiObject, bound_uid: str, audiences: Sequence[str]) -> str:
    """Why the node gets no token that is bound to the pod with this UID."""
    if pod.metadata.uid != bound_uid:
        replaced = "The object might have been deleted and then recreated"
        return f"the UID in the bound object reference ({bound_uid}) does not match the UID in record. {replaced}"
    if _node_name(pod) != node:
        return "node requested token bound to a pod scheduled on a different node"
    return "node may only request 0 or 1 audiences" if len(audiences) > 1 else ""


def mirror_pod_refusal(node: str, pod: ApiObject, node_uid: str) -> str:
    """Why the node may not create the pod, beyond `write_refusal`. `node_uid` is that of the stored node."""
    owner = pod.metadata.owner_references[0]
    if owner.uid != node_uid:
        return f"node {node} UID mismatch: expected {owner.uid} got {node_uid}"
    try:
        kind = first_referred_kind(_member(pod, "spec"))
    except UnknownVolume as error:
        return f"error checking mirror pod for API references: {error}"
    return f'node "{node}" can not create pods that reference {kind}' if kind else ""


def _pod(write: ObjectWrite) -> str:
    node = write.node
    match write.subresource, write.operation:
        case "", "CREATE":
            assert write.new is not None
            return _new_pod(node, write.new)
        case "", "DELETE":
            if write.old is not None and _node_name(write.old) == node:
                return ""
            return f'node "{node}" can only delete pods with spec.nodeName set to itself'
        case "", operation:
            return f'unexpected operation "{operation}", node "{node}" can only create and delete mirror pods'
        case "status", "UPDATE":
            assert write.new is not None
            assert write.old is not None
            return _pod_status(node, write.new, write.old)
        case "status" | "eviction", operation:
            return f'unexpected operation "{operation}"'
    return f"unexpected pod subresource \"{write.subresource}\", only 'status' and 'eviction' are allowed"


def _new_pod(node: str, pod: ApiObject) -> str:
    if MIRROR_POD not in pod.metadata.annotations:
        return f'pod does not have "{MIRROR_POD}" annotation, node "{node}" can only create mirror pods'
    only = f'node "{node}" can only create pods with'
    if _node_name(pod) != node:
        return f"{only} spec.nodeName set to itself"
    owners = pod.metadata.owner_references
    if len(owners) > 1:
        return f"{only} a single owner reference set to itself"
    if not owners or (owners[0].api_version, owners[0].kind, owners[0].name) != ("v1", "Node", node):
        return f"{only} an owner reference set to itself"
    if not owners[0].controller:
        return f"{only} a controller owner reference set to itself"
    if owners[0].block_owner_deletion:
        return f'node "{node}" must not set blockOwnerDeletion on an owner reference'
    return ""


def _pod_status(node: str, new: ApiObject, old: ApiObject) -> str:
    if _node_name(old) != node:
        return f'node "{node}" can only update pod status for pods with spec.nodeName set to itself'
    if new.metadata.labels != old.metadata.labels:
        return f'node "{node}" cannot update labels through pod status'
    now, before = _member(new, "status"), _member(old, "status")
    for member, words in (
        ("resourceClaimStatuses", "resource claim statues"),
        ("extendedResourceClaimStatus", "extended resource claim status"),
        ("nodeAllocatableResourceClaimStatuses", "node allocatable resource claim statuses"),
    ):
        if (now.get(member) or None) != (before.get(member) or None):
            return f'node "{node}" cannot update {words}'
    return ""


def _node(write: ObjectWrite) -> str:
    node, new, old = write.node, write.new, write.old
    if write.name != node:
        return f'node "{node}" is not allowed to modify node "{write.name}"'
    if new is None:
        return ""
    spec = _member(new, "spec")
    if write.operation == CREATE:
        if spec.get("configSource") is not None:
            return f'node "{node}" is not allowed to create pods with a non-nil configSource'
        labels = _forbidden_labels(new.metadata.labels, {})
        return f'node "{node}" is not allowed to set the following labels: {labels}' if labels else ""
    assert old is not None
    before = _member(old, "spec")
    if spec.get("configSource") is not None and spec["configSource"] != before.get("configSource"):
        return f'node "{node}" is not allowed to update configSource to a new non-nil configSource'
    if (spec.get("taints") or []) != (before.get("taints") or []):
        return f'node "{node}" is not allowed to modify taints'
    if tuple(new.metadata.owner_references) != tuple(old.metadata.owner_references):
        return f'node "{node}" is not allowed to modify ownerReferences'
    labels = _forbidden_labels(new.metadata.labels, old.metadata.labels)
    return f"is not allowed to modify labels: {labels}" if labels else ""


def _slice(write: ObjectWrite) -> str:
    """Updates need no rule: the node authorizer lets a node update only its own slices, and `nodeName` is immutable."""
    judged = write.new if write.operation == CREATE else write.old if write.operation == DELETE else None
    if write.operation == UPDATE or (judged is not None and judged.spec.node_name == write.node):  # type: ignore[attr-defined]
        return ""
    return f"can only {write.operation.lower()} ResourceSlice with the same NodeName as the requesting node"


def _forbidden_labels(now: Mapping[str, str], before: Mapping[str, str]) -> str:
    """The labels that differ and that a node may not set, sorted and joined."""
    changed = {key for key in now.keys() | before.keys() if now.get(key) != before.get(key)}
    return ", ".join(sorted(filter(_is_forbidden, changed)))


def _is_forbidden(label: str) -> bool:
    prefix = label.partition("/")[0] if "/" in label else ""
    if _is_within(prefix, _RESTRICTED_PREFIX):
        return True
    if not (_is_within(prefix, "kubernetes.io") or _is_within(prefix, "k8s.io")):
        return False
    return label not in _OWN_LABELS and not any(_is_within(prefix, own) for own in _OWN_PREFIXES)


def _is_within(prefix: str, domain: str) -> bool:
    return prefix == domain or prefix.endswith(f".{domain}")


def _member(obj: ApiObject, name: str) -> dict[str, Any]:
    assert isinstance(obj, UnstructuredObject), "pods and nodes are modelled in part"
    return obj.member(name)


def _node_name(pod: ApiObject) -> str:
    return str(_member(pod, "spec").get("nodeName") or "")
