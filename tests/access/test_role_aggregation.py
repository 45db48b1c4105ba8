"""ClusterRoles that get the rules of others."""

from __future__ import annotations

from msgspec.structs import replace

from dralloc.kube.meta_v1 import LabelSelector, ObjectMeta
from dralloc.kube.rbac_v1 import AggregationRule, ClusterRole, PolicyRule
from dralloc.server.access.default_policy import aggregated_rules, default_policy, with_aggregated_rules

GET = PolicyRule(verbs=("get",), api_groups=("",), resources=("pods",))
LIST = PolicyRule(verbs=("list",), api_groups=("",), resources=("pods",))


def role(name: str, *rules: PolicyRule, selects: str = "", **labels: str) -> ClusterRole:
    rule = AggregationRule(cluster_role_selectors=(LabelSelector(match_labels={selects: "y"}),)) if selects else None
    return ClusterRole(metadata=ObjectMeta(name=name, labels=labels), rules=rules, aggregation_rule=rule)


def test_rules_are_in_the_order_of_names_and_stand_once() -> None:
    top = role("top", selects="x", x="y")
    roles = [role("b", GET, LIST, x="y"), top, role("a", LIST, x="y"), role("c", GET)]
    assert aggregated_rules(top, roles) == (LIST, GET)
    assert aggregated_rules(roles[0], roles) is None


def test_aggregated_roles_can_be_aggregated() -> None:
    filled = with_aggregated_rules([role("top", selects="x"), role("mid", selects="z", x="y"), role("low", GET, z="y")])
    assert [item.rules for item in filled] == [(GET,), (GET,), (GET,)]


def test_roles_that_select_each_other_converge() -> None:
    roles = [
        role("a", GET, selects="b", a="y"),
        role("b", selects="c", b="y"),
        role("c", LIST, selects="a", c="y"),
        role("d", LIST, a="y"),
    ]
    filled = with_aggregated_rules(roles)
    assert [item.rules for item in filled] == [(LIST,)] * 4
    assert with_aggregated_rules(filled) == filled
    # What no other role has any more disappears.
    assert [item.rules for item in with_aggregated_rules(filled[:3])] == [()] * 3


def test_a_selected_role_without_rules_empties_the_role() -> None:
    (top, _) = with_aggregated_rules([role("top", GET, selects="x"), role("low", x="y")])
    assert top.rules == ()


def test_the_default_admin_includes_what_edit_and_view_may() -> None:
    roles = [item for item in default_policy() if isinstance(item, ClusterRole)]
    filled = {item.metadata.name: item for item in with_aggregated_rules(roles)}
    assert set(filled["view"].rules) < set(filled["edit"].rules) < set(filled["admin"].rules)
    assert replace(filled["cluster-admin"], rules=()) in [replace(item, rules=()) for item in roles]
