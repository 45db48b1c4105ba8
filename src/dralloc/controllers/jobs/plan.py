"""Which pods a job creates or deletes, and its status.

As in Kubernetes, a job ends in two steps: first the decision is written (`SuccessCriteriaMet`, `FailureTarget`), then, when
no pod is left, the end (`Complete`, `Failed`). After a crash in between, the decision stands in the status.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from msgspec.structs import replace

from dralloc.controllers.claim_creation import CreateClaim, ReportProblem, claim_document, labels_of_template
from dralloc.controllers.jobs.pod_tracker import PodCounts
from dralloc.kube.batch_v1 import GROUP, Job, JobCondition, JobStatus
from dralloc.kube.meta_v1 import ApiObject
from dralloc.kube.pod_claims import controller_of
from dralloc.kube.resource_v1 import ResourceClaim
from dralloc.kube.timestamps import parse_timestamp, print_timestamp
from dralloc.kube.unstructured_object import UnstructuredObject

INDEXED: Final = "Indexed"
NON_INDEXED: Final = "NonIndexed"

# Values of `managedBy` for which this controller runs the job.
MANAGERS: Final = frozenset({None, "kubernetes.io/job-controller", "dralloc.io/job-controller"})
# Fields that change how a job runs. A job with one of them fails instead of ignoring it.
NOT_SUPPORTED: Final = ("podFailurePolicy", "successPolicy", "backoffLimitPerIndex", "maxFailedIndexes")

# Pods created or deleted per plan, so that changes of the job take effect in between.
PODS_AT_ONCE: Final = 500
# The minimum between two writes that change only numbers.
STATUS_PAUSE: Final = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class CreatePods:
    count: int


@dataclass(frozen=True, slots=True)
class DeletePods:
    """Delete this many active pods."""

    count: int


@dataclass(frozen=True, slots=True)
class WriteJobStatus:
    status: JobStatus


@dataclass(frozen=True, slots=True)
class ReleaseClaims:
    """Remove the job from the `reservedFor` lists of claims."""


@dataclass(frozen=True, slots=True)
class DeleteJob:
    """The job's `ttlSecondsAfterFinished` has passed."""


JobAction = CreatePods | DeletePods | WriteJobStatus | ReleaseClaims | DeleteJob


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFacts:
    """What the plan depends on besides the job."""

    counts: PodCounts
    # The succeeded indexes as text. Lazy, because there may be ten thousand.
    completed_indexes: Callable[[], str] = str
    # When failed pods may be replaced.
    resume_at: datetime | None = None
    # When the status was last written.
    written_at: datetime | None = None
    # A field of the spec that is not supported.
    not_supported: str | None = None
    holds_claims: bool = False


@dataclass(frozen=True, slots=True)
class JobPlan:
    actions: tuple[JobAction, ...] = ()
    look_again_at: datetime | None = None


def unsupported_field(spec: dict[str, Any]) -> str | None:
    """The first field of a job's spec that is not supported."""
    if spec.get("completionMode") not in (None, INDEXED, NON_INDEXED):
        return "completionMode"
    if named := next((name for name in NOT_SUPPORTED if spec.get(name) is not None), None):
        return named
    # Last, because a podFailurePolicy implies another value.
    return "podReplacementPolicy" if spec.get("podReplacementPolicy") not in (None, "TerminatingOrFailed") else None


def plan_job(job: Job, facts: JobFacts, now: datetime) -> JobPlan:
    if job.is_finished:
        return _plan_finished(job, facts, now)
    if job.metadata.deletion_timestamp is not None:
        return JobPlan()
    status = _next_status(job, facts, now)
    moments: list[datetime | None] = [_deadline(job)]
    actions: list[JobAction] = []
    # The status comes first: decisions are written before they are carried out.
    if status != job.status:
        write_at = now if facts.written_at is None else facts.written_at + STATUS_PAUSE
        if write_at <= now or status.conditions != job.status.conditions:
            actions.append(WriteJobStatus(replace(status, completed_indexes=facts.completed_indexes())))
        else:
            moments.append(write_at)
    if _decision(status) is not None or job.spec.suspend:
        actions.extend(_plan_deletion_of_pods(facts))
    else:
        actions.extend(_plan_pods(job, facts, now))
        moments.append(facts.resume_at)
    return JobPlan(tuple(actions), _next_moment(moments, now))


def _plan_finished(job: Job, facts: JobFacts, now: datetime) -> JobPlan:
    """Release the claims when no pod is left, and delete the job after its `ttlSecondsAfterFinished`."""
    actions: list[JobAction] = [*_plan_deletion_of_pods(facts)]
    if facts.holds_claims and not (facts.counts.active or facts.counts.terminating):
        actions.append(ReleaseClaims())
    ttl_s = job.spec.ttl_seconds_after_finished
    if ttl_s is None or job.metadata.deletion_timestamp is not None:
        return JobPlan(tuple(actions))
    gone_at = _finished_at(job, now) + timedelta(seconds=ttl_s)
    if gone_at <= now:
        return JobPlan((*actions, DeleteJob()))
    return JobPlan(tuple(actions), gone_at)


def _plan_deletion_of_pods(facts: JobFacts) -> Iterator[JobAction]:
    if facts.counts.active:
        yield DeletePods(min(facts.counts.active, PODS_AT_ONCE))


def _plan_pods(job: Job, facts: JobFacts, now: datetime) -> Iterator[JobAction]:
    missing = _wanted(job, facts.counts) - facts.counts.active
    if missing < 0:
        yield DeletePods(min(-missing, PODS_AT_ONCE))
    elif missing > 0 and (facts.resume_at is None or facts.resume_at <= now):
        yield CreatePods(min(missing, PODS_AT_ONCE))


def _wanted(job: Job, counts: PodCounts) -> int:
    """The number of pods that should be active."""
    parallelism = 1 if job.spec.parallelism is None else job.spec.parallelism
    if job.spec.completions is None:
        # A work queue: after the first success no pods are added, and the others finish.
        return parallelism if not counts.succeeded else min(counts.active, parallelism)
    return min(parallelism, max(job.spec.completions - counts.succeeded, 0))


# --- Status -----------------------------------------------------------------------------------------------------


def _next_status(job: Job, facts: JobFacts, now: datetime) -> JobStatus:
    counts, status = facts.counts, job.status
    status = replace(
        status,
        active=counts.active,
        succeeded=counts.succeeded,
        failed=counts.failed,
        terminating=counts.terminating or None,
        start_time=None if job.spec.suspend else status.start_time or print_timestamp(now),
    )
    status = _with_suspension(job, status, now)
    decided = _decision(status) or _decide(job, status, facts, now)
    if decided is None:
        return status
    status = _with_condition(status, decided)
    if counts.active or counts.terminating:
        return status
    return _with_end(status, decided, now)


def _decision(status: JobStatus) -> JobCondition | None:
    return next(
        (
            entry
            for entry in status.conditions
            if entry.type in ("SuccessCriteriaMet", "FailureTarget") and entry.status == "True"
        ),
        None,
    )


def _decide(job: Job, status: JobStatus, facts: JobFacts, now: datetime) -> JobCondition | None:
    """The condition that ends the job, or None if it continues."""
    counts = facts.counts
    if facts.not_supported is not None:
        return _condition("FailureTarget", "NotSupported", f"spec.{facts.not_supported} is not supported", now)
    limit = 6 if job.spec.backoff_limit is None else job.spec.backoff_limit
    if counts.failed > limit:
        message = f"{counts.failed} pods failed, more than the backoffLimit of {limit}"
        return _condition("FailureTarget", "BackoffLimitExceeded", message, now)
    if job.spec.completions is None:
        is_complete = counts.succeeded > 0 and not counts.active
    else:
        is_complete = counts.succeeded >= job.spec.completions
    if is_complete:
        return _condition("SuccessCriteriaMet", "CompletionsReached", f"{counts.succeeded} pods succeeded", now)
    deadline = _deadline(replace(job, status=status))
    if deadline is not None and deadline <= now:
        message = f"the job was active longer than activeDeadlineSeconds ({job.spec.active_deadline_seconds} s)"
        return _condition("FailureTarget", "DeadlineExceeded", message, now)
    return None


