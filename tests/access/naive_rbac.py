"""RBAC as its documentation describes it: every binding and every rule, one after the other, without an index."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dralloc.kube.rbac_v1 import ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, Subject
from dralloc.server.access.authorizer import AccessRequest
from dralloc.server.access.users import User

Policy = Iterable[Role | RoleBinding]


def reasons_to_allow(policy: Policy, request: AccessRequest) -> set[str]:
    """What each binding that allows the request would give as the reason; none if nothing allows it."""
    found = set()
    for binding, subject, rules in grants(policy, request.user, request.namespace):
        if rules is not None and any(allows(rule, request) for rule in rules):
            found.add(f"RBAC: allowed by {described(binding)} to {subject}")
    return found


def missing_roles(policy: Policy, request: AccessRequest) -> set[str]:
    return {
        f'{binding.role_ref.kind.lower()}.rbac.authorization.k8s.io "{binding.role_ref.name}" not found'
        for binding, _, rules in grants(policy, request.user, request.namespace)
        if rules is None
    }


def grants(
    policy: Policy, user: User, namespace: str
) -> Iterator[tuple[RoleBinding, str, tuple[PolicyRule, ...] | None]]:
    policy = list(policy)
    for binding in policy:
        if not isinstance(binding, RoleBinding):
            continue
        is_cluster_wide = isinstance(binding, ClusterRoleBinding)
        own = "" if is_cluster_wide else binding.metadata.namespace
        if own not in ("", namespace):
            continue
        names = [text for subject in binding.subjects for text in described_if(subject, user, own)]
        if names:
            yield binding, names[0], rules_of_ref(policy, binding, own)


def described_if(subject: Subject, user: User, own: str) -> list[str]:
    if subject.kind == "ServiceAccount":
        namespace = subject.namespace or own
        is_user = namespace and user.name == f"system:serviceaccount:{namespace}:{subject.name}"
        return [f'ServiceAccount "{subject.name}/{namespace}"'] if is_user else []
    names = [user.name] if subject.kind == "User" else user.groups
    return [f'{subject.kind} "{subject.name}"'] if subject.name in names else []


def rules_of_ref(policy: Policy, binding: RoleBinding, own: str) -> tuple[PolicyRule, ...] | None:
    for role in policy:
        if isinstance(role, Role) and role.metadata.name == binding.role_ref.name:
            is_cluster_role = isinstance(role, ClusterRole)
            wanted = binding.role_ref.kind == "ClusterRole"
            if is_cluster_role == wanted and (is_cluster_role or role.metadata.namespace == own):
                return role.rules
    return None


def described(binding: RoleBinding) -> str:
    of = f'of {binding.role_ref.kind} "{binding.role_ref.name}"'
    if isinstance(binding, ClusterRoleBinding):
        return f'ClusterRoleBinding "{binding.metadata.name}" {of}'
    return f'RoleBinding "{binding.metadata.name}/{binding.metadata.namespace}" {of}'


def allows(rule: PolicyRule, request: AccessRequest) -> bool:
    if not ("*" in rule.verbs or request.verb in rule.verbs):
        return False
    if request.path:
        return any(url_covers(url, request.path) for url in rule.non_resource_urls)
    if not ("*" in rule.api_groups or request.group in rule.api_groups):
        return False
    if rule.resource_names and request.name not in rule.resource_names:
        return False
    resource, _, subresource = f"{request.resource}/{request.subresource}".partition("/")
    for named in rule.resources:
        if named == "*":
            return True
        if not subresource and named == resource:
            return True
        if subresource and named in (f"{resource}/{subresource}", f"*/{subresource}"):
            return True
    return False


def url_covers(url: str, path: str) -> bool:
    if url.endswith("*"):
        stem = url
        while stem.endswith("*"):
            stem = stem[:-1]
        return path.startswith(stem)
    return url == path
