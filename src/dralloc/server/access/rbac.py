"""Decides by roles and bindings, as the RBAC authorizer of Kubernetes does.

Bindings are indexed by subject, so that a decision looks at the bindings of one user only. What was decided is remembered until the policy
changes: components repeat the same few questions about many objects.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain
from typing import Final

from msgspec import Struct

from dralloc.cel.library.text_format import go_quoted
from dralloc.kube.rbac_v1 import GROUP, ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject
from dralloc.primitives.errors import joined_errors
from dralloc.server.access.authorizer import AccessRequest, Decision, Opinion
from dralloc.server.access.users import User

SERVICE_ACCOUNT_PREFIX: Final = "system:serviceaccount:"

# Bounds what is remembered: requests choose the names in it.
REMEMBERED_MAX: Final = 16_384

_REFUSED: Final = Decision(Opinion.NONE)


class RulesOfUser(Struct, frozen=True):
    """All rules that bindings give to a user in one namespace, or at the cluster scope only, and the roles that are missing.

    The rules of a role are listed for each binding, as in Kubernetes.
    """

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
        # By namespace, which is empty for ClusterRoles, and name.
        self._roles: dict[tuple[str, str], tuple[PolicyRule, ...]] = {}
        self._bindings: dict[tuple[str, str], _Binding] = {}
        # By scope (a namespace, or empty), kind and name of the subject.
        self._of_subject: dict[tuple[str, str, str], list[_Binding]] = {}
        self._remembered: dict[tuple[object, ...], _Answer] = {}
        for item in objects:
            self.put(item)

    def put(self, item: Role | RoleBinding) -> None:
        """Add a role or binding, or replace the one with the same name."""
        key = _key(item)
        if isinstance(item, Role):
            self._roles[key] = item.rules
        else:
            self._remove_binding(key)
            self._bindings[key] = binding = _Binding(item, key[0])
            for place in binding.places:
                bindings = self._of_subject.setdefault(place, [])
                bindings.append(binding)
                # Last first, so that a reason does not depend on when bindings were created.
                bindings.sort(key=lambda each: each.item.metadata.name, reverse=True)
        self._remembered = {}

    def remove(self, item: Role | RoleBinding) -> None:
        key = _key(item)
        if isinstance(item, Role):
            self._roles.pop(key, None)
        else:
            self._remove_binding(key)
        self._remembered = {}

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
        answer = self._remembered.get(key)
        if answer is None:
            if len(self._remembered) >= REMEMBERED_MAX:
                self._remembered.clear()
            answer = self._remembered[key] = self._answer(request)
        for names, decision in answer.grants:
            if not names or request.name in names:
                return decision
        return answer.refusal

    def rules_of(self, user: User, namespace: str) -> RulesOfUser:
        """The rules that hold for the user in the namespace, those of the cluster scope included."""
        rules: list[PolicyRule] = []
        missing: list[tuple[str, str]] = []
        for binding in dict.fromkeys(chain.from_iterable(self._bindings_of(user, namespace))):
            of_role = self._roles.get(binding.role_key)
            if of_role is None:
                missing.append((binding.item.role_ref.kind, binding.item.role_ref.name))
            else:
                rules += of_role
        return RulesOfUser(tuple(rules), tuple(missing))

    def role_rules(self, ref: RoleRef, namespace: str) -> tuple[PolicyRule, ...] | None:
        """The rules of the role that a binding in the namespace refers to; `None` if there is no such role."""
        return self._roles.get((namespace if ref.kind == "Role" else "", ref.name))

    def _remove_binding(self, key: tuple[str, str]) -> None:
        binding = self._bindings.pop(key, None)
        if binding is not None:
            for place in binding.places:
                self._of_subject[place].remove(binding)
                if not self._of_subject[place]:
                    del self._of_subject[place]

    def _bindings_of(self, user: User, namespace: str) -> Iterator[list[_Binding]]:
        """The bindings of the user and of each of its groups, at the cluster scope and in the namespace."""
        for scope in ("", namespace) if namespace else ("",):
            for subject in (("User", user.name), *(("Group", group) for group in dict.fromkeys(user.groups))):
                if bindings := self._of_subject.get((scope, *subject)):
                    yield bindings

    def _granted(self, user: User, namespace: str) -> tuple[list[list[tuple[PolicyRule, Decision]]], list[str]]:
        """For each subject that the user is, the rules of its roles, with the decisions that they lead to; and errors about roles that
        are missing.
        """
        granted: list[list[tuple[PolicyRule, Decision]]] = []
        missing: list[str] = []
        subjects = {("User", user.name), *(("Group", group) for group in user.groups)}
        for bindings in self._bindings_of(user, namespace):
            of_subject: list[tuple[PolicyRule, Decision]] = []
            for binding in bindings:
                rules = self._roles.get(binding.role_key)
                if rules is None:
                    missing.append(_not_found(binding.item.role_ref.kind, binding.item.role_ref.name))
                else:
                    decision = binding.decision(subjects)
                    of_subject += [(rule, decision) for rule in rules]
            granted.append(of_subject)
        return granted, missing

    def _answer(self, request: AccessRequest) -> _Answer:
        """The answer for every name at once."""
        granted, errors = self._granted(request.user, request.namespace)
        grants = [
            (frozenset(rule.resource_names), decision)
            for of_subject in granted
            for resource in names_of_resource(request.full_resource, request.subresource)
            for rule, decision in of_subject
            if allows_resource(rule, request.verb, request.group, resource)
        ]
        return _Answer(tuple(grants), _refusal(errors) if errors else _REFUSED)

    def _decide_path(self, request: AccessRequest) -> Decision:
        granted, errors = self._granted(request.user, "")
        for rule, decision in chain.from_iterable(granted):
            if allows_path(rule, request.verb, request.path):
                return decision
        return _refusal(errors) if errors else _REFUSED


class _Answer(Struct, frozen=True, gc=False):
    """The grants of a verb on a resource, in order, each for some names, or for every name if there are none."""

    grants: tuple[tuple[frozenset[str], Decision], ...]
    refusal: Decision


class _Binding:
    """A binding; hashed by identity."""

    __slots__ = ("item", "namespace", "role_key", "subjects")

    def __init__(self, item: RoleBinding, namespace: str) -> None:
        self.item = item
        self.namespace = namespace
        self.role_key = (namespace if item.role_ref.kind == "Role" else "", item.role_ref.name)
        # Kind (User or Group) and name; None for a subject that no user can be.
        self.subjects = tuple(_identity(subject, namespace) for subject in item.subjects)

    @property
    def places(self) -> set[tuple[str, str, str]]:
        """Where the binding is found: scope, kind and name of each subject."""
        return {(self.namespace, *subject) for subject in self.subjects if subject is not None}

    def decision(self, subjects: Collection[tuple[str, str] | None]) -> Decision:
        """Allows, because the user is one of the subjects; the reason names the first."""
        name, ref = self.item.metadata.name, self.item.role_ref
        position = next(place for place, subject in enumerate(self.subjects) if subject in subjects)
        kind = "RoleBinding" if self.namespace else "ClusterRoleBinding"
        named = go_quoted(f"{name}/{self.namespace}" if self.namespace else name)
        subject = _described(self.item.subjects[position], self.namespace)
        reason = f"RBAC: allowed by {kind} {named} of {ref.kind} {go_quoted(ref.name)} to {subject}"
        return Decision(Opinion.ALLOW, reason)


def _not_found(kind: str, name: str) -> str:
    return f"{kind.lower()}.{GROUP} {go_quoted(name)} not found"


def _key(item: Role | RoleBinding) -> tuple[str, str]:
    is_cluster_wide = isinstance(item, ClusterRole | ClusterRoleBinding)
    return "" if is_cluster_wide else item.metadata.namespace, item.metadata.name


def _identity(subject: Subject, binding_namespace: str) -> tuple[str, str] | None:
    match subject.kind:
        case "User" | "Group":
            return subject.kind, subject.name
        case "ServiceAccount" if namespace := subject.namespace or binding_namespace:
            return "User", f"{SERVICE_ACCOUNT_PREFIX}{namespace}:{subject.name}"
    return None


def _described(subject: Subject, binding_namespace: str) -> str:
    is_account = subject.kind == "ServiceAccount"
    name = f"{subject.name}/{subject.namespace or binding_namespace}" if is_account else subject.name
    return f"{subject.kind} {go_quoted(name)}"


def _refusal(errors: Sequence[str]) -> Decision:
    return Decision(Opinion.NONE, f"rbac: RBAC: {joined_errors(errors)}")


# --- Known rules ----------------------------------------------------------------------------------------------------
# The rules of a user as a SelfSubjectRulesReview lists them.


class KnownRules(Struct, frozen=True):
    """The rules that hold for a user in a namespace, as far as they can be listed."""

    resource_rules: Sequence[PolicyRule] = ()
    non_resource_rules: Sequence[PolicyRule] = ()
    evaluation_error: str = ""
    # Some authorizer allows more than rules can say.
    incomplete: bool = False


# --- Rule matches ---------------------------------------------------------------------------------------------------
# Whether one rule of a role allows a verb on a resource or on a path.
#
# A rule names resources with their subresource (`pods/status`); `*` is every resource with every subresource and
# `*/status` that subresource of every resource. Other stars have no meaning in names.


ALL: Final = "*"


def allows_resource(rule: PolicyRule, verb: str, group: str, resource: str) -> bool:
    """True if the rule allows the verb, on the names that it lists, on what has this name in rules."""
    return (
        resource in rule.resources
        and (verb in rule.verbs or ALL in rule.verbs)
        and (group in rule.api_groups or ALL in rule.api_groups)
    )


def names_of_resource(full_resource: str, subresource: str) -> tuple[str, ...]:
    """The names under which rules include a resource."""
    return (full_resource, ALL, f"*/{subresource}") if subresource else (full_resource, ALL)


def allows_path(rule: PolicyRule, verb: str, path: str) -> bool:
    """True if the rule allows the verb on a path outside of the API groups. A star at the end of a URL is any suffix."""
    if verb not in rule.verbs and ALL not in rule.verbs:
        return False
    return includes_url(rule.non_resource_urls, path)


def includes_url(urls: Collection[str], path: str) -> bool:
    return any(url in (ALL, path) or (url.endswith("*") and path.startswith(url.rstrip("*"))) for url in urls)
