"""The roles and bindings that every cluster of Kubernetes has, and how stored ones are brought up to date at the start."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any, Final

import msgspec

from dralloc.access.escalation import uncovered_parts
from dralloc.api.rbac_v1 import ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, rules_as_json

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
    text = resources.files("dralloc.access").joinpath("default_policy.json").read_bytes()
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
