"""Decides by roles and bindings, as the RBAC authorizer of Kubernetes does.

Bindings are indexed by subject, so that a decision looks at the bindings of one user only. What was decided is remembered
until the policy changes: components repeat the same few questions about many objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from msgspec import Struct

from dralloc.access.access_request import AccessRequest
from dralloc.access.authorizer import Decision, Opinion
from dralloc.access.rule_matches import ResourceRule, allows_path
from dralloc.access.users import User
from dralloc.api.rbac_v1 import GROUP, ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject
from dralloc.cel.library.text_format import go_quoted
from dralloc.primitives.aggregate_errors import joined_errors

SERVICE_ACCOUNT_PREFIX: Final = "system:serviceaccount:"

# Bound what is remembered: requests choose the names in it.
REMEMBERED_MAX: Final = 16_384
REMEMBERED_NAMES_LENGTH_MAX: Final = 512

_REFUSED: Final = Decision(Opinion.NONE)


class RulesOfUser(Struct, frozen=True):
    """All rules that bindings give to a user in one namespace, or at the cluster scope only, and the roles that are missing."""

    rules: tuple[PolicyRule, ...]
    # Kind and name.
    missing_roles: tuple[tuple[str, str], ...] = ()

    @property
    def resource_rules(self) -> tuple[PolicyRule, ...]:
        return tuple(rule for rule in self.rules if rule.resources)

    @property
    def non_resource_rules(self) -> tuple[PolicyRule, ...]:
        return tuple(rule for rule in self.rules if rule.non_resource_urls)

    @property
    def evaluation_error(self) -> str:
        """The missing roles in one text; empty if there are none."""
        return joined_errors(_not_found(*missing) for missing in self.missing_roles)


class RbacAuthorizer:
    """The roles and bindings of a cluster, and the decisions that follow from them. Changes count at once."""

    def __init__(self, objects: Iterable[Role | RoleBinding] = ()) -> None:
        # The namespace is empty for ClusterRoles.
        self._roles: dict[tuple[str, str], _Role] = {}
        self._bindings: dict[tuple[str, str], _Binding] = {}
        # By namespace (empty: cluster scope) and subject: bindings with the position of the subject in them.
        self._by_subject: dict[str, dict[str, dict[_Binding, int]]] = {"": {}}
        # Replaced, not cleared, when the policy changes: a decision that another thread has begun may still store into the old one.
        self._remembered: dict[tuple[object, ...], _Answer] = {}
        for item in objects:
            self.put(item)

    def put(self, item: Role | RoleBinding) -> None:
        """Add a role or binding, or replace the one with the same name."""
        self._remembered = {}
        key = _key(item)
        if isinstance(item, Role):
            self._roles[key] = _Role.of(item)
            return
        self._remove_binding(key)
        binding = _Binding(item, key[0])
        self._bindings[key] = binding
        subjects = self._by_subject.setdefault(key[0], {})
        for position, subject in enumerate(item.subjects):
            if (name := _subject_key(subject, key[0])) is not None:
                subjects.setdefault(name, {}).setdefault(binding, position)

    def remove(self, item: Role | RoleBinding) -> None:
        self._remembered = {}
        key = _key(item)
        if isinstance(item, Role):
            self._roles.pop(key, None)
        else:
            self._remove_binding(key)

    def decide(self, request: AccessRequest) -> Decision:
        user = request.user
        if request.path:
            return self._decide_path(request)
        key = (
            user.name,
            user.groups,
            request.namespace,
            request.verb,
            request.group,
            request.resource,
            request.subresource,
        )
        remembered = self._remembered
        answer = remembered.get(key)
        if answer is None:
            answer = self._answer(request)
            _remember(remembered, key, request, answer)
        return answer.everything or answer.by_name.get(request.name, answer.refusal)

    def rules_of(self, user: User, namespace: str) -> RulesOfUser:
        """The rules that hold for the user in the namespace, those of the cluster scope included."""
        rules: list[PolicyRule] = []
        missing: list[tuple[str, str]] = []
        for binding, _ in self._bindings_of(user, namespace):
            role = self._role_of(binding)
            if role is None:
                missing.append((binding.item.role_ref.kind, binding.item.role_ref.name))
            else:
                rules.extend(role.rules)
        return RulesOfUser(tuple(rules), tuple(missing))

    def role_rules(self, ref: RoleRef, namespace: str) -> tuple[PolicyRule, ...] | None:
        """The rules of the role that a binding in the namespace refers to; `None` if there is no such role."""
        role = self._roles.get((namespace if ref.kind == "Role" else "", ref.name))
        return None if role is None else role.rules

    def _remove_binding(self, key: tuple[str, str]) -> None:
        binding = self._bindings.pop(key, None)
        if binding is None:
            return
        subjects = self._by_subject.get(key[0], {})
        for subject in binding.item.subjects:
            name = _subject_key(subject, key[0])
            if name is not None and (bound := subjects.get(name)) is not None:
                bound.pop(binding, None)
                if not bound:
                    del subjects[name]
        if key[0] and not subjects:
            self._by_subject.pop(key[0], None)

    def _bindings_of(self, user: User, namespace: str) -> Iterator[tuple[_Binding, int]]:
        """The bindings with the user, each with the position of the first subject that is the user."""
        keys = [f"User:{user.name}", *(f"Group:{group}" for group in user.groups)]
        for scope in ("", namespace) if namespace else ("",):
            subjects = self._by_subject.get(scope)
            if not subjects:
                continue
            found: dict[_Binding, int] = {}
            for key in keys:
                # A copy: claim status may be checked in another thread while the policy changes.
                for binding, position in list(subjects.get(key, _NONE).items()):
                    found[binding] = min(position, found.get(binding, position))
            yield from found.items()

    def _role_of(self, binding: _Binding) -> _Role | None:
        return self._roles.get(binding.role_key)

    def _answer(self, request: AccessRequest) -> _Answer:
        """The answer for every name at once."""
        by_name: dict[str, Decision] = {}
        errors: list[str] = []
        full_resource = request.full_resource
        for binding, position in self._bindings_of(request.user, request.namespace):
            role = self._role_of(binding)
            if role is None:
                errors.append(binding.missing_role)
                continue
            for rule in role.resource_rules:
                if not rule.allows(request.verb, request.group, full_resource, request.subresource):
                    continue
                decision = Decision(Opinion.ALLOW, binding.reason(position))
                if not rule.names:
                    return _Answer(decision)
                for name in rule.names:
                    by_name.setdefault(name, decision)
        return _Answer(None, by_name, _refusal(errors))

    def _decide_path(self, request: AccessRequest) -> Decision:
        errors: list[str] = []
        for binding, position in self._bindings_of(request.user, ""):
            role = self._role_of(binding)
            if role is None:
                errors.append(binding.missing_role)
            elif any(allows_path(rule, request.verb, request.path) for rule in role.path_rules):
                return Decision(Opinion.ALLOW, binding.reason(position))
        return _refusal(errors)


@dataclass(frozen=True, slots=True)
class _Answer:
    """The decision on a verb and resource for every name (`everything`), or by name."""

    everything: Decision | None
    by_name: dict[str, Decision] = field(default_factory=dict)
    refusal: Decision = _REFUSED


@dataclass(frozen=True, slots=True)
class _Role:
    rules: tuple[PolicyRule, ...]
    resource_rules: tuple[ResourceRule, ...]
    path_rules: tuple[PolicyRule, ...]

    @staticmethod
    def of(role: Role) -> _Role:
        return _Role(
            role.rules,
            tuple(ResourceRule.of(rule) for rule in role.rules),
            tuple(rule for rule in role.rules if rule.non_resource_urls),
        )


class _Binding:
    """A binding; hashed by identity."""

    __slots__ = ("item", "namespace", "role_key")

    def __init__(self, item: RoleBinding, namespace: str) -> None:
        self.item = item
        self.namespace = namespace
        self.role_key = (namespace if item.role_ref.kind == "Role" else "", item.role_ref.name)

    @property
    def missing_role(self) -> str:
        return _not_found(self.item.role_ref.kind, self.item.role_ref.name)

    def reason(self, position: int) -> str:
        """Why the subject at the position is allowed something."""
        name, ref = self.item.metadata.name, self.item.role_ref
        kind = "RoleBinding" if self.namespace else "ClusterRoleBinding"
        named = go_quoted(f"{name}/{self.namespace}" if self.namespace else name)
        subject = _described(self.item.subjects[position], self.namespace)
        return f"RBAC: allowed by {kind} {named} of {ref.kind} {go_quoted(ref.name)} to {subject}"


_NONE: Final[dict[_Binding, int]] = {}


def _remember(
    remembered: dict[tuple[object, ...], _Answer], key: tuple[object, ...], request: AccessRequest, answer: _Answer
) -> None:
    named = (request.namespace, request.verb, request.group, request.resource, request.subresource)
    if sum(map(len, named)) > REMEMBERED_NAMES_LENGTH_MAX:
        return
    if len(remembered) >= REMEMBERED_MAX:
        remembered.clear()
    remembered[key] = answer


def _not_found(kind: str, name: str) -> str:
    return f"{kind.lower()}.{GROUP} {go_quoted(name)} not found"


def _key(item: Role | RoleBinding) -> tuple[str, str]:
    is_cluster_wide = isinstance(item, ClusterRole | ClusterRoleBinding)
    return "" if is_cluster_wide else item.metadata.namespace, item.metadata.name


def _subject_key(subject: Subject, binding_namespace: str) -> str | None:
    """The key of the users that the subject is; `None` for a subject that no user can be."""
    match subject.kind:
        case "User" | "Group":
            return f"{subject.kind}:{subject.name}"
        case "ServiceAccount" if namespace := subject.namespace or binding_namespace:
            return f"User:{SERVICE_ACCOUNT_PREFIX}{namespace}:{subject.name}"
    return None


def _described(subject: Subject, binding_namespace: str) -> str:
    is_account = subject.kind == "ServiceAccount"
    name = f"{subject.name}/{subject.namespace or binding_namespace}" if is_account else subject.name
    return f"{subject.kind} {go_quoted(name)}"


def _refusal(errors: Sequence[str]) -> Decision:
    return Decision(Opinion.NONE, f"rbac: RBAC: {joined_errors(errors)}") if errors else _REFUSED
