"""The roles and bindings that every cluster of Kubernetes has, and how stored ones are brought up to date at the start."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from dralloc.kube.rbac_v1 import ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, rules_as_json
from dralloc.primitives.features import FeatureGates
from dralloc.server.access.escalation import uncovered_parts

# "false": the object belongs to the administrators of the cluster and is left as it is.
AUTO_UPDATE: Final = "rbac.authorization.kubernetes.io/autoupdate"

Document = dict[str, Any]

_TYPES: Final[dict[object, type[Role | RoleBinding]]] = {
    "Role": Role,
    "ClusterRole": ClusterRole,
    "RoleBinding": RoleBinding,
    "ClusterRoleBinding": ClusterRoleBinding,
}


@cache
def default_documents() -> tuple[Document, ...]:
    """The default objects, as Kubernetes creates them. Aggregated roles have no rules yet."""
    text = resources.files("dralloc.server.access").joinpath("default_policy.json").read_bytes()
    return msgspec.json.decode(text, type=tuple[Document, ...])


def default_policy() -> tuple[Role | RoleBinding, ...]:
    return tuple(map(read_policy_object, default_documents()))


def read_policy_object(document: object) -> Role | RoleBinding:
    """A role or binding from its JSON document; raises msgspec.ValidationError."""
    kind = document.get("kind") if isinstance(document, dict) else None
    if kind not in _TYPES:
        raise msgspec.ValidationError(f"not a role or binding: {kind!r}")
    return msgspec.convert(document, _TYPES[kind])


def reconciled(stored: Document, default: Document) -> Document:
    """The stored object with what the default has and it lacks; what it has besides is kept."""
    metadata = stored["metadata"]
    if (metadata.get("annotations") or {}).get(AUTO_UPDATE) == "false":
        return stored
    merged = {
        name: {**default["metadata"].get(name, {}), **(metadata.get(name) or {})} for name in ("labels", "annotations")
    }
    changes = _role_changes(stored, default) if "roleRef" not in default else _binding_changes(stored, default)
    result = {**stored, **changes, "metadata": {**metadata, **merged}}
    if default.get("aggregationRule") is None:
        result.pop("aggregationRule", None)
    return result


def _role_changes(stored: Mapping[str, Any], default: Mapping[str, Any]) -> Document:
    if (wanted := default.get("aggregationRule")) is not None:
        selectors = (stored.get("aggregationRule") or {}).get("clusterRoleSelectors") or []
        missing = [selector for selector in wanted["clusterRoleSelectors"] if selector not in selectors]
        return {"aggregationRule": {"clusterRoleSelectors": [*selectors, *missing]}}
    held, expected = (msgspec.convert(each.get("rules") or [], list[PolicyRule]) for each in (stored, default))
    parts = uncovered_parts(held, expected)
    return {"rules": [*(stored.get("rules") or []), *rules_as_json(parts)]} if parts else {}


def _binding_changes(stored: Mapping[str, Any], default: Mapping[str, Any]) -> Document:
    expected = default.get("subjects") or []
    if stored.get("roleRef") != default["roleRef"]:
        return {"roleRef": default["roleRef"], "subjects": expected}
    subjects = stored.get("subjects") or []
    missing = [subject for subject in expected if subject not in subjects]
    return {"subjects": [*subjects, *missing]} if missing else {}


# --- Role aggregation -----------------------------------------------------------------------------------------------
# The rules of a ClusterRole with an `aggregationRule`: those of the ClusterRoles that it selects.


def aggregated_rules(role: ClusterRole, roles: Collection[ClusterRole]) -> tuple[PolicyRule, ...] | None:
    """Each rule of the selected roles once, in the order of selectors and names; `None` if the role aggregates nothing.

    A selected role that aggregates, too, counts with what it selects, not with its rules: so roles that select each other converge,
    and a rule that no other role has any more disappears from all of them.
    """
    if role.aggregation_rule is None:
        return None
    by_name = sorted(roles, key=lambda other: other.metadata.name)
    return tuple(dict.fromkeys(_rules(role, by_name, {role.metadata.name})))


def _rules(role: ClusterRole, roles: Collection[ClusterRole], visited: set[str]) -> Iterator[PolicyRule]:
    selectors = role.aggregation_rule.cluster_role_selectors if role.aggregation_rule is not None else ()
    for selector in selectors:
        for other in roles:
            name = other.metadata.name
            if name in visited or not selector.selects(other.metadata.labels):
                continue
            visited.add(name)
            if other.aggregation_rule is None:
                yield from other.rules
            else:
                yield from _rules(other, roles, visited)


def with_aggregated_rules(roles: Iterable[ClusterRole]) -> list[ClusterRole]:
    """The roles after the controller has filled in all that aggregate."""
    found = list(roles)
    filled = [(role, aggregated_rules(role, found)) for role in found]
    return [role if rules is None else replace(role, rules=rules) for role, rules in filled]


# --- Gated policy ---------------------------------------------------------------------------------------------------
# What feature gates add to the default roles, as in Kubernetes 1.37.


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
