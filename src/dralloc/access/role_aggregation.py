"""The rules of a ClusterRole with an `aggregationRule`: those of the ClusterRoles that it selects."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from msgspec.structs import replace

from dralloc.api.rbac_v1 import ClusterRole, PolicyRule


def aggregated_rules(role: ClusterRole, roles: Collection[ClusterRole]) -> tuple[PolicyRule, ...] | None:
    """Each rule of the selected roles once, in the order of selectors and names; `None` if the role aggregates nothing."""
    if role.aggregation_rule is None:
        return None
    by_name = sorted(roles, key=lambda other: other.metadata.name)
    return tuple(
        dict.fromkeys(
            rule
            for selector in role.aggregation_rule.cluster_role_selectors
            for other in by_name
            if other.metadata.name != role.metadata.name and selector.selects(other.metadata.labels)
            for rule in other.rules
        )
    )


def with_aggregated_rules(roles: Iterable[ClusterRole]) -> list[ClusterRole]:
    """The roles after the controller has filled in all that aggregate, also those that select each other."""
    by_name = {role.metadata.name: role for role in roles}
    changed = True
    while changed:
        changed = False
        for name, role in by_name.items():
            rules = aggregated_rules(role, by_name.values())
            if rules is not None and rules != role.rules:
                by_name[name] = replace(role, rules=rules)
                changed = True
    return list(by_name.values())
