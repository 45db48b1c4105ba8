"""The chain of authorizers: the first opinion counts, and reasons are collected until there is one."""

from __future__ import annotations

import pytest

from dralloc.server.access.authorizer import AccessRequest, Administrators, AuthorizerChain, Decision, Opinion
from dralloc.server.access.users import ADMINISTRATOR, User

REQUEST = AccessRequest(user=User("alice"), verb="get", resource="pods", namespace="default", name="a")


class Fixed:
    def __init__(self, decision: Decision) -> None:
        self.decision = decision

    def decide(self, request: AccessRequest) -> Decision:
        return self.decision


@pytest.mark.parametrize(
    ("opinions", "expected"),
    [
        ([], Decision(Opinion.NONE)),
        ([Opinion.NONE, Opinion.ALLOW, Opinion.DENY], Decision(Opinion.ALLOW, "1")),
        ([Opinion.NONE, Opinion.DENY, Opinion.ALLOW], Decision(Opinion.DENY, "1")),
        ([Opinion.NONE, Opinion.NONE], Decision(Opinion.NONE, "0\n1")),
    ],
)
def test_the_first_opinion_counts(opinions: list[Opinion], expected: Decision) -> None:
    chain = AuthorizerChain([Fixed(Decision(opinion, str(number))) for number, opinion in enumerate(opinions)])
    assert chain.decide(REQUEST) == expected


def test_only_administrators_need_no_rule() -> None:
    assert Administrators().decide(AccessRequest(user=ADMINISTRATOR, verb="get", path="/metrics")).allowed
    assert not Administrators().decide(REQUEST).allowed
