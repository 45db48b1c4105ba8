"""Decisions of RBAC: equal to those of a naive evaluator on random policies, while the policy changes."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from dralloc.kube.meta_v1 import ObjectMeta
from dralloc.kube.rbac_v1 import (
    GROUP,
    ClusterRole,
    ClusterRoleBinding,
    PolicyRule,
    Role,
    RoleBinding,
    RoleRef,
    Subject,
)
from dralloc.server.access.authorizer import AccessRequest
from dralloc.server.access.rbac import REMEMBERED_MAX, RbacAuthorizer
from dralloc.server.access.users import User
from tests.access import naive_rbac

NAMESPACES = ("ns1", "ns2")
NAMES = ("a", "b")
VERBS = ("get", "list", "create", "*")
GROUPS = ("", "resource.k8s.io", "*")
RESOURCES = ("pods", "pods/status", "*", "*/status", "pods/*", "*/*", "claims")
PATHS = ("/metrics", "/metrics/*", "/a*b", "*", "/metrics**", "/metrics/slis", "/a*b*")
USERS = ("alice", "system:serviceaccount:ns1:alice", "system:serviceaccount::alice", "*")
USER_GROUPS = ("devs", "alice", "*")


def some(values: tuple[str, ...], *, min_size: int = 1) -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(st.sampled_from(values), min_size=min_size, max_size=3, unique=True).map(tuple)


def metadata(*, namespaced: bool) -> st.SearchStrategy[ObjectMeta]:
    namespaces = st.sampled_from(NAMESPACES) if namespaced else st.just("")
    return st.builds(ObjectMeta, name=st.sampled_from(NAMES), namespace=namespaces)


resource_rules = st.builds(
    PolicyRule,
    verbs=some(VERBS),
    api_groups=some(GROUPS),
    resources=some(RESOURCES),
    resource_names=some(NAMES, min_size=0),
)
path_rules = st.builds(PolicyRule, verbs=some(VERBS), non_resource_urls=some(PATHS))
rules = st.lists(resource_rules | path_rules, max_size=3).map(tuple)
subjects = st.lists(
    st.builds(Subject, kind=st.just("User"), name=st.sampled_from(USERS))
    | st.builds(Subject, kind=st.just("Group"), name=st.sampled_from(USER_GROUPS))
    | st.builds(Subject, kind=st.just("ServiceAccount"), name=st.just("alice"), namespace=st.sampled_from(("", "ns1"))),
    max_size=3,
).map(tuple)
role_refs = st.builds(
    RoleRef, api_group=st.just(GROUP), kind=st.sampled_from(("Role", "ClusterRole")), name=st.sampled_from(NAMES)
)
objects = (
    st.builds(Role, metadata=metadata(namespaced=True), rules=rules)
    | st.builds(ClusterRole, metadata=metadata(namespaced=False), rules=rules)
    | st.builds(RoleBinding, metadata=metadata(namespaced=True), subjects=subjects, role_ref=role_refs)
    | st.builds(
        ClusterRoleBinding,
        metadata=metadata(namespaced=False),
        subjects=subjects,
        role_ref=st.builds(RoleRef, api_group=st.just(GROUP), kind=st.just("ClusterRole"), name=st.sampled_from(NAMES)),
    )
)
users = st.builds(User, name=st.sampled_from(USERS), groups=some(USER_GROUPS, min_size=0))
questions = st.builds(
    AccessRequest,
    user=users,
    verb=st.sampled_from(VERBS),
    group=st.sampled_from(GROUPS),
    resource=st.sampled_from(("pods", "claims", "*")),
    subresource=st.sampled_from(("", "status", "*")),
    namespace=st.sampled_from(("", *NAMESPACES)),
    name=st.sampled_from(("", *NAMES)),
) | st.builds(
    AccessRequest, user=users, verb=st.sampled_from(VERBS), path=st.sampled_from((*PATHS, "/a/b", "/metricsX"))
)


@dataclass(frozen=True, slots=True)
class Removal:
    item: Role | RoleBinding


changes = st.lists(objects | objects.map(Removal), min_size=1, max_size=30)


@given(changes, st.lists(questions, min_size=1, max_size=6))
def test_decisions_are_those_of_a_naive_evaluator_while_the_policy_changes(
    steps: list[Role | RoleBinding | Removal], asked: list[AccessRequest]
) -> None:
    rbac = RbacAuthorizer()
    policy: dict[tuple[type, str, str], Role | RoleBinding] = {}
    for step in steps:
        if isinstance(step, Removal):
            rbac.remove(step.item)
            policy.pop(key(step.item), None)
        else:
            rbac.put(step)
            policy[key(step)] = step
        for request in asked:
            check_decision(rbac, policy.values(), request)


def check_decision(rbac: RbacAuthorizer, policy: naive_rbac.Policy, request: AccessRequest) -> None:
    decision = rbac.decide(request)
    allowing = naive_rbac.reasons_to_allow(policy, request)
    assert decision.allowed == bool(allowing)
    if allowing:
        assert decision.reason in allowing
        return
    missing = naive_rbac.missing_roles(policy, request)
    assert all(text in decision.reason for text in missing)
    assert bool(decision.reason) == bool(missing)


def key(item: Role | RoleBinding) -> tuple[type, str, str]:
    return type(item), item.metadata.namespace, item.metadata.name


@given(st.lists(objects, max_size=20), users, st.sampled_from(("", *NAMESPACES)))
def test_rules_of_a_user_are_those_of_all_its_bindings(
    items: list[Role | RoleBinding], user: User, namespace: str
) -> None:
    policy = {key(item): item for item in items}
    found = RbacAuthorizer(policy.values()).rules_of(user, namespace)
    expected = list(naive_rbac.grants(policy.values(), user, namespace))
    assert sorted(map(repr, found.rules)) == sorted(repr(rule) for _, _, rules in expected for rule in rules or ())
    assert len(found.missing_roles) == sum(rules is None for _, _, rules in expected)


def test_what_is_remembered_is_bounded() -> None:
    rbac = RbacAuthorizer()
    for number in range(REMEMBERED_MAX + 10):
        rbac.decide(AccessRequest(user=User("u"), verb="get", resource=f"r{number}"))
    assert len(rbac._remembered) == 10


def test_bindings_without_subjects_can_be_removed_after_all_others() -> None:
    ref = RoleRef(api_group=GROUP, kind="Role", name="a")
    subject = Subject(kind="User", name="alice")
    bound = RoleBinding(metadata=ObjectMeta(name="a", namespace="ns1"), subjects=(subject,), role_ref=ref)
    empty = RoleBinding(metadata=ObjectMeta(name="b", namespace="ns1"), role_ref=ref)
    rbac = RbacAuthorizer([bound, empty])
    rbac.remove(bound)
    rbac.remove(empty)
    rbac.put(bound)
    assert rbac.rules_of(User("alice"), "ns1").missing_roles == (("Role", "a"),)
