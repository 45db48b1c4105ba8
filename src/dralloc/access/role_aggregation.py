"""The rules of a ClusterRole with an `aggregationRule`: those of the ClusterRoles that it selects."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from msgspec.structs import replace

from dralloc.api.rbac_v1 import ClusterRole, PolicyRule


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
