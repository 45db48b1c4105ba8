"""Decides by roles and bindings, as the RBAC authorizer of Kubernetes does.

Bindings are indexed by subject, so that a decision looks at the bindings of one user only, and at each role and subject of them once:
users choose how many there are. What was decided is remembered until the policy changes: components repeat the same few questions about
many objects.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain
from typing import Final

from msgspec import Struct

from dralloc.cel.library.text_format import go_quoted
from dralloc.kube.rbac_v1 import GROUP, ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject
from dralloc.primitives.errors import joined_errors
from dralloc.server.access.authorizer import AccessRequest, Decision, Opinion
from dralloc.server.access.users import User

SERVICE_ACCOUNT_PREFIX: Final = "system:serviceaccount:"

# Bound what is remembered: requests choose the names in it.
REMEMBERED_MAX: Final = 16_384
REMEMBERED_NAMES_LENGTH_MAX: Final = 512

# A user who may bind roles decides how often each is bound.
REPEATED_RULES_MAX: Final = 10_000

_REFUSED: Final = Decision(Opinion.NONE)


class RulesOfUser(Struct, frozen=True):
    """All rules that bindings give to a user in one namespace, or at the cluster scope only, and the roles that are missing.

    The rules of a role are listed for each binding, as in Kubernetes, unless these are too many: then once.
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
        # The namespace is empty for ClusterRoles.
        self._roles: dict[tuple[str, str], RoleGrants] = {}
        self._bindings: dict[tuple[str, str], _Binding] = {}
        # By namespace (empty: cluster scope) and name of the subject.
        self._users: dict[str, dict[str, _Subject]] = {"": {}}
        self._groups: dict[str, dict[str, _Subject]] = {"": {}}
        self._remembered: dict[tuple[object, ...], Decision | _ByName] = {}
        for item in objects:
            self.put(item)

    def put(self, item: Role | RoleBinding) -> None:
        """Add a role or binding, or replace the one with the same name."""
        key = _key(item)
        if isinstance(item, Role):
            self._roles[key] = RoleGrants(item.rules)
        else:
            self._remove_binding(key)
            self._bindings[key] = binding = _Binding(item, key[0])
            for position, subject in enumerate(binding.subjects):
                if subject is not None:
                    subjects = self._subjects(subject).setdefault(key[0], {})
                    subjects.setdefault(subject[1], _Subject()).add(binding, position)
        self._forget()

    def remove(self, item: Role | RoleBinding) -> None:
        key = _key(item)
        if isinstance(item, Role):
            self._roles.pop(key, None)
        else:
            self._remove_binding(key)
        self._forget()

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
        if answer.__class__ is _ByName:
            return answer.decisions.get(request.name, answer.refusal)
        return answer  # type: ignore[return-value]

    def rules_of(self, user: User, namespace: str) -> RulesOfUser:
        """The rules that hold for the user in the namespace, those of the cluster scope included."""
        roles: list[RoleGrants] = []
        missing: list[tuple[str, str]] = []
        bindings = dict.fromkeys(each for subject in self._subjects_of(user, namespace) for each in subject.bindings)
        for binding in bindings:
            of_role = self._roles.get(binding.role_key)
            if of_role is None:
                missing.append((binding.item.role_ref.kind, binding.item.role_ref.name))
            else:
                roles.append(of_role)
        is_long = sum(len(role.rules) for role in roles) > REPEATED_RULES_MAX
        listed = dict.fromkeys(roles) if is_long else roles
        return RulesOfUser(tuple(rule for role in listed for rule in role.rules), tuple(missing))

    def role_rules(self, ref: RoleRef, namespace: str) -> tuple[PolicyRule, ...] | None:
        """The rules of the role that a binding in the namespace refers to; `None` if there is no such role."""
        found = self._roles.get((namespace if ref.kind == "Role" else "", ref.name))
        return found.rules if found is not None else None

    def _subjects(self, subject: tuple[str, str]) -> dict[str, dict[str, _Subject]]:
        return self._users if subject[0] == "User" else self._groups

    def _remove_binding(self, key: tuple[str, str]) -> None:
        binding = self._bindings.pop(key, None)
        if binding is None:
            return
        namespace = key[0]
        for subject in binding.subjects:
            scopes = self._subjects(subject) if subject is not None else {}
            subjects = scopes.get(namespace, {})
            if subject is None or (found := subjects.get(subject[1])) is None:
                continue
            found.remove(binding)
            if not found.bindings:
                del subjects[subject[1]]
            if namespace and not subjects:
                del scopes[namespace]

    def _forget(self) -> None:
        self._remembered = {}

    def _subjects_of(self, user: User, namespace: str) -> list[_Subject]:
        """What bindings say about the user and its groups, at the cluster scope and in the namespace."""
        found: list[_Subject] = []
        for scope in ("", namespace) if namespace else ("",):
            users, groups = self._users.get(scope), self._groups.get(scope)
            if users and (subject := users.get(user.name)) is not None:
                found.append(subject)
            if groups:
                found += [groups[group] for group in dict.fromkeys(user.groups) if group in groups]
        return found

    def _granted(self, user: User, namespace: str) -> tuple[list[list[tuple[RoleGrants, _Grant]]], list[str]]:
        """For each subject that the user is, the roles that no earlier one has, and errors about roles that are missing."""
        granted: list[list[tuple[RoleGrants, _Grant]]] = []
        missing: list[str] = []
        known: set[RoleGrants] = set()
        subjects = frozenset([("User", user.name), *(("Group", group) for group in user.groups)])
        for subject in self._subjects_of(user, namespace):
            of_subject: list[tuple[RoleGrants, _Grant]] = []
            for binding, position in subject.in_order():
                role = self._roles.get(binding.role_key)
                if role is None:
                    missing.append(_not_found(binding.item.role_ref.kind, binding.item.role_ref.name))
                elif role not in known:
                    known.add(role)
                    of_subject.append((role, _Grant(binding, position, subjects)))
            granted.append(of_subject)
        return granted, missing

    def _answer(self, request: AccessRequest) -> Decision | _ByName:
        """The answer for every name at once."""
        verb, group, full_resource = request.verb, request.group, request.full_resource
        named = names_of_resource(full_resource, request.subresource)
        granted, errors = self._granted(request.user, request.namespace)
        named_rules: list[tuple[frozenset[str], Decision]] = []
        for of_subject in granted:
            for resource in named:
                for role, grant in of_subject:
                    for rule in role.by_resource.get(resource, ()):
                        if rule.allows(verb, group):
                            if not rule.names:
                                return grant.decision
                            named_rules.append((rule.names, grant.decision))
        refusal = _refusal(errors) if errors else _REFUSED
        by_name: dict[str, Decision] = {}
        # The first rule with a name counts.
        for names, decision in reversed(named_rules):
            by_name.update(dict.fromkeys(names, decision))
        return _ByName(by_name, refusal) if by_name else refusal

    def _decide_path(self, request: AccessRequest) -> Decision:
        granted, errors = self._granted(request.user, "")
        for role, grant in chain.from_iterable(granted):
            if any(allows_path(rule, request.verb, request.path) for rule in role.on_paths):
                return grant.decision
        return _refusal(errors) if errors else _REFUSED


