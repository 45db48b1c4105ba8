"""Objects that install programs: workloads and roles."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dralloc.api.apps_v1 import DaemonSet, Deployment, DeploymentSpec
from dralloc.api.rbac_v1 import GROUP, ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, Subject
from dralloc.api.validation.formats import validate_choice
from dralloc.api.validation.pod import validate_pod_spec
from dralloc.primitives.field_errors import FieldError, FieldPath, invalid, required

SPEC: Final = FieldPath.of("spec")
ROLE_REF: Final = FieldPath.of("roleRef")
SUBJECTS: Final = ("ServiceAccount", "User", "Group")

Workload = DaemonSet | Deployment


def validate_workload_update(new: Workload, old: Workload) -> Iterator[FieldError]:
    if new.spec.selector != old.spec.selector:
        yield invalid(SPEC.child("selector"), new.spec.selector, "field is immutable")


def validate_workload(workload: Workload) -> Iterator[FieldError]:
    spec, template = workload.spec, SPEC.child("template")
    if isinstance(spec, DeploymentSpec) and spec.replicas is not None and spec.replicas < 0:
        yield invalid(SPEC.child("replicas"), spec.replicas, "must be greater than or equal to 0")
    if spec.selector is None or not (spec.selector.match_labels or spec.selector.match_expressions):
        yield required(SPEC.child("selector"), "required to select the workload's pods")
    elif not spec.selector.selects(spec.template.metadata.labels):
        labels = spec.template.metadata.labels
        yield invalid(template.child("metadata", "labels"), labels, "`selector` does not match template `labels`")
    yield from validate_pod_spec(spec.template.spec, template.child("spec"))
    if spec.template.spec.restart_policy not in ("", "Always"):
        yield from validate_choice(
            spec.template.spec.restart_policy, template.child("spec", "restartPolicy"), ("Always",)
        )


def role_name_faults(text: str) -> tuple[str, ...]:
    """The name of a role must only be usable in a URL."""
    if text in (".", ".."):
        return (f"may not be '{text}'",)
    return tuple(f"may not contain '{character}'" for character in "/%" if character in text)


def validate_role(role: Role) -> Iterator[FieldError]:
    for position, rule in enumerate(role.rules):
        yield from _validate_rule(
            rule, FieldPath.of("rules").index(position), in_namespace=not isinstance(role, ClusterRole)
        )


def _validate_rule(rule: PolicyRule, path: FieldPath, *, in_namespace: bool) -> Iterator[FieldError]:
    if not rule.verbs:
        yield required(path.child("verbs"), "verbs must contain at least one value")
    if rule.non_resource_urls:
        if in_namespace:
            urls = list(rule.non_resource_urls)
            yield invalid(path.child("nonResourceURLs"), urls, "namespaced rules cannot apply to non-resource URLs")
        if rule.api_groups or rule.resources or rule.resource_names:
            urls = list(rule.non_resource_urls)
            message = "rules cannot apply to both regular resources and non-resource URLs"
            yield invalid(path.child("nonResourceURLs"), urls, message)
        return
    if not rule.api_groups:
        yield required(path.child("apiGroups"), "resource rules must supply at least one api group")
    if not rule.resources:
        yield required(path.child("resources"), "resource rules must supply at least one resource")


def validate_binding_update(new: RoleBinding, old: RoleBinding) -> Iterator[FieldError]:
    if new.role_ref != old.role_ref:
        yield invalid(ROLE_REF, new.role_ref, "cannot change roleRef")


def validate_binding(binding: RoleBinding) -> Iterator[FieldError]:
    yield from validate_choice(binding.role_ref.api_group, ROLE_REF.child("apiGroup"), (GROUP,))
    kinds = ("ClusterRole",) if isinstance(binding, ClusterRoleBinding) else ("ClusterRole", "Role")
    yield from validate_choice(binding.role_ref.kind, ROLE_REF.child("kind"), kinds)
    if not binding.role_ref.name:
        yield required(ROLE_REF.child("name"))
    for position, subject in enumerate(binding.subjects):
        yield from _validate_subject(subject, FieldPath.of("subjects").index(position))


def _validate_subject(subject: Subject, path: FieldPath) -> Iterator[FieldError]:
    yield from validate_choice(subject.kind, path.child("kind"), SUBJECTS)
    if not subject.name:
        yield required(path.child("name"))
    if subject.kind == "ServiceAccount" and not subject.namespace:
        yield required(path.child("namespace"))
