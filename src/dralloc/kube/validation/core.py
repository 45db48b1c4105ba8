"""Nodes, quotas, events, leases and jobs: the rules that users encounter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from dralloc.kube.apps_v1 import DaemonSet, Deployment, DeploymentSpec
from dralloc.kube.batch_v1 import Job
from dralloc.kube.coordination_v1 import Lease
from dralloc.kube.core_v1 import Event, Node, ResourceQuota
from dralloc.kube.scheduling_v1 import PREEMPTION_POLICIES, SYSTEM_CLASSES, SYSTEM_PREFIX, USERS_HIGHEST, PriorityClass
from dralloc.kube.validation.formats import validate_choice, validate_format
from dralloc.kube.validation.pod import TAINT_EFFECTS, validate_pod_spec
from dralloc.primitives import names
from dralloc.primitives.field_errors import FieldError, FieldPath, duplicate, forbidden, invalid, required
from dralloc.primitives.quantity import Quantity

SPEC: Final = FieldPath.of("spec")


def validate_node_taints(node: Node) -> Iterator[FieldError]:
    seen: set[tuple[str, str]] = set()
    for position, taint in enumerate(node.spec.taints):
        path = SPEC.child("taints").index(position)
        yield from validate_format(taint.key, path.child("key"), names.label_key)
        yield from validate_format(taint.value, path.child("value"), names.label_value)
        if not taint.effect:
            yield required(path.child("effect"))
        else:
            yield from validate_choice(taint.effect, path.child("effect"), TAINT_EFFECTS)
        if (taint.key, taint.effect) in seen:
            yield duplicate(path, taint.key)
        seen.add((taint.key, taint.effect))


def validate_resource_quota_spec(quota: ResourceQuota) -> Iterator[FieldError]:
    yield from _validate_amounts(quota.spec.hard, SPEC.child("hard"))


def validate_resource_quota_update(new: ResourceQuota, old: ResourceQuota) -> Iterator[FieldError]:
    if set(new.spec.scopes) != set(old.spec.scopes):
        yield invalid(SPEC.child("scopes"), list(new.spec.scopes), "field is immutable")


def validate_resource_quota_status(quota: ResourceQuota) -> Iterator[FieldError]:
    status = FieldPath.of("status")
    yield from _validate_amounts(quota.status.hard, status.child("hard"))
    yield from _validate_amounts(quota.status.used, status.child("used"))


def _validate_amounts(amounts: Mapping[str, Quantity], path: FieldPath) -> Iterator[FieldError]:
    for name, amount in amounts.items():
        yield from validate_format(name, path.key(name), names.label_key)
        if amount.sign < 0:
            yield invalid(path.key(name), amount, "must be greater than or equal to 0")


def validate_event(event: Event) -> Iterator[FieldError]:
    about, namespace = event.involved_object, event.metadata.namespace
    # Events about cluster-scoped objects are in the default namespace.
    if about.namespace != namespace and (about.namespace or namespace not in ("default", "kube-system")):
        yield invalid(
            FieldPath.of("involvedObject", "namespace"), about.namespace, "does not match the namespace of the event"
        )


def validate_lease(lease: Lease) -> Iterator[FieldError]:
    spec = lease.spec
    if spec.lease_duration_seconds is not None and spec.lease_duration_seconds <= 0:
        yield invalid(SPEC.child("leaseDurationSeconds"), spec.lease_duration_seconds, "must be greater than 0")
    if spec.lease_transitions is not None and spec.lease_transitions < 0:
        yield invalid(SPEC.child("leaseTransitions"), spec.lease_transitions, "must be greater than or equal to 0")


def validate_job(job: Job) -> Iterator[FieldError]:
    for field, number in (
        ("parallelism", job.spec.parallelism),
        ("completions", job.spec.completions),
        ("backoffLimit", job.spec.backoff_limit),
        ("ttlSecondsAfterFinished", job.spec.ttl_seconds_after_finished),
    ):
        if number is not None and number < 0:
            yield invalid(SPEC.child(field), number, "must be greater than or equal to 0")
    template = SPEC.child("template", "spec")
    yield from validate_pod_spec(job.spec.template.spec, template)
    if job.spec.template.spec.restart_policy not in ("OnFailure", "Never"):
        policy = job.spec.template.spec.restart_policy
        yield from validate_choice(policy, template.child("restartPolicy"), ("OnFailure", "Never"))


# --- Priority class -------------------------------------------------------------------------------------------------
# Priority classes: allowed names and values, and immutable fields.


NAME: Final = FieldPath.of("metadata", "name")
VALUE: Final = FieldPath.of("value")
PREEMPTION_POLICY: Final = FieldPath.of("preemptionPolicy")


def validate_priority_class(new: PriorityClass) -> Iterator[FieldError]:
    name = new.metadata.name
    if name.startswith(SYSTEM_PREFIX):
        if new.value != SYSTEM_CLASSES.get(name) or new.global_default:
            yield forbidden(NAME, f"names that begin with '{SYSTEM_PREFIX}' are reserved for the system")
    elif new.value > USERS_HIGHEST:
        yield forbidden(VALUE, f"the highest value of a user-defined class is {USERS_HIGHEST}")
    if new.preemption_policy is not None:
        yield from validate_choice(new.preemption_policy, PREEMPTION_POLICY, PREEMPTION_POLICIES)


def validate_priority_class_update(new: PriorityClass, old: PriorityClass) -> Iterator[FieldError]:
    """Pods keep the priority of their creation, so a class must not change its meaning."""
    if new.value != old.value:
        yield forbidden(VALUE, "may not be changed in an update")
    if new.preemption_policy != old.preemption_policy:
        yield invalid(PREEMPTION_POLICY, new.preemption_policy, "field is immutable")


# --- Installation ---------------------------------------------------------------------------------------------------
# Workloads that install programs.


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
