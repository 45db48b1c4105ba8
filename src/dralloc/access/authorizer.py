"""The contract of authorizers, and the chain that asks them in order, as Kubernetes does with `Node,RBAC`."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Final, Protocol

from msgspec import Struct

from dralloc.access.access_request import AccessRequest
from dralloc.access.users import ADMINS


class Opinion(Enum):
    ALLOW = "allow"
    # Ends the chain; no later authorizer is asked.
    DENY = "deny"
    NONE = "none"


class Decision(Struct, frozen=True, gc=False):
    """An opinion with its reason, and the error that kept the authorizer from reading all of its policy."""

    opinion: Opinion
    reason: str = ""
    evaluation_error: str = ""

    @property
    def allowed(self) -> bool:
        return self.opinion is Opinion.ALLOW


ALLOWED: Final = Decision(Opinion.ALLOW)
NO_OPINION: Final = Decision(Opinion.NONE)


class Authorizer(Protocol):
    """Decides requests for access. Called for every request: an answer takes microseconds and does no I/O."""

    def decide(self, request: AccessRequest) -> Decision: ...


class Administrators:
    """Allows everything to the group `system:masters`, without a reason, as Kubernetes does."""

    def decide(self, request: AccessRequest) -> Decision:
        return ALLOWED if ADMINS in request.user.groups else NO_OPINION


class AuthorizerChain:
    """Asks authorizers in order: the first opinion counts. Without one, the reasons of all are joined and access is refused."""

    def __init__(self, authorizers: Sequence[Authorizer]) -> None:
        self._authorizers = tuple(authorizers)

    def decide(self, request: AccessRequest) -> Decision:
        reasons: list[str] = []
        errors: list[str] = []
        for authorizer in self._authorizers:
            decision = authorizer.decide(request)
            if decision.opinion is not Opinion.NONE:
                return decision
            if decision.reason:
                reasons.append(decision.reason)
            if decision.evaluation_error:
                errors.append(decision.evaluation_error)
        return Decision(Opinion.NONE, "\n".join(reasons), "\n".join(errors))
