"""The immutable fields of a Job: its selector and its pod template.

The spec is compared as plain JSON, since a template has more fields than we model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from dralloc.kube.batch_v1 import JobSchedulingConfiguration, JobSpec
from dralloc.kube.validation.pod import SPEC
from dralloc.kube.validation.pod_group import (
    validate_constraints,
    validate_disruption_mode,
    validate_group_claims,
    validate_one_of,
    validate_unchanged,
)
from dralloc.primitives.field_errors import FieldError, FieldPath, forbidden, invalid

Spec = Mapping[str, Any]

FIXED: Final = (
    "selector",
    "completionMode",
    "podFailurePolicy",
    "backoffLimitPerIndex",
    "managedBy",
    "successPolicy",
)


def validate_job_spec_update(new: Spec, old: Spec, *, has_pods: bool) -> Iterator[FieldError]:
    yield from _validate_completions(new, old)
    before, after = old.get("template") or {}, new.get("template") or {}
    if old.get("suspend") and not has_pods:
        before, after = _without_placement(before), _without_placement(after)
    if after != before:
        yield _immutable(SPEC.child("template"), new.get("template"))
    for field in FIXED:
        if new.get(field) != old.get(field):
            yield _immutable(SPEC.child(field), new.get(field))


def _validate_completions(new: Spec, old: Spec) -> Iterator[FieldError]:
    """The completions of an indexed job change only together with its parallelism."""
    path, completions = SPEC.child("completions"), new.get("completions")
    if completions == old.get("completions"):
        return
    if new.get("completionMode") != "Indexed":
        yield _immutable(path, completions)
    elif completions != new.get("parallelism"):
        yield invalid(path, completions, f"can only be modified in tandem with {SPEC.child('parallelism')}")


def _without_placement(template: Spec) -> dict[str, Any]:
    """Returns the template without the fields that queues may set while a job is suspended: node placement and resource
    requests.
    """
    metadata, spec = dict(template.get("metadata") or {}), dict(template.get("spec") or {})
    affinity = dict(spec.pop("affinity", None) or {})
    for members, names in (
        (metadata, ("labels", "annotations")),
        (affinity, ("nodeAffinity",)),
        (spec, ("nodeSelector", "tolerations", "schedulingGates")),
    ):
        for name in names:
            members.pop(name, None)
    for name in ("containers", "initContainers"):
        spec[name] = [_without_amounts(container) for container in spec.get(name) or ()]
    return {**template, "metadata": metadata, "spec": {**spec, "affinity": affinity}}


def _without_amounts(container: Any) -> Any:
    if not isinstance(container, Mapping):
        return container
    resources = {name: value for name, value in (container.get("resources") or {}).items() if name == "claims"}
    return {**container, "resources": resources}


def _immutable(path: FieldPath, value: object) -> FieldError:
    return invalid(path, value, "field is immutable")


# --- Job groups -----------------------------------------------------------------------------------------------------
# `spec.scheduling` of a Job: what it may say, and that only the size of its gang may change.


PATH: Final = SPEC.child("scheduling")
POLICY: Final = PATH.child("schedulingPolicy")


def validate_job_scheduling(spec: JobSpec, *, is_enabled: bool) -> Iterator[FieldError]:
    """`is_enabled`: the gate WorkloadWithJob."""
    scheduling = spec.scheduling
    if scheduling is None:
        return
    if not is_enabled:
        yield forbidden(PATH, "requires the feature gate WorkloadWithJob")
        return
    if scheduling.scheduling_policy is not None:
        yield from _validate_policy(spec, scheduling)
    if scheduling.scheduling_constraints is not None:
        yield from validate_constraints(scheduling.scheduling_constraints, PATH.child("schedulingConstraints"))
    if scheduling.disruption_mode is not None:
        yield from validate_disruption_mode(scheduling.disruption_mode, PATH.child("disruptionMode"))
    yield from validate_group_claims(scheduling.resource_claims, PATH.child("resourceClaims"))


def _validate_policy(spec: JobSpec, scheduling: JobSchedulingConfiguration) -> Iterator[FieldError]:
    policy = scheduling.scheduling_policy
    assert policy is not None, "the policy is there"
    yield from validate_one_of(POLICY, basic=policy.basic, gang=policy.gang)
    count = policy.gang.min_count if policy.gang is not None else None
    if count is None:
        return
    where, most = POLICY.child("gang", "minCount"), 1 if spec.parallelism is None else spec.parallelism
    if count < 1:
        yield invalid(where, count, "must be greater than or equal to 1")
    if count > most:
        yield invalid(where, count, f"must not be greater than parallelism ({most})")


def validate_job_scheduling_update(new: JobSpec, old: JobSpec) -> Iterator[FieldError]:
    after, before = new.scheduling, old.scheduling
    if after is None or before is None:
        yield from _validate_presence(PATH, after, before)
        return
    policy, old_policy = after.scheduling_policy, before.scheduling_policy
    if policy is None or old_policy is None:
        yield from _validate_presence(POLICY, policy, old_policy)
    elif (policy.gang is None) != (old_policy.gang is None):
        yield invalid(POLICY, None, "basic and gang cannot be exchanged; only gang.minCount may be updated")
    yield from validate_unchanged(after, before, PATH, "scheduling_constraints", "disruption_mode", "resource_claims")


def _validate_presence(path: FieldPath, new: object, old: object) -> Iterator[FieldError]:
    if new is not None and old is None:
        yield invalid(path, None, "field cannot be set once created")
    elif new is None and old is not None:
        yield invalid(path, None, "field cannot be cleared once set")
