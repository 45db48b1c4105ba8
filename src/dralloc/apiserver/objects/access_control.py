"""Who may do what on this server: decides every request for access from what is stored."""

from __future__ import annotations

from typing import Final

from dralloc.access.authorizer import (
    ALLOWED,
    NO_OPINION,
    AccessRequest,
    Administrators,
    Authorizer,
    AuthorizerChain,
    Decision,
)
from dralloc.access.node_authorizer import NodeAuthorizer
from dralloc.access.rbac import KnownRules
from dralloc.access.users import User, node_of
from dralloc.apiserver.objects.node_relations import StoredRelations
from dralloc.apiserver.objects.stored_policy import StoredPolicy
from dralloc.primitives.errors import joined_errors
from dralloc.store.interface import Store

_NODE_RULES_UNKNOWN: Final = "node authorizer does not support user rule resolution"


class AccessControl:
    """Asks for administrators, then for nodes, then the stored roles. Another `authorizer` replaces all of them.

    Without a policy, roles are not enforced.
    """

    def __init__(self, store: Store, authorizer: Authorizer | None = None, policy: StoredPolicy | None = None) -> None:
        self._relations = StoredRelations(store)
        self._policy = policy
        self._authorizer = authorizer or AuthorizerChain(
            (Administrators(), NodeAuthorizer(self._relations), policy or _EveryoneElse())
        )

    async def decide(self, asked: AccessRequest) -> Decision:
        """The decision on everything that the store has delivered by now."""
        await self.ready(asked)
        return self._authorizer.decide(asked)

    def decide_again(self, asked: AccessRequest) -> Decision:
        """A further decision for a request after `ready` or `decide`."""
        return self._authorizer.decide(asked)

    async def ready(self, asked: AccessRequest) -> None:
        """Wait until decisions on such requests see every change that the store has delivered."""
        if node_of(asked.user) is not None:
            await self._relations.ready(asked.resource)

    async def rules_of(self, user: User, namespace: str) -> KnownRules:
        """The rules that hold for the user in the namespace, for a SelfSubjectRulesReview."""
        is_node = node_of(user) is not None
        errors = (_NODE_RULES_UNKNOWN,) if is_node else ()
        if self._policy is None:
            return KnownRules(evaluation_error=joined_errors(errors), incomplete=True)
        await self._policy.ready()
        rules = self._policy.rules_of(user, namespace)
        return KnownRules(
            resource_rules=rules.resource_rules,
            non_resource_rules=rules.non_resource_rules,
            evaluation_error=joined_errors(error for error in (*errors, rules.evaluation_error) if error),
            incomplete=is_node,
        )

    async def stop(self) -> None:
        await self._relations.stop()
        if self._policy is not None:
            await self._policy.stop()


class _EveryoneElse:
    """Allows everything to users that are not nodes."""

    def decide(self, request: AccessRequest) -> Decision:
        return ALLOWED if node_of(request.user) is None else NO_OPINION
