"""PodGroups and Workloads: policies, shared claims, references, priorities, and what an update may change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeVar

from msgspec import to_builtins

from dralloc.kube.scheduling_v1 import PREEMPTION_POLICIES, USERS_HIGHEST
from dralloc.kube.scheduling_v1beta1 import (
    DisruptionMode,
    PodGroup,
    PodGroupResourceClaim,
    PodGroupSchedulingConstraints,
    PodGroupSchedulingPolicy,
    PodGroupSpec,
    PodGroupTemplate,
    Workload,
    WorkloadSpec,
)
from dralloc.kube.validation.conditions import validate_conditions
from dralloc.kube.validation.formats import (
    validate_choice,
    validate_dns_subdomain,
    validate_format,
    validate_required_label,
    validate_required_subdomain,
    validate_unique,
)
from dralloc.kube.validation.metadata import validate_metadata, validate_metadata_update
from dralloc.primitives import names
from dralloc.primitives.field_errors import FieldError, FieldPath, duplicate, forbidden, invalid, required, too_many

CLAIMS_COUNT_MAX: Final = 4
TEMPLATES_COUNT_MAX: Final = 8
TOPOLOGY_COUNT_MAX: Final = 1

SPEC: Final = FieldPath.of("spec")
STATUS: Final = FieldPath.of("status")
IMMUTABLE: Final = "field is immutable"

SharedT = TypeVar("SharedT", PodGroupSpec, PodGroupTemplate)


def validate_pod_group(group: PodGroup) -> Iterator[FieldError]:
    yield from validate_metadata(group.metadata, namespaced=True)
    yield from _validate_group_spec(group.spec)


def validate_pod_group_update(new: PodGroup, old: PodGroup) -> Iterator[FieldError]:
    yield from validate_metadata_update(new.metadata, old.metadata)
    yield from _validate_group_spec(new.spec)
    yield from validate_unchanged(new.spec, old.spec, SPEC, "parent_composite_pod_group_name", "workload_ref")
    yield from _validate_shared_update(new.spec, old.spec, SPEC)


def validate_pod_group_status(new: PodGroup, old: PodGroup) -> Iterator[FieldError]:
    yield from validate_metadata_update(new.metadata, old.metadata)
    yield from validate_conditions(new.status.conditions, STATUS.child("conditions"))
    statuses, path = new.status.resource_claim_statuses, STATUS.child("resourceClaimStatuses")
    is_short = len(statuses) <= CLAIMS_COUNT_MAX
    if not is_short:
        yield too_many(path, len(statuses), CLAIMS_COUNT_MAX)
    known = {claim.name for claim in new.spec.resource_claims}
    for position, status in enumerate(statuses):
        where = path.index(position)
        if status.name not in known:
            yield invalid(where.child("name"), status.name, "must match the name of an entry in `spec.resourceClaims`")
        if is_short and status.resource_claim_name is not None:
            yield from validate_dns_subdomain(status.resource_claim_name, where.child("resourceClaimName"))
    if is_short:
        yield from validate_unique(statuses, path, lambda status: status.name)


def validate_workload(workload: Workload) -> Iterator[FieldError]:
    yield from validate_metadata(workload.metadata, namespaced=True)
    yield from _validate_workload_spec(workload.spec)


def validate_workload_update(new: Workload, old: Workload) -> Iterator[FieldError]:
    yield from validate_metadata_update(new.metadata, old.metadata)
    yield from _validate_workload_spec(new.spec)
    yield from validate_unchanged(new.spec, old.spec, SPEC, "controller_ref")
    before = {template.name: template for template in old.spec.pod_group_templates or ()}
    templates, path = new.spec.pod_group_templates or (), SPEC.child("podGroupTemplates")
    for position, template in enumerate(templates):
        if template.name not in before:
            yield forbidden(path.index(position), "item may not be added")
        else:
            yield from _validate_shared_update(template, before[template.name], path.index(position))
    if before.keys() - {template.name for template in templates}:
        yield forbidden(path, "item may not be removed")


def _validate_group_spec(spec: PodGroupSpec) -> Iterator[FieldError]:
    if spec.parent_composite_pod_group_name is not None:
        path = SPEC.child("parentCompositePodGroupName")
        yield from validate_dns_subdomain(spec.parent_composite_pod_group_name, path)
        if spec.workload_ref is None:
            yield required(SPEC.child("workloadRef"), "must be set when parentCompositePodGroupName is set")
    if spec.workload_ref is not None:
        path = SPEC.child("workloadRef")
        yield from validate_required_subdomain(spec.workload_ref.workload_name, path.child("workloadName"))
        yield from validate_required_label(spec.workload_ref.template_name, path.child("templateName"))
    if spec.disruption_mode is None:
        yield required(SPEC.child("disruptionMode"))
    yield from _validate_shared(spec, SPEC)


def _validate_workload_spec(spec: WorkloadSpec) -> Iterator[FieldError]:
    templates, path = spec.pod_group_templates or (), SPEC.child("podGroupTemplates")
    if not templates:
        yield invalid(SPEC, "", "must specify one of: `podGroupTemplates`, `compositePodGroupTemplates`")
    if spec.controller_ref is not None:
        where = SPEC.child("controllerRef")
        if spec.controller_ref.api_group:
            yield from validate_dns_subdomain(spec.controller_ref.api_group, where.child("apiGroup"))
        yield from _validate_path_segment(spec.controller_ref.kind, where.child("kind"))
        yield from _validate_path_segment(spec.controller_ref.name, where.child("name"))
    if len({(template.priority_class_name, template.priority) for template in templates}) > 1:
        yield invalid(SPEC, None, "all templates must have the same priority and priorityClassName")
    if len(templates) > TEMPLATES_COUNT_MAX:
        yield too_many(path, len(templates), TEMPLATES_COUNT_MAX)
        return
    for position, template in enumerate(templates):
        yield from validate_required_label(template.name, path.index(position).child("name"))
        yield from _validate_shared(template, path.index(position))
    yield from validate_unique(templates, path, lambda template: template.name)
    # Kubernetes checks the names a second time, across composite templates.
    seen: set[str] = set()
    for position, template in enumerate(templates):
        if template.name in seen:
            yield duplicate(path.index(position).child("name"), template.name)
        seen.add(template.name)


def _validate_path_segment(text: str, path: FieldPath) -> Iterator[FieldError]:
    if text:
        yield from validate_format(text, path, names.path_segment)
    else:
        yield required(path)


# --- What a group and a template of one have in common ------------------------------------------------------------


def _validate_shared(spec: PodGroupSpec | PodGroupTemplate, path: FieldPath) -> Iterator[FieldError]:
    yield from validate_policy(spec.scheduling_policy, path.child("schedulingPolicy"))
    if spec.scheduling_constraints is not None:
        yield from validate_constraints(spec.scheduling_constraints, path.child("schedulingConstraints"))
    yield from validate_group_claims(spec.resource_claims, path.child("resourceClaims"))
    if spec.disruption_mode is not None:
        yield from validate_disruption_mode(spec.disruption_mode, path.child("disruptionMode"))
    if spec.priority_class_name:
        yield from validate_dns_subdomain(spec.priority_class_name, path.child("priorityClassName"))
    if spec.priority is not None and spec.priority > USERS_HIGHEST:
        yield invalid(path.child("priority"), spec.priority, f"must be less than or equal to {USERS_HIGHEST}")
    if spec.preemption_policy is not None:
        yield from validate_choice(spec.preemption_policy, path.child("preemptionPolicy"), PREEMPTION_POLICIES)


def validate_policy(policy: PodGroupSchedulingPolicy, path: FieldPath) -> Iterator[FieldError]:
    yield from validate_one_of(path, basic=policy.basic, gang=policy.gang)
    if policy.gang is not None:
        where = path.child("gang", "minCount")
        if policy.gang.min_count == 0:
            yield required(where)
        elif policy.gang.min_count < 0:
            yield invalid(where, policy.gang.min_count, "must be greater than or equal to 1")


def validate_constraints(constraints: PodGroupSchedulingConstraints, path: FieldPath) -> Iterator[FieldError]:
    path = path.child("topology")
    if len(constraints.topology) > TOPOLOGY_COUNT_MAX:
        yield too_many(path, len(constraints.topology), TOPOLOGY_COUNT_MAX)
        return
    for position, constraint in enumerate(constraints.topology):
        where = path.index(position).child("key")
        if constraint.key:
            yield from validate_format(constraint.key, where, names.label_key)
        else:
            yield required(where)


def validate_group_claims(claims: tuple[PodGroupResourceClaim, ...], path: FieldPath) -> Iterator[FieldError]:
    if len(claims) > CLAIMS_COUNT_MAX:
        yield too_many(path, len(claims), CLAIMS_COUNT_MAX)
        return
    for position, claim in enumerate(claims):
        where = path.index(position)
        references = {
            "resourceClaimName": claim.resource_claim_name,
            "resourceClaimTemplateName": claim.resource_claim_template_name,
        }
        yield from validate_one_of(where, **references)
        yield from validate_required_label(claim.name, where.child("name"))
        for field, name in references.items():
            if name is not None:
                yield from validate_dns_subdomain(name, where.child(field))
    yield from validate_unique(claims, path, lambda claim: claim.name)


def validate_disruption_mode(mode: DisruptionMode, path: FieldPath) -> Iterator[FieldError]:
    yield from validate_one_of(path, single=mode.single, all=mode.all)


def validate_one_of(path: FieldPath, **members: object) -> Iterator[FieldError]:
    """Exactly one of these members must be set."""
    all_names = ", ".join(f"`{name}`" for name in members)
    present = [name for name, value in members.items() if value is not None]
    if not present:
        yield invalid(path, "", f"must specify one of: {all_names}")
    elif len(present) > 1:
        yield invalid(path, f"{{{', '.join(present)}}}", f"must specify exactly one of: {all_names}")


def _validate_shared_update(new: SharedT, old: SharedT, path: FieldPath) -> Iterator[FieldError]:
    """Only the number of pods of a gang may change."""
    policy, before, where = new.scheduling_policy, old.scheduling_policy, path.child("schedulingPolicy")
    if policy.basic != before.basic:
        yield invalid(where.child("basic"), to_builtins(policy.basic), IMMUTABLE)
    if (policy.gang is None) != (before.gang is None):
        happened = "set once created" if before.gang is None else "cleared once set"
        yield invalid(where.child("gang"), None, f"field cannot be {happened}")
    fields = ("scheduling_constraints", "resource_claims", "disruption_mode", "priority_class_name", "priority")
    yield from validate_unchanged(new, old, path, *fields, "preemption_policy")


def validate_unchanged(new: object, old: object, path: FieldPath, *fields: str) -> Iterator[FieldError]:
    for field in fields:
        value = getattr(new, field)
        if value != getattr(old, field):
            first, *rest = field.split("_")
            yield invalid(path.child(first + "".join(map(str.title, rest))), to_builtins(value), IMMUTABLE)
