"""`rbac.authorization.k8s.io/v1`: roles and bindings. `server/access/rbac` decides by them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from msgspec import field

from dralloc.kube.meta_v1 import ApiObject, LabelSelector
from dralloc.kube.wire import Wire, printed

GROUP: Final = "rbac.authorization.k8s.io"


class PolicyRule(Wire):
    """Verbs on resources, or on non-resource URLs."""

    verbs: tuple[str, ...] = printed(())
    api_groups: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    resource_names: tuple[str, ...] = ()
    non_resource_urls: tuple[str, ...] = field(default=(), name="nonResourceURLs")


def rules_as_json(rules: Sequence[PolicyRule]) -> list[dict[str, Any]]:
    """The rules as they stand in the JSON of a role."""
    return msgspec.json.decode(msgspec.json.encode(rules), type=list[dict[str, Any]])


class RoleRef(Wire):
    api_group: str = printed("")
    kind: str = printed("")
    name: str = printed("")


class Subject(Wire):
    kind: str = printed("")
    api_group: str = ""
    name: str = printed("")
    namespace: str = ""


class Role(ApiObject):
    rules: tuple[PolicyRule, ...] = printed(())


class AggregationRule(Wire):
    """Selects the ClusterRoles whose rules a controller puts into a role."""

    cluster_role_selectors: tuple[LabelSelector, ...] = ()


class ClusterRole(Role):
    """A role for all namespaces and for cluster-scoped objects."""

    aggregation_rule: AggregationRule | None = None


class RoleBinding(ApiObject):
    subjects: tuple[Subject, ...] = ()
    role_ref: RoleRef = field(default_factory=lambda: RoleRef())


class ClusterRoleBinding(RoleBinding):
    """A binding for all namespaces."""
