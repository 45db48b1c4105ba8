"""Rules that a user may not grant: what passes the check gives no right that the user does not have."""

from __future__ import annotations

from itertools import product

from hypothesis import assume, given
from hypothesis import strategies as st

from dralloc.kube.rbac_v1 import PolicyRule
from dralloc.server.access.authorizer import AccessRequest
from dralloc.server.access.escalation import FULL_AUTHORITY, escalation_refusal, uncovered_parts
from dralloc.server.access.rbac import RulesOfUser
from dralloc.server.access.users import User
from tests.access import naive_rbac
from tests.access.test_rbac import path_rules, resource_rules

ALICE = User(name="alice", groups=("devs", 'o"ps'))

rules = st.lists(resource_rules | path_rules, max_size=4).map(tuple)
REQUESTS = [
    AccessRequest(user=ALICE, verb=verb, group=group, resource=resource, subresource=subresource, name=name)
    for verb, group, resource, subresource, name in product(
        ("get", "list", "create", "other", "*"),
        ("", "resource.k8s.io", "other", "*"),
        ("pods", "claims", "other", "*"),
        ("", "status", "other", "*"),
        ("", "a", "other"),
    )
] + [
    AccessRequest(user=ALICE, verb=verb, path=path)
    for verb, path in product(
        ("get", "list", "other", "*"), ("/metrics", "/metrics/", "/metrics/slis", "/a*b", "/axb", "/a*bc", "/", "*")
    )
]


def allowed(policy: tuple[PolicyRule, ...], request: AccessRequest) -> bool:
    return any(naive_rbac.allows(rule, request) for rule in policy)


@given(rules, rules)
def test_granted_rules_allow_nothing_that_their_author_may_not_do(
    held: tuple[PolicyRule, ...], wanted: tuple[PolicyRule, ...]
) -> None:
    missing = uncovered_parts(held, wanted)
    # What is missing, together with what is held, allows all that is wanted; without anything missing, it was held before.
    for request in REQUESTS:
        if allowed(wanted, request):
            assert allowed((*held, *missing), request)


@given(rules)
def test_a_user_may_grant_its_own_rules_and_parts_of_them(held: tuple[PolicyRule, ...]) -> None:
    assert uncovered_parts(held, held) == []
    assume(held)
    first = held[0]
    part = PolicyRule(
        verbs=first.verbs[:1],
        api_groups=first.api_groups[:1],
        resources=first.resources[:1],
        resource_names=first.resource_names[:1],
        non_resource_urls=first.non_resource_urls[:1],
    )
    assert uncovered_parts(held, [part]) == []


def test_full_authority_has_no_urls() -> None:
    assert uncovered_parts(FULL_AUTHORITY, [PolicyRule(verbs=("*",), api_groups=("x",), resources=("y/z",))]) == []
    assert uncovered_parts(FULL_AUTHORITY, [PolicyRule(verbs=("get",), non_resource_urls=("/metrics",))])


def test_the_refusal_lists_missing_rights_and_missing_roles() -> None:
    wanted = [
        PolicyRule(verbs=("get", "list"), api_groups=("", "x"), resources=("pods",)),
        PolicyRule(verbs=("get", "list"), api_groups=("",), resources=("pods",), resource_names=("b", "a")),
        PolicyRule(verbs=("get",), non_resource_urls=("/b", "/a")),
    ]
    held = RulesOfUser(
        (PolicyRule(verbs=("list",), api_groups=("*",), resources=("*",)),), (("Role", "r"), ("ClusterRole", "c"))
    )
    assert escalation_refusal(ALICE, held, wanted, "rolebindings") == (
        'user "alice" (groups=["devs" "o\\"ps"]) is attempting to grant RBAC permissions not currently held:\n'
        '{APIGroups:[""], Resources:["pods"], ResourceNames:["a"], Verbs:["get"]}\n'
        '{APIGroups:[""], Resources:["pods"], ResourceNames:["b"], Verbs:["get"]}\n'
        '{APIGroups:[""], Resources:["pods"], Verbs:["get"]}\n'
        '{APIGroups:["x"], Resources:["pods"], Verbs:["get"]}\n'
        '{NonResourceURLs:["/a"], Verbs:["get"]}\n'
        '{NonResourceURLs:["/b"], Verbs:["get"]}'
        '; resolution errors: [[rolebindings.rbac.authorization.k8s.io "r" not found, '
        'rolebindings.rbac.authorization.k8s.io "c" not found]]'
    )
    assert escalation_refusal(ALICE, RulesOfUser(tuple(wanted)), wanted, "roles") == ""
