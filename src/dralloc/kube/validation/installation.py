"""Workloads that install programs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dralloc.kube.apps_v1 import DaemonSet, Deployment, DeploymentSpec
from dralloc.kube.validation.formats import validate_choice
from dralloc.kube.validation.pod import validate_pod_spec
from dralloc.primitives.field_errors import FieldError, FieldPath, invalid, required

SPEC: Final = FieldPath.of("spec")

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
