"""Checks writes of roles and bindings: `dralloc.server.access.escalation` has the rule.

The right `escalate` on a role, or `bind` on the role that a binding refers to, replaces the check.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from msgspec.structs import replace

from dralloc.kube.meta_v1 import ApiObject, ObjectMeta
from dralloc.kube.rbac_v1 import GROUP, ClusterRole, PolicyRule, Role, RoleBinding, RoleRef
from dralloc.kube.unstructured_object import UnstructuredObject, view
from dralloc.primitives.errors import ApiError, BadRequest
from dralloc.server.access.authorizer import AccessRequest, Decision
from dralloc.server.access.escalation import FULL_AUTHORITY, escalation_refusal, uncovered_parts
from dralloc.server.access.users import ADMINS
from dralloc.server.http.statuses import forbidden, not_found
from dralloc.server.read.stored_policy import StoredPolicy
from dralloc.server.write.request_bodies import SentObject, WriteTarget

_AGGREGATION: Final = "must have cluster-admin privileges to use the aggregationRule"


class EscalationCheck:
    """Refuses to grant rights that the user does not have."""

    def __init__(self, policy: StoredPolicy, decide: Callable[[AccessRequest], Decision]) -> None:
        self._policy = policy
        self._decide = decide

    async def check(self, target: WriteTarget, sent: SentObject, old: ApiObject | None) -> None:
        """Raises `Forbidden` or, for a binding to a missing role, `NotFound`. `old` has its revision."""
        if ADMINS in target.user.groups:
            return
        await self._policy.ready()
        item, before, needs_rights = _compare(target, sent.object, old)
        if not needs_rights:
            return
        if isinstance(item, RoleBinding):
            self._check_binding(target, item)
        else:
            self._check_role(target, item, before)

    def _check_role(self, target: WriteTarget, role: Role, before: Role | RoleBinding | None) -> None:
        if self._may(target, "escalate", target.kind.plural, GROUP, target.name):
            return
        self._check_rules(target, role, role.rules)
        if _aggregates(role) or _aggregates(before):
            held = self._policy.rules_of(target.user, target.namespace)
            if uncovered_parts(held.rules, FULL_AUTHORITY):
                raise forbidden(GROUP, target.kind.plural, role.metadata.name, _AGGREGATION)

    def _check_binding(self, target: WriteTarget, binding: RoleBinding) -> None:
        ref = binding.role_ref
        resource = {"Role": "roles", "ClusterRole": "clusterroles"}.get(ref.kind)
        if resource is not None and self._may(target, "bind", resource, ref.api_group or GROUP, ref.name):
            return
        self._check_rules(target, binding, self._rules_of_role(target, ref))

    def _rules_of_role(self, target: WriteTarget, ref: RoleRef) -> tuple[PolicyRule, ...]:
        if ref.kind not in ("Role", "ClusterRole"):
            raise ApiError(f'unsupported role reference kind: "{ref.kind}"')
        if ref.kind == "Role" and not target.namespace:
            raise BadRequest("Namespace parameter required.")
        if not ref.name:
            raise BadRequest("Name parameter required.")
        rules = self._policy.rbac.role_rules(ref, target.namespace)
        if rules is None:
            # Kubernetes names the missing role as if it were of the resource that is written.
            raise not_found(GROUP, target.kind.plural, ref.name)
        return rules

    def _check_rules(self, target: WriteTarget, item: ApiObject, wanted: Sequence[PolicyRule]) -> None:
        held = self._policy.rules_of(target.user, target.namespace)
        if why := escalation_refusal(target.user, held, wanted, target.kind.plural):
            raise forbidden(GROUP, target.kind.plural, item.metadata.name, why)

    def _may(self, target: WriteTarget, verb: str, resource: str, group: str, name: str) -> bool:
        asked = AccessRequest(
            user=target.user, verb=verb, group=group, resource=resource, namespace=target.namespace, name=name
        )
        return self._decide(asked).allowed


def _compare(
    target: WriteTarget, sent: ApiObject, old: ApiObject | None
) -> tuple[Role | RoleBinding, Role | RoleBinding | None, bool]:
    """What is sent, what is stored, and whether the change needs the rights of the role."""
    item = _read(target, sent)
    before = None if old is None else _read(target, old)
    return item, before, before is None or not _changes_only_garbage_collection(item, before)


def _read(target: WriteTarget, item: ApiObject) -> Role | RoleBinding:
    assert isinstance(item, UnstructuredObject), "roles are modelled in part"
    assert target.kind.view is not None, "roles are modelled in part"
    read = view(item, target.kind.view)
    assert isinstance(read, Role | RoleBinding), "the view of a role or binding"
    return read


def _aggregates(role: Role | RoleBinding | None) -> bool:
    rule = role.aggregation_rule if isinstance(role, ClusterRole) else None
    return rule is not None and bool(rule.cluster_role_selectors)


def _changes_only_garbage_collection(new: Role | RoleBinding, old: Role | RoleBinding) -> bool:
    """True if the write changes nothing but finalizers and owners: the garbage collector needs no rights of the role."""
    same = replace(new, api_version=old.api_version, kind=old.kind, metadata=old.metadata) == old
    return same and _without_collected(new.metadata) == _without_collected(old.metadata)


def _without_collected(metadata: ObjectMeta) -> ObjectMeta:
    return replace(metadata, finalizers=(), owner_references=(), managed_fields=(), self_link="")
