"""The write strategy of Jobs, which are modelled only in part."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dralloc.kube.batch_v1 import Job
from dralloc.kube.core_strategies import Rules, UnstructuredStrategy, with_members, without_gated_members
from dralloc.kube.pod_defaults import default_template_spec
from dralloc.kube.unstructured_object import UnstructuredObject, view
from dralloc.kube.validation import core
from dralloc.kube.validation.job_update import (
    validate_job_scheduling,
    validate_job_scheduling_update,
    validate_job_spec_update,
)
from dralloc.primitives.features import FeatureGates
from dralloc.primitives.field_errors import FieldError


class JobStrategy(UnstructuredStrategy):
    rules = Rules(Job, core.validate_job, status=core.validate_job)
    has_generation = True

    def default(self, obj: UnstructuredObject) -> UnstructuredObject:
        spec = {
            "parallelism": 1,
            "backoffLimit": 6,
            "completionMode": "NonIndexed",
            "suspend": False,
            **obj.member("spec"),
        }
        if "parallelism" not in obj.member("spec"):
            spec.setdefault("completions", 1)
        spec.setdefault("podReplacementPolicy", "Failed" if spec.get("podFailurePolicy") else "TerminatingOrFailed")
        template = spec.get("template") or {}
        spec["template"] = {**template, "spec": default_template_spec(template.get("spec") or {})}
        return with_members(obj, spec=spec)

    def prepare_create(self, new: UnstructuredObject) -> UnstructuredObject:
        new = _without_group_in_template(super().prepare_create(new), None, self.admission.gates)
        return new if new.member("spec").get("manualSelector") else with_members(new, spec=_selecting_own_pods(new))

    def prepare_update(self, new: UnstructuredObject, old: UnstructuredObject) -> UnstructuredObject:
        return super().prepare_update(_without_group_in_template(new, old, self.admission.gates), old)

    def validate_create(self, new: UnstructuredObject) -> Iterator[FieldError]:
        yield from super().validate_create(new)
        is_enabled = "WorkloadWithJob" in self.admission.gates
        yield from validate_job_scheduling(view(new, Job).spec, is_enabled=is_enabled)

    def validate_update(self, new: UnstructuredObject, old: UnstructuredObject) -> Iterator[FieldError]:
        yield from super().validate_update(new, old)
        has_pods = bool(old.member("status").get("active"))
        yield from validate_job_spec_update(new.member("spec"), old.member("spec"), has_pods=has_pods)
        spec, before = view(new, Job).spec, view(old, Job).spec
        yield from validate_job_scheduling_update(spec, before)
        # What was stored while the gate was on stays.
        is_enabled = "WorkloadWithJob" in self.admission.gates or before.scheduling is not None
        yield from validate_job_scheduling(spec, is_enabled=is_enabled)


def _without_group_in_template(
    job: UnstructuredObject, old: UnstructuredObject | None, gates: FeatureGates
) -> UnstructuredObject:
    template, before = job.member("spec").get("template") or {}, _pod_spec(old)
    spec = template.get("spec") or {}
    kept = without_gated_members(spec, before, gates)
    if kept is spec:
        return job
    return with_members(job, spec={**job.member("spec"), "template": {**template, "spec": kept}})


def _pod_spec(job: UnstructuredObject | None) -> dict[str, Any]:
    template = (job.member("spec").get("template") if job is not None else None) or {}
    return template.get("spec") or {}


def _selecting_own_pods(job: UnstructuredObject) -> dict[str, Any]:
    """The spec of a job whose pods have its UID as a label, by which it selects them."""
    spec, uid, name = job.member("spec"), job.metadata.uid, job.metadata.name
    template = spec.get("template") or {}
    metadata = template.get("metadata") or {}
    labels = {
        **(metadata.get("labels") or {}),
        "batch.kubernetes.io/controller-uid": uid,
        "batch.kubernetes.io/job-name": name,
        "controller-uid": uid,
        "job-name": name,
    }
    selector = spec.get("selector") or {}
    match = {**(selector.get("matchLabels") or {}), "batch.kubernetes.io/controller-uid": uid}
    return {
        **spec,
        "selector": {**selector, "matchLabels": match},
        "template": {**template, "metadata": {**metadata, "labels": labels}},
    }