def _with_suspension(job: Job, status: JobStatus, now: datetime) -> JobStatus:
    is_known = any(entry.type == "Suspended" and entry.status == "True" for entry in status.conditions)
    if job.spec.suspend and not is_known:
        return _with_condition(status, _condition("Suspended", "JobSuspended", "the job is suspended", now))
    if not job.spec.suspend and is_known:
        resumed = replace(_condition("Suspended", "JobResumed", "the job is resumed", now), status="False")
        return _with_condition(status, resumed)
    return status


def _with_end(status: JobStatus, decided: JobCondition, now: datetime) -> JobStatus:
    if decided.type == "SuccessCriteriaMet":
        status = replace(status, completion_time=print_timestamp(now))
        return _with_condition(status, _condition("Complete", decided.reason, decided.message, now))
    return _with_condition(status, _condition("Failed", decided.reason, decided.message, now))


def _with_condition(status: JobStatus, condition: JobCondition) -> JobStatus:
    others = tuple(entry for entry in status.conditions if entry.type != condition.type)
    return status if condition in status.conditions else replace(status, conditions=(*others, condition))


def _condition(kind: str, reason: str, message: str, now: datetime) -> JobCondition:
    moment = print_timestamp(now)
    return JobCondition(
        type=kind, status="True", reason=reason, message=message, last_probe_time=moment, last_transition_time=moment
    )


# --- Time -------------------------------------------------------------------------------------------------------


def _deadline(job: Job) -> datetime | None:
    seconds, started = job.spec.active_deadline_seconds, job.status.start_time
    if seconds is None or started is None or job.spec.suspend:
        return None
    return parse_timestamp(started) + timedelta(seconds=min(seconds, 10**9))


def _finished_at(job: Job, now: datetime) -> datetime:
    times = [
        entry.last_transition_time
        for entry in job.status.conditions
        if entry.type in ("Complete", "Failed") and entry.last_transition_time is not None
    ]
    return parse_timestamp(times[0]) if times else now


def _next_moment(moments: list[datetime | None], now: datetime) -> datetime | None:
    return min((moment for moment in moments if moment is not None and moment > now), default=None)


# --- Plan claims ----------------------------------------------------------------------------------------------------
# Claims that a job creates for all its pods and that are reserved for the job (KEP-5194).
#
# A claim with `spec.reservedFor` contains the UID of its consumer, so it cannot be written before the job exists. A
# job therefore lists the claims that it needs in an annotation, as `claim=template` separated by commas; its pods
# refer to the claims by name.


SHARED_CLAIMS: Final = "dralloc.io/shared-claims"


ClaimAction = CreateClaim | ReportProblem


def stated_claims(job: ApiObject) -> Iterator[tuple[str, str] | ReportProblem]:
    """The claims in the job's annotation, each with its template."""
    for entry in filter(None, job.metadata.annotations.get(SHARED_CLAIMS, "").split(",")):
        claim, separator, template = (part.strip() for part in entry.partition("="))
        if separator and claim and template:
            yield claim, template
        else:
            yield ReportProblem(job, f"annotation {SHARED_CLAIMS}: {entry.strip()!r} is not of the form claim=template")


def plan_claims(
    job: UnstructuredObject,
    find_claim: Callable[[str], ResourceClaim | None],
    find_template: Callable[[str], UnstructuredObject | None],
    *,
    for_workloads: bool,
) -> Iterator[ClaimAction]:
    """The creation of the claims that the job needs and that do not exist, or why it is impossible."""
    for stated in stated_claims(job):
        if isinstance(stated, ReportProblem):
            yield stated
            continue
        claim_name, template_name = stated
        claim = find_claim(claim_name)
        if claim is not None:
            owner = controller_of(claim.metadata)
            if owner is None or owner.uid != job.metadata.uid:
                yield ReportProblem(job, f"claim {claim_name!r} exists and does not belong to this job")
            continue
        template = find_template(template_name)
        if template is None:
            yield ReportProblem(job, f"claim {claim_name!r}: resource claim template {template_name!r} not found")
        else:
            document = claim_document(job, template, {"apiVersion": "batch/v1", "kind": "Job"}, name=claim_name)
            if for_workloads:
                consumer = {"name": job.metadata.name, "uid": job.metadata.uid}
                document["spec"]["reservedFor"] = {"apiGroup": GROUP, "resource": "jobs", **consumer}
            yield CreateClaim(job, document, labels_of_template(template))
