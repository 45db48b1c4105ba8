"""The roles and bindings that every cluster of Kubernetes has, and how stored ones are brought up to date at the start."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Final

import msgspec

from dralloc.api.rbac_v1 import ClusterRole, ClusterRoleBinding, Role, RoleBinding

_TYPES: Final[dict[object, type[Role | RoleBinding]]] = {
    "Role": Role,
    "ClusterRole": ClusterRole,
    "RoleBinding": RoleBinding,
    "ClusterRoleBinding": ClusterRoleBinding,
}


@cache
def default_policy() -> tuple[Role | RoleBinding, ...]:
    """The default objects, as Kubernetes creates them. Aggregated roles have no rules yet."""
    text = resources.files("dralloc.access").joinpath("default_policy.json").read_bytes()
    return tuple(map(read_policy_object, msgspec.json.decode(text)))


def read_policy_object(document: object) -> Role | RoleBinding:
    """A role or binding from its JSON document; raises msgspec.ValidationError."""
    kind = document.get("kind") if isinstance(document, dict) else None
    if kind not in _TYPES:
        raise msgspec.ValidationError(f"not a role or binding: {kind!r}")
    return msgspec.convert(document, _TYPES[kind])
