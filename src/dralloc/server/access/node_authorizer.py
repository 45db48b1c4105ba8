"""The node authorizer: what the identity of a node may ask for.

A node reads and writes its own objects, and reads what the pods bound to it refer to. Reading is decided here; what a
write contains is checked by `node_restriction` once the object is known. Every refusal says why, as Kubernetes does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Protocol

from dralloc.kube.coordination_v1 import NODE_LEASES
from dralloc.server.access.authorizer import ALLOWED, NO_OPINION, AccessRequest, Decision, Opinion
from dralloc.server.access.users import node_of

_READS: Final = frozenset({"get", "list", "watch"})
_OWN_OBJECT: Final = frozenset({"get", "create", "update", "patch", "delete"})

# Resources on which all nodes have the same rights.
_SHARED: Final[Mapping[tuple[str, str], frozenset[str]]] = {
    ("authentication.k8s.io", "tokenreviews"): frozenset({"create"}),
    ("authorization.k8s.io", "subjectaccessreviews"): frozenset({"create"}),
    ("authorization.k8s.io", "localsubjectaccessreviews"): frozenset({"create"}),
    ("", "services"): _READS,
    ("", "endpoints"): frozenset({"get"}),
    ("", "events"): frozenset({"create", "update", "patch"}),
    ("events.k8s.io", "events"): frozenset({"create", "update", "patch"}),
    ("certificates.k8s.io", "clustertrustbundles"): _READS,
    ("storage.k8s.io", "csidrivers"): _READS,
    ("node.k8s.io", "runtimeclasses"): _READS,
}


class NodeRelations(Protocol):
    """Which objects belong to a node: its slices, the pods bound to it, and the objects that these pods refer to."""

    def is_related(self, node: str, resource: str, namespace: str, name: str) -> bool: ...


class NodeAuthorizer:
    """Decides for users that are nodes; has no opinion on others."""

    def __init__(self, relations: NodeRelations) -> None:
        self._relations = relations
        self._rules: Mapping[tuple[str, str], Callable[[str, AccessRequest], Decision]] = {
            ("", "secrets"): self._read,
            ("", "configmaps"): self._read,
            ("", "persistentvolumeclaims"): self._volume_claim,
            ("", "persistentvolumes"): self._get,
            ("resource.k8s.io", "resourceclaims"): self._get,
            ("storage.k8s.io", "volumeattachments"): self._get,
            ("", "serviceaccounts"): self._service_account,
            ("coordination.k8s.io", "leases"): _lease,
            ("storage.k8s.io", "csinodes"): _csi_node,
            ("resource.k8s.io", "resourceslices"): self._slice,
            ("", "nodes"): _node,
            ("", "pods"): self._pod,
            ("certificates.k8s.io", "podcertificaterequests"): self._pod_certificate,
        }

    def decide(self, request: AccessRequest) -> Decision:
        node = node_of(request.user)
        if node is None:
            return NO_OPINION
        if not node:
            return _refuse(f'unknown node for user "{request.user.name}"')
        if request.path:
            return NO_OPINION
        rule = self._rules.get((request.group, request.resource))
        if rule is not None:
            return rule(node, request)
        shared = _SHARED.get((request.group, request.full_resource), ())
        return ALLOWED if request.verb in shared else NO_OPINION

    def _related(self, node: str, request: AccessRequest) -> Decision:
        if not request.name:
            return _refuse("No Object name found")
        if self._relations.is_related(node, request.resource, request.namespace, request.name):
            return ALLOWED
        return _refuse(f"no relationship found between node '{node}' and this object")

    def _get(self, node: str, request: AccessRequest) -> Decision:
        if request.verb != "get":
            return _refuse("can only get individual resources of this type")
        if request.subresource:
            return _refuse("cannot get subresource")
        return self._related(node, request)

    def _read(self, node: str, request: AccessRequest) -> Decision:
        if request.verb not in _READS:
            return _refuse("can only read resources of this type")
        if request.subresource:
            return _refuse("cannot read subresource")
        if not request.namespace:
            return _refuse("can only read namespaced object of this type")
        return self._related(node, request)

    def _volume_claim(self, node: str, request: AccessRequest) -> Decision:
        if request.subresource != "status":
            return self._get(node, request)
        if request.verb not in ("update", "patch"):
            return _refuse("can only get/update/patch this type")
        return self._related(node, request)

    def _service_account(self, node: str, request: AccessRequest) -> Decision:
        if request.verb == "get" and not request.subresource:
            return self._read(node, request)
        if request.verb != "create" or not request.name:
            return _refuse("can only create tokens for individual service accounts")
        if request.subresource != "token":
            return _refuse("can only create token subresource of serviceaccount")
        return self._related(node, request)

    def _slice(self, node: str, request: AccessRequest) -> Decision:
        if request.subresource:
            return _refuse("cannot authorize ResourceSlice subresources")
        match request.verb:
            case "create":
                return ALLOWED
            case "get" | "update" | "patch" | "delete":
                return self._related(node, request)
            case "list" | "watch" | "deletecollection":
                if _selects_node(node, request):
                    return ALLOWED
                return _refuse("can only list/watch/deletecollection resourceslices with nodeName field selector")
        verbs = "get, watch, list, create, update, patch, delete, deletecollection"
        return _refuse(f"only the following verbs are allowed for a ResourceSlice: {verbs}")

    def _pod(self, node: str, request: AccessRequest) -> Decision:
        match request.subresource, request.verb:
            case "", "get":
                return self._related(node, request)
            case "", "list" | "watch":
                if _selects_node(node, request):
                    return ALLOWED
                if request.name:
                    return self._related(node, request)
                return _refuse("can only list/watch pods with spec.nodeName field selector")
            case ("", "create" | "delete") | ("status", "update" | "patch") | ("eviction", "create"):
                return ALLOWED
        return NO_OPINION

    def _pod_certificate(self, node: str, request: AccessRequest) -> Decision:
        if request.subresource:
            return _refuse("nodes may not access the status subresource of PodCertificateRequests")
        match request.verb:
            case "create":
                return ALLOWED
            case "get":
                return self._related(node, request)
            case "list" | "watch":
                if _selects_node(node, request):
                    return ALLOWED
                return _refuse("can only list/watch podcertificaterequests with nodeName field selector")
        return _refuse(f"nodes may not {request.verb} podcertificaterequests")


def _lease(node: str, request: AccessRequest) -> Decision:
    if request.verb not in _OWN_OBJECT:
        return _refuse("can only get, create, update, patch, or delete a node lease")
    if request.namespace != NODE_LEASES:
        return _refuse(f'can only access leases in the "{NODE_LEASES}" system namespace')
    if request.verb != "create" and request.name != node:
        return _refuse("can only access node lease with the same name as the requesting node")
    return ALLOWED


def _csi_node(node: str, request: AccessRequest) -> Decision:
    if request.subresource == "status":
        return _refuse("CSINode status access requires CSIVolumeHealth feature")
    if request.subresource:
        return _refuse("cannot authorize CSINode subresources")
    if request.verb not in _OWN_OBJECT:
        return _refuse("can only get, create, update, patch, or delete a CSINode")
    if request.verb != "create" and request.name != node:
        return _refuse("can only access CSINode with the same name as the requesting node")
    return ALLOWED


def _node(node: str, request: AccessRequest) -> Decision:
    match request.subresource, request.verb:
        case ("", "create" | "update" | "patch") | ("status", "update" | "patch"):
            return ALLOWED
        case "", "get" | "list" | "watch":
            if request.name == node:
                return ALLOWED
            others = f"'{request.name}'" if request.name else "all nodes"
            return _refuse(f"node '{node}' cannot read {others}, only its own Node object")
    return NO_OPINION


def _selects_node(node: str, request: AccessRequest) -> bool:
    return any(
        term.key == "spec.nodeName" and term.operator == "In" and term.values == (node,)
        for term in request.field_selector
    )


def _refuse(why: str) -> Decision:
    return Decision(Opinion.NONE, f"node: {why}")
