"""Roles and bindings. The order of errors is that of Kubernetes, which finds some of them in a second pass."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dralloc.kube.meta_v1 import LabelSelector, LabelSelectorRequirement
from dralloc.kube.rbac_v1 import GROUP, ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, Subject
from dralloc.kube.validation.formats import validate_dns_subdomain, validate_format
from dralloc.kube.validation.metadata import validate_labels
from dralloc.primitives import names
from dralloc.primitives.field_errors import FieldError, FieldPath, forbidden, invalid, not_supported, required

ROLE_REF: Final = FieldPath.of("roleRef")
RULES: Final = FieldPath.of("rules")
SUBJECTS: Final = FieldPath.of("subjects")
SUBJECT_KINDS: Final = ("ServiceAccount", "User", "Group")


def validate_role(role: Role) -> Iterator[FieldError]:
    in_namespace = not isinstance(role, ClusterRole)
    for position, rule in enumerate(role.rules):
        yield from _validate_rule(rule, RULES.index(position), in_namespace=in_namespace)
    if isinstance(role, ClusterRole) and role.aggregation_rule is not None:
        path = FieldPath.of("aggregationRule", "clusterRoleSelectors")
        selectors = role.aggregation_rule.cluster_role_selectors
        if not selectors:
            yield required(path, "at least one clusterRoleSelector required if aggregationRule is non-nil")
        for position, selector in enumerate(selectors):
            faults = tuple(_validate_label_selector(selector, path.index(position)))
            yield from faults
            if faults:
                yield invalid(path.index(position), None, "invalid label selector.")
    for position, rule in enumerate(role.rules):
        if not rule.verbs:
            yield required(RULES.index(position).child("verbs"))


def _validate_rule(rule: PolicyRule, path: FieldPath, *, in_namespace: bool) -> Iterator[FieldError]:
    if rule.non_resource_urls:
        urls = list(rule.non_resource_urls)
        if in_namespace:
            yield invalid(path.child("nonResourceURLs"), urls, "namespaced rules cannot apply to non-resource URLs")
        if rule.api_groups or rule.resources or rule.resource_names:
            message = "rules cannot apply to both regular resources and non-resource URLs"
            yield invalid(path.child("nonResourceURLs"), urls, message)
        return
    if not rule.api_groups:
        yield required(path.child("apiGroups"), "resource rules must supply at least one api group")
    if not rule.resources:
        yield required(path.child("resources"), "resource rules must supply at least one resource")


def _validate_label_selector(selector: LabelSelector, path: FieldPath) -> Iterator[FieldError]:
    yield from validate_labels(selector.match_labels, path.child("matchLabels"))
    for position, requirement in enumerate(selector.match_expressions):
        yield from _validate_requirement(requirement, path.child("matchExpressions").index(position))


def _validate_requirement(requirement: LabelSelectorRequirement, path: FieldPath) -> Iterator[FieldError]:
    values = path.child("values")
    match requirement.operator:
        case "In" | "NotIn":
            if not requirement.values:
                yield required(values, "must be specified when `operator` is 'In' or 'NotIn'")
        case "Exists" | "DoesNotExist":
            if requirement.values:
                yield forbidden(values, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
        case operator:
            yield invalid(path.child("operator"), operator, "not a valid selector operator")
    yield from validate_format(requirement.key, path.child("key"), names.label_key)
    for position, value in enumerate(requirement.values):
        yield from validate_format(value, values.index(position), names.label_value)


def validate_binding(binding: RoleBinding) -> Iterator[FieldError]:
    yield from _validate_binding(binding)
    yield from _require_names(binding, with_role=True)


def validate_binding_update(new: RoleBinding, old: RoleBinding) -> Iterator[FieldError]:
    yield from _validate_binding(new)
    changes_role = new.role_ref != old.role_ref
    yield from _require_names(new, with_role=not changes_role)
    if changes_role:
        ref = new.role_ref
        value = {"APIGroup": ref.api_group, "Kind": ref.kind, "Name": ref.name}
        yield invalid(ROLE_REF, value, "field is immutable")


def _validate_binding(binding: RoleBinding) -> Iterator[FieldError]:
    ref, is_cluster_wide = binding.role_ref, isinstance(binding, ClusterRoleBinding)
    yield from _validate_choice(ref.api_group, ROLE_REF.child("apiGroup"), (GROUP,))
    kinds = ("ClusterRole",) if is_cluster_wide else ("Role", "ClusterRole")
    yield from _validate_choice(ref.kind, ROLE_REF.child("kind"), kinds)
    yield from validate_format(ref.name, ROLE_REF.child("name"), names.path_segment)
    for position, subject in enumerate(binding.subjects):
        yield from _validate_subject(subject, SUBJECTS.index(position), needs_namespace=is_cluster_wide)


def _validate_subject(subject: Subject, path: FieldPath, *, needs_namespace: bool) -> Iterator[FieldError]:
    match subject.kind:
        case "ServiceAccount":
            if subject.name:
                yield from validate_dns_subdomain(subject.name, path.child("name"))
            yield from _validate_choice(subject.api_group, path.child("apiGroup"), ("",))
            if needs_namespace and not subject.namespace:
                yield required(path.child("namespace"))
        case "User" | "Group":
            yield from _validate_choice(subject.api_group, path.child("apiGroup"), (GROUP,))
        case _:
            yield from _validate_choice(subject.kind, path.child("kind"), SUBJECT_KINDS)


def _require_names(binding: RoleBinding, *, with_role: bool) -> Iterator[FieldError]:
    for position, subject in enumerate(binding.subjects):
        if not subject.name:
            yield required(SUBJECTS.index(position).child("name"))
    if with_role and not binding.role_ref.name:
        yield required(ROLE_REF.child("name"))


def _validate_choice(text: str, path: FieldPath, choices: tuple[str, ...]) -> Iterator[FieldError]:
    if text not in choices:
        yield not_supported(path, text, choices, in_order=True)
