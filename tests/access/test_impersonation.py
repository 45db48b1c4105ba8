"""Impersonation: which rights it needs, and who results. Recorded answers are in `tests/conformance`."""

from __future__ import annotations

import pytest

from dralloc.server.access.authorizer import ALLOWED, AccessRequest, Decision, Opinion
from dralloc.server.access.impersonation import Impersonation, ImpersonationRefused
from dralloc.server.access.users import User

ANN = User(name="ann")
LIST_PODS = AccessRequest(user=ANN, verb="list", resource="pods", namespace="a")


class Granted:
    """Allows exactly these `verb resource[/subresource] name`."""

    def __init__(self, *rights: str) -> None:
        self.rights = rights
        self.asked: list[str] = []

    def decide(self, request: AccessRequest) -> Decision:
        right = f"{request.verb} {request.full_resource} {request.name}".strip()
        self.asked.append(right)
        return Decision(Opinion.ALLOW if right in self.rights else Opinion.NONE)


def outcome(wanted: User, *rights: str, request: AccessRequest = LIST_PODS) -> User | str:
    """The impersonated user, or the verb and resource of the refusal."""
    try:
        return Impersonation(Granted(*rights).decide).impersonated(wanted, request)
    except ImpersonationRefused as refused:
        return f"{refused.asked.verb} {refused.asked.full_resource} {refused.asked.name}".strip()


def test_constrained_impersonation_needs_the_right_to_the_identity_and_to_the_request() -> None:
    bob = User(name="bob")
    on, to = "impersonate-on:user-info:list pods", "impersonate:user-info users bob"
    assert outcome(bob, on, to) == User(name="bob", groups=("system:authenticated",))
    assert outcome(bob, on) == to
    assert outcome(bob, to) == on
    assert outcome(bob, "impersonate users bob") == User(name="bob", groups=("system:authenticated",))


def test_every_part_of_the_identity_needs_its_right() -> None:
    wanted = User(name="bob", uid="7", groups=("devs",), extra=(("example.com/p", ("x", "y")),))
    rights = [
        "impersonate users bob",
        "impersonate uids 7",
        "impersonate groups devs",
        "impersonate userextras/example.com/p x",
        "impersonate userextras/example.com/p y",
    ]
    assert outcome(wanted, *rights) == User(
        name="bob", uid="7", groups=("devs", "system:authenticated"), extra=wanted.extra
    )
    for missing in rights:
        assert isinstance(outcome(wanted, *[right for right in rights if right != missing]), str)


def test_a_service_account_with_a_node_impersonates_its_own_node_only() -> None:
    agent = User(
        name="system:serviceaccount:kube-system:agent",
        extra=(("authentication.kubernetes.io/node-name", ("n1",)), ("authentication.kubernetes.io/pod-name", ("p",))),
    )
    request = AccessRequest(user=agent, verb="list", resource="pods")
    rights = ("impersonate:associated-node nodes *", "impersonate-on:associated-node:list pods")
    node = outcome(User(name="system:node:n1"), *rights, request=request)
    assert node == User(name="system:node:n1", groups=("system:nodes", "system:authenticated"))
    assert isinstance(outcome(User(name="system:node:n2"), *rights, request=request), str)
    assert isinstance(outcome(User(name="system:node:n1"), *rights), str)


@pytest.mark.parametrize("group", ["system:masters", ""])
def test_no_constrained_right_gives_these_groups(group: str) -> None:
    wanted = User(name="bob", groups=(group,))
    rights = ("impersonate-on:user-info:list pods", "impersonate:user-info users bob", "impersonate:user-info groups")
    assert (
        outcome(wanted, *rights, f"impersonate:user-info groups {group}")
        == f"impersonate:user-info groups {group}".strip()
    )


def test_a_right_to_all_groups_suffices_for_many() -> None:
    wanted = User(name="bob", groups=("a", "b", "c", "d"))
    rights = ("impersonate-on:user-info:list pods", "impersonate:user-info users bob", "impersonate:user-info groups *")
    assert isinstance(outcome(wanted, *rights), User)
    assert isinstance(outcome(User(name="bob", groups=("a",)), *rights), str)


def test_a_right_to_all_values_is_asked_for_once() -> None:
    questions = 0

    def decide(_: AccessRequest) -> Decision:
        nonlocal questions
        questions += 1
        return ALLOWED

    extra = tuple((f"example.com/{number}", ("x",)) for number in range(1000))
    wanted = User(name="bob", groups=tuple(f"g{number}" for number in range(1000)), extra=extra)
    assert Impersonation(decide).impersonated(wanted, LIST_PODS).extra == extra
    assert questions < 10


def test_the_mode_that_worked_last_words_the_refusal() -> None:
    granted = Granted("impersonate users bob")
    impersonation = Impersonation(granted.decide)
    impersonation.impersonated(User(name="bob"), LIST_PODS)
    with pytest.raises(ImpersonationRefused) as refused:
        impersonation.impersonated(User(name="eve"), LIST_PODS)
    assert refused.value.asked.verb == "impersonate"


@pytest.mark.parametrize(
    ("wanted", "groups"),
    [
        (User(name="system:anonymous"), ("system:unauthenticated",)),
        (User(name="bob", groups=("system:unauthenticated",)), ("system:unauthenticated",)),
        (User(name="system:serviceaccount:a:b", groups=("x",)), ("x", "system:authenticated")),
        (
            User(name="system:serviceaccount:a:b"),
            ("system:serviceaccounts", "system:serviceaccounts:a", "system:authenticated"),
        ),
        (User(name="system:serviceaccount:a"), ("system:authenticated",)),
    ],
)
def test_groups_that_every_user_has_are_added(wanted: User, groups: tuple[str, ...]) -> None:
    assert Impersonation(lambda _: ALLOWED).impersonated(wanted, LIST_PODS).groups == groups
