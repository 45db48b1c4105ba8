"""The write strategies of `scheduling.k8s.io/v1beta1`: workloads and groups of pods."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from dralloc.kube.batch_v1 import Job
from dralloc.kube.core_strategies import Rules, UnstructuredStrategy, with_members, without_gated_members
from dralloc.kube.gated_fields import GatedFields, drop_disabled
from dralloc.kube.pod_defaults import default_template_spec
from dralloc.kube.scheduling_v1 import PREEMPT_LOWER
from dralloc.kube.scheduling_v1beta1 import (
    PROTECTION_FINALIZER,
    DisruptionMode,
    PodGroup,
    PodGroupSpec,
    PodGroupStatus,
    PodGroupTemplate,
    SingleDisruptionMode,
    Workload,
)
from dralloc.kube.strategy import StatusStrategy, Strategy
from dralloc.kube.unstructured_object import UnstructuredObject, view
from dralloc.kube.validation import core
from dralloc.kube.validation.job_update import (
    validate_job_scheduling,
    validate_job_scheduling_update,
    validate_job_spec_update,
)
from dralloc.kube.validation.pod_group import (
    validate_pod_group,
    validate_pod_group_status,
    validate_pod_group_update,
    validate_workload,
    validate_workload_update,
)
from dralloc.primitives.features import FeatureGates
from dralloc.primitives.field_errors import FieldError

_PREEMPTION_POLICY: Final = "PodGroupPreemptionPolicy"

SpecT = TypeVar("SpecT", PodGroupSpec, PodGroupTemplate)


def _features(_: type[SpecT]) -> tuple[GatedFields[SpecT], ...]:
    return (
        GatedFields(
            ("TopologyAwareWorkloadScheduling",),
            lambda spec: spec.scheduling_constraints is not None,
            lambda spec: replace(spec, scheduling_constraints=None),
        ),
        GatedFields(
            ("DRAWorkloadResourceClaims",),
            lambda spec: bool(spec.resource_claims),
            lambda spec: replace(spec, resource_claims=()),
        ),
        GatedFields(
            (_PREEMPTION_POLICY,),
            lambda spec: spec.preemption_policy is not None,
            lambda spec: replace(spec, preemption_policy=None),
        ),
    )


_SPEC_FEATURES: Final = _features(PodGroupSpec)
_TEMPLATE_FEATURES: Final = _features(PodGroupTemplate)
_STATUS_FEATURES: Final[tuple[GatedFields[PodGroup], ...]] = (
    GatedFields(
        ("DRAWorkloadResourceClaims",),
        lambda group: bool(group.spec.resource_claims or group.status.resource_claim_statuses),
        lambda group: replace(group, status=replace(group.status, resource_claim_statuses=())),
    ),
)


class PodGroupStrategy(StatusStrategy[PodGroup]):
    def default(self, obj: PodGroup) -> PodGroup:
        spec = obj.spec
        if spec.disruption_mode is None:
            spec = replace(spec, disruption_mode=DisruptionMode(single=SingleDisruptionMode()))
        if spec.preemption_policy is None and _PREEMPTION_POLICY in self.admission.gates:
            spec = replace(spec, preemption_policy=PREEMPT_LOWER)
        return obj if spec is obj.spec else replace(obj, spec=spec)

    def prepare_create(self, new: PodGroup) -> PodGroup:
        """A group is protected from removal while pods that run are its members."""
        finalizers = new.metadata.finalizers
        if PROTECTION_FINALIZER not in finalizers:
            new = replace(new, metadata=replace(new.metadata, finalizers=(*finalizers, PROTECTION_FINALIZER)))
        spec = _without_parent(drop_disabled(_SPEC_FEATURES, new.spec, None, self.admission.gates))
        return replace(new, spec=spec, status=PodGroupStatus())

    def validate_create(self, new: PodGroup) -> Iterator[FieldError]:
        return validate_pod_group(new)

    def prepare_update(self, new: PodGroup, old: PodGroup) -> PodGroup:
        spec = _without_parent(drop_disabled(_SPEC_FEATURES, new.spec, old.spec, self.admission.gates))
        return replace(new, spec=spec, status=old.status)

    def validate_update(self, new: PodGroup, old: PodGroup) -> Iterator[FieldError]:
        # An object that was stored while a gate was off has no default of its fields.
        return validate_pod_group_update(new, self.default(old))

    def prepare_status(self, new: PodGroup, old: PodGroup) -> PodGroup:
        return drop_disabled(_STATUS_FEATURES, replace(new, spec=old.spec), old, self.admission.gates)

    def validate_status(self, new: PodGroup, old: PodGroup) -> Iterator[FieldError]:
        return validate_pod_group_status(new, old)


def _without_parent(spec: PodGroupSpec) -> PodGroupSpec:
    """Composite groups do not exist here, as in Kubernetes while their gate is off."""
    return spec if spec.parent_composite_pod_group_name is None else replace(spec, parent_composite_pod_group_name=None)


class WorkloadStrategy(Strategy[Workload]):
    def prepare_create(self, new: Workload) -> Workload:
        return _without_disabled(new, None, self.admission.gates)

    def validate_create(self, new: Workload) -> Iterator[FieldError]:
        return validate_workload(new)

    def prepare_update(self, new: Workload, old: Workload) -> Workload:
        return _without_disabled(new, old, self.admission.gates)

    def validate_update(self, new: Workload, old: Workload) -> Iterator[FieldError]:
        return validate_workload_update(new, old)


def _without_disabled(new: Workload, old: Workload | None, gates: FeatureGates) -> Workload:
    """A template keeps what the stored template of the same name uses."""
    before = {} if old is None else {template.name: template for template in old.spec.pod_group_templates or ()}
    templates = tuple(
        drop_disabled(_TEMPLATE_FEATURES, template, before.get(template.name), gates)
        for template in new.spec.pod_group_templates or ()
    )
    spec = replace(new.spec, pod_group_templates=templates or None, composite_pod_group_templates=())
    return new if spec == new.spec else replace(new, spec=spec)


# --- Job strategy ---------------------------------------------------------------------------------------------------
# The write strategy of Jobs, which are modelled only in part.


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
