"""`batch/v1`: the fields that we read of a Job, the most common workload whose pods share a claim."""

from __future__ import annotations

from typing import ClassVar, Final

from msgspec import field

from dralloc.kube.meta_v1 import ApiObject, ObjectMeta
from dralloc.kube.pod_v1 import PodSpec
from dralloc.kube.scheduling_v1beta1 import (
    BasicSchedulingPolicy,
    DisruptionMode,
    PodGroupResourceClaim,
    PodGroupSchedulingConstraints,
)
from dralloc.kube.wire import Int32, Int64, Time, Wire, printed

GROUP: Final = "batch"


class PodTemplateSpec(Wire):
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: PodSpec = field(default_factory=lambda: PodSpec())


class WorkloadPodGroupGangSchedulingPolicy(Wire):
    # The job's parallelism if it is absent.
    min_count: Int32 | None = None


class WorkloadPodGroupSchedulingPolicy(Wire):
    """Exactly one policy."""

    basic: BasicSchedulingPolicy | None = None
    gang: WorkloadPodGroupGangSchedulingPolicy | None = None


class JobSchedulingConfiguration(Wire):
    """How the pods of a job are scheduled together: what the PodGroup of the job gets."""

    scheduling_policy: WorkloadPodGroupSchedulingPolicy | None = None
    scheduling_constraints: PodGroupSchedulingConstraints | None = None
    disruption_mode: DisruptionMode | None = None
    resource_claims: tuple[PodGroupResourceClaim, ...] = ()


class JobSpec(Wire):
    UNREAD: ClassVar = (
        "backoffLimitPerIndex",
        "manualSelector",
        "maxFailedIndexes",
        "podFailurePolicy",
        "podReplacementPolicy",
        "selector",
        "successPolicy",
    )

    parallelism: Int32 | None = None
    completions: Int32 | None = None
    completion_mode: str | None = None
    backoff_limit: Int32 | None = None
    active_deadline_seconds: Int64 | None = None
    suspend: bool | None = None
    managed_by: str | None = None
    ttl_seconds_after_finished: Int32 | None = None
    scheduling: JobSchedulingConfiguration | None = None
    template: PodTemplateSpec = field(default_factory=lambda: PodTemplateSpec())


class JobCondition(Wire):
    type: str = printed("")
    status: str = printed("")
    last_probe_time: Time | None = None
    last_transition_time: Time | None = None
    reason: str = ""
    message: str = ""


class JobStatus(Wire):
    UNREAD: ClassVar = ("failedIndexes", "ready", "uncountedTerminatedPods")

    conditions: tuple[JobCondition, ...] = ()
    active: Int32 = 0
    succeeded: Int32 = 0
    failed: Int32 = 0
    terminating: Int32 | None = None
    completed_indexes: str = ""
    start_time: Time | None = None
    completion_time: Time | None = None


class Job(ApiObject):
    spec: JobSpec = field(default_factory=lambda: JobSpec())
    status: JobStatus = field(default_factory=lambda: JobStatus())

    @property
    def is_finished(self) -> bool:
        return any(
            condition.type in ("Complete", "Failed") and condition.status == "True"
            for condition in self.status.conditions
        )
