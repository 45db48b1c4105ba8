"""The contract of authorizers, and the chain that asks them in order, as Kubernetes does with `Node,RBAC`."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Final, Protocol

from msgspec import Struct

from dralloc.server.access.users import ADMINS, User


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


# --- Access request -------------------------------------------------------------------------------------------------
# A request for access: the attributes of an API request that authorization decides on, as in a SubjectAccessReview.


class SelectorRequirement(Struct, frozen=True, gc=False):
    """One requirement of a field or label selector: a key, an operator (In, NotIn, Exists, DoesNotExist) and values."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class AccessRequest(Struct, frozen=True, gc=False, kw_only=True):
    """A verb on a resource, or on a path outside of the API groups if `path` is set."""

    user: User
    verb: str
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    # Empty at the cluster scope.
    namespace: str = ""
    name: str = ""
    path: str = ""
    field_selector: tuple[SelectorRequirement, ...] = ()
    label_selector: tuple[SelectorRequirement, ...] = ()

    @property
    def full_resource(self) -> str:
        """`pods`, or `pods/status` for a subresource, as the rules of roles name it."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource
