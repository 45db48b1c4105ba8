"""`spec.scheduling` of a Job: what it may say, and that only the size of its gang may change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dralloc.api.batch_v1 import JobSchedulingConfiguration, JobSpec
from dralloc.api.validation.pod import SPEC
from dralloc.api.validation.pod_group import (
    validate_constraints,
    validate_disruption_mode,
    validate_group_claims,
    validate_one_of,
    validate_unchanged,
)
from dralloc.primitives.field_errors import FieldError, FieldPath, forbidden, invalid

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