class _ByName(Struct, frozen=True, gc=False):
    """Decisions on a verb and resource that depend on the name."""

    decisions: dict[str, Decision]
    refusal: Decision


class _Subject:
    """A user or group at one scope: its bindings, each with the position of the subject in it."""

    __slots__ = ("_in_order", "bindings")

    def __init__(self) -> None:
        self.bindings: dict[_Binding, int] = {}
        self._in_order: tuple[tuple[_Binding, int], ...] | None = None

    def add(self, binding: _Binding, position: int) -> None:
        self.bindings.setdefault(binding, position)
        self._in_order = None

    def remove(self, binding: _Binding) -> None:
        self.bindings.pop(binding, None)
        self._in_order = None

    def in_order(self) -> tuple[tuple[_Binding, int], ...]:
        """By name, last first, so that a reason does not depend on when bindings were created."""
        if self._in_order is None:
            by_name = sorted(self.bindings.items(), key=lambda each: each[0].item.metadata.name, reverse=True)
            self._in_order = tuple(by_name)
        return self._in_order


class RoleGrants:
    """The rules of one role. They are indexed once, when they are first asked for: a role can name as many resources as fit into a
    request, and the policy changes more often than each role.
    """

    __slots__ = ("_by_resource", "on_paths", "rules")

    def __init__(self, rules: tuple[PolicyRule, ...]) -> None:
        self.rules = rules
        self.on_paths = tuple(rule for rule in rules if rule.non_resource_urls)
        self._by_resource: dict[str, Sequence[ResourceRule]] | None = None

    @property
    def by_resource(self) -> Mapping[str, Sequence[ResourceRule]]:
        if self._by_resource is None:
            self._by_resource = index_by_resource(self.rules)
        return self._by_resource


