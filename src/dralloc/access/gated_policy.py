"""What feature gates add to the default roles, as in Kubernetes 1.37."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from dralloc.access.default_policy import AUTO_UPDATE, Document, default_documents
from dralloc.primitives.features import FeatureGates

_READ: Final = ("get", "list", "watch")
_WRITE: Final = ("create", "delete", "deletecollection", "patch", "update")
_CONTROLLER: Final = "system:controller:"

Rule = Mapping[str, Any]


def _rule(verbs: Sequence[str], group: str, *resources: str) -> Rule:
    return {"verbs": list(verbs), "apiGroups": [group], "resources": list(resources)}


_GROUPS: Final = "scheduling.k8s.io"
_DEVICES: Final = "resource.k8s.io"
_EVENTS: Final[Rule] = {
    "verbs": ["create", "patch", "update"],
    "apiGroups": ["", "events.k8s.io"],
    "resources": ["events"],
}

# Rules by gate and role. A role that the defaults do not have is that of a controller, which gets a binding, too.
_RULES: Final[Mapping[str, Mapping[str, Sequence[Rule]]]] = {
    "GenericWorkload": {
        "system:aggregate-to-view": (_rule(_READ, _GROUPS, "podgroups", "podgroups/status", "workloads"),),
        "system:aggregate-to-edit": (_rule(_WRITE, _GROUPS, "podgroups", "workloads"),),
        "system:kube-scheduler": (
            _rule(_READ, _GROUPS, "podgroups"),
            _rule(("patch", "update"), _GROUPS, "podgroups/status"),
        ),
        f"{_CONTROLLER}podgroup-protection-controller": (
            _rule(("get", "list", "update", "watch"), _GROUPS, "podgroups"),
            _rule(_READ, "", "pods"),
        ),
    },
    "DRAWorkloadResourceClaims": {
        f"{_CONTROLLER}resource-claim-controller": (
            _rule(_READ, _GROUPS, "podgroups"),
            _rule(("patch", "update"), _GROUPS, "podgroups/status"),
        ),
    },
    "WorkloadWithJob": {
        f"{_CONTROLLER}job-controller": (
            _rule(("create", "get", "list", "patch", "update", "watch"), _GROUPS, "podgroups", "workloads"),
        ),
    },
    "DRAResourcePoolStatus": {
        f"{_CONTROLLER}resourcepoolstatusrequest-controller": (
            _rule(("delete", "get", "list", "watch"), _DEVICES, "resourcepoolstatusrequests"),
            _rule(("patch", "update"), _DEVICES, "resourcepoolstatusrequests/status"),
            _rule(_READ, _DEVICES, "resourceslices"),
            _rule(_READ, _DEVICES, "resourceclaims"),
            _rule(_READ, _DEVICES, "devicetaintrules"),
            _EVENTS,
        ),
    },
}


def documents_with(gates: FeatureGates) -> tuple[Document, ...]:
    """The default objects of a cluster with these gates."""
    added: dict[str, list[Rule]] = {}
    for gate, roles in _RULES.items():
        for name, rules in roles.items() if gate in gates else ():
            added.setdefault(name, []).extend(rules)
    documents: list[Document] = []
    for document in default_documents():
        more = added.pop(document["metadata"]["name"], None) if document["kind"] == "ClusterRole" else None
        documents.append({**document, "rules": [*document["rules"], *more]} if more else document)
    for name, rules in added.items():
        documents += _controller_documents(name, rules)
    return tuple(documents)


def _controller_documents(name: str, rules: Sequence[Rule]) -> tuple[Document, Document]:
    """The role of a controller, and its binding to the service account of the same name."""
    api_group = "rbac.authorization.k8s.io"
    metadata = {
        "name": name,
        "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
        "annotations": {AUTO_UPDATE: "true"},
    }
    account = {"kind": "ServiceAccount", "name": name.removeprefix(_CONTROLLER), "namespace": "kube-system"}
    common: Document = {"apiVersion": f"{api_group}/v1", "metadata": metadata}
    role_ref = {"apiGroup": api_group, "kind": "ClusterRole", "name": name}
    return (
        {**common, "kind": "ClusterRole", "rules": list(rules)},
        {**common, "kind": "ClusterRoleBinding", "roleRef": role_ref, "subjects": [account]},
    )