class _Binding:
    """A binding; hashed by identity."""

    __slots__ = ("_decisions", "item", "namespace", "role_key", "subjects")

    def __init__(self, item: RoleBinding, namespace: str) -> None:
        self.item = item
        self.namespace = namespace
        self.role_key = (namespace if item.role_ref.kind == "Role" else "", item.role_ref.name)
        # Kind (User or Group) and name; None for a subject that no user can be.
        self.subjects = tuple(_identity(subject, namespace) for subject in item.subjects)
        self._decisions: dict[int, Decision] = {}

    def decision(self, position: int) -> Decision:
        """Allows, because the user is the subject at the position."""
        decision = self._decisions.get(position)
        if decision is None:
            decision = self._decisions[position] = Decision(Opinion.ALLOW, self._reason(position))
        return decision

    def _reason(self, position: int) -> str:
        name, ref = self.item.metadata.name, self.item.role_ref
        kind = "RoleBinding" if self.namespace else "ClusterRoleBinding"
        named = go_quoted(f"{name}/{self.namespace}" if self.namespace else name)
        subject = _described(self.item.subjects[position], self.namespace)
        return f"RBAC: allowed by {kind} {named} of {ref.kind} {go_quoted(ref.name)} to {subject}"


class _Grant:
    """A role for a user: the binding, the position of a subject in it that the user is, and all subjects that the user is."""

    __slots__ = ("_binding", "_decision", "_position", "_subjects")

    def __init__(self, binding: _Binding, position: int, subjects: frozenset[tuple[str, str]]) -> None:
        self._binding = binding
        self._position = position
        self._subjects = subjects
        self._decision: Decision | None = None

    @property
    def decision(self) -> Decision:
        """Allows, because the user is a subject of the binding; the reason names the first. Found once: a role can have many rules."""
        if self._decision is None:
            listed = self._binding.subjects
            first = next((place for place in range(self._position) if listed[place] in self._subjects), self._position)
            self._decision = self._binding.decision(first)
        return self._decision


def _remember(
    remembered: dict[tuple[object, ...], Decision | _ByName],
    key: tuple[object, ...],
    request: AccessRequest,
    answer: Decision | _ByName,
) -> None:
    named = request.namespace, request.verb, request.group, request.resource, request.subresource
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


class ResourceRule(Struct, frozen=True, gc=False):
    """The part of a rule that is compared after its resource was found, with fast membership tests."""

    verbs: frozenset[str]
    groups: frozenset[str]
    # Empty: every name.
    names: frozenset[str]

    @staticmethod
    def of(rule: PolicyRule) -> ResourceRule:
        return ResourceRule(frozenset(rule.verbs), frozenset(rule.api_groups), frozenset(rule.resource_names))

    def allows(self, verb: str, group: str) -> bool:
        """True if the rule allows the verb on the names that it lists."""
        return (verb in self.verbs or ALL in self.verbs) and (group in self.groups or ALL in self.groups)


def index_by_resource(rules: Iterable[PolicyRule]) -> dict[str, Sequence[ResourceRule]]:
    """The rules by each resource that they name."""
    several: dict[str, list[ResourceRule]] = {}
    index: dict[str, Sequence[ResourceRule]] = {}
    for rule in rules:
        compiled = ResourceRule.of(rule)
        # One for all resources that no other rule names: most of a large index.
        alone = (compiled,)
        for resource in dict.fromkeys(rule.resources):
            known = index.setdefault(resource, alone)
            if known is not alone:
                if resource not in several:
                    index[resource] = several[resource] = [*known]
                several[resource].append(compiled)
    return index


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
