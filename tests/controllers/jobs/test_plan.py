"""The plan of a job, as a table of sentences."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from dralloc.controllers.jobs.plan import (
    CreatePods,
    DeleteJob,
    DeletePods,
    JobAction,
    JobFacts,
    ReleaseClaims,
    WriteJobStatus,
    plan_job,
    unsupported_field,
)
from dralloc.controllers.jobs.pod_tracker import PodCounts
from dralloc.kube.batch_v1 import Job, JobCondition, JobSpec, JobStatus
from dralloc.kube.meta_v1 import ObjectMeta

NOW = datetime(2026, 1, 1, tzinfo=UTC)
STARTED = "2026-01-01T00:00:00Z"
NO_PODS = PodCounts()


def after(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def condition(kind: str, reason: str = "", status: str = "True") -> JobCondition:
    return JobCondition(type=kind, status=status, reason=reason, last_transition_time=STARTED)


def a_job(*conditions: JobCondition, shown: PodCounts = NO_PODS, **spec: Any) -> Job:
    """A started job; `shown` are the counts in its status."""
    status = JobStatus(
        active=shown.active,
        succeeded=shown.succeeded,
        failed=shown.failed,
        terminating=shown.terminating or None,
        start_time=STARTED,
        conditions=conditions,
    )
    return Job(metadata=ObjectMeta(name="j", uid="u"), spec=JobSpec(**spec), status=status)


def in_words(action: JobAction) -> str:
    match action:
        case CreatePods(count):
            return f"create {count}"
        case DeletePods(count):
            return f"delete {count}"
        case WriteJobStatus(status):
            ends = [f"{entry.type}{'' if entry.status == 'True' else '=False'}" for entry in status.conditions]
            return " ".join(["write", *ends])
        case ReleaseClaims():
            return "release claims"
        case DeleteJob():
            return "delete the job"


@dataclass(frozen=True)
class Case:
    id: str
    job: Job
    facts: JobFacts
    want: tuple[str, ...]
    look_again_s: float | None = None


def case(id: str, job: Job, count: PodCounts, *want: str, look_again_s: float | None = None, **facts: Any) -> Case:
    return Case(id, job, JobFacts(counts=count, **facts), want, look_again_s)


THREE: dict[str, Any] = {"parallelism": 3, "completions": 3}
CASES = [
    case("a new job gets its pods", a_job(**THREE), PodCounts(), "create 3"),
    case("the default parallelism is one", a_job(completions=1), PodCounts(), "create 1"),
    case("no more pods than the parallelism", a_job(parallelism=2, completions=9), PodCounts(), "create 2"),
    case(
        "no more pods than missing completions",
        a_job(parallelism=5, completions=9),
        PodCounts(succeeded=7),
        "write",
        "create 2",
    ),
    case(
        "a thousand pods are created in portions", a_job(parallelism=1000, completions=1000), PodCounts(), "create 500"
    ),
    case("all pods exist", a_job(**THREE, shown=PodCounts(3)), PodCounts(3)),
    case(
        "counts are written at intervals",
        a_job(**THREE),
        PodCounts(3),
        written_at=after(-0.4),
        look_again_s=0.6,
    ),
    case("counts are written after the interval", a_job(**THREE), PodCounts(3), "write", written_at=after(-2)),
    case("surplus pods are deleted", a_job(**THREE, shown=PodCounts(5)), PodCounts(5), "delete 2"),
    case("a failed pod is replaced", a_job(**THREE, shown=PodCounts(2, failed=1)), PodCounts(2, failed=1), "create 1"),
    case(
        "a failed pod is replaced after the backoff",
        a_job(**THREE, shown=PodCounts(2, failed=1)),
        PodCounts(2, failed=1),
        resume_at=after(8),
        look_again_s=8,
    ),
    case(
        "a terminating pod is replaced",
        a_job(**THREE, shown=PodCounts(2, terminating=1, failed=1)),
        PodCounts(2, terminating=1, failed=1),
        "create 1",
    ),
    case("all succeeded", a_job(**THREE), PodCounts(succeeded=3), "write SuccessCriteriaMet Complete"),
    case(
        "enough pods succeeded and one still runs",
        a_job(parallelism=2, completions=1),
        PodCounts(active=1, succeeded=1),
        "write SuccessCriteriaMet",
        "delete 1",
    ),
    case(
        "the last pod is terminating",
        a_job(
            condition("SuccessCriteriaMet"), parallelism=2, completions=1, shown=PodCounts(terminating=1, succeeded=1)
        ),
        PodCounts(terminating=1, succeeded=1),
    ),
    case(
        "the last pod is gone",
        a_job(
            condition("SuccessCriteriaMet"), parallelism=2, completions=1, shown=PodCounts(terminating=1, succeeded=1)
        ),
        PodCounts(succeeded=1),
        "write SuccessCriteriaMet Complete",
    ),
    case("a work queue starts with all its pods", a_job(parallelism=3), PodCounts(), "create 3"),
    case(
        "a work queue adds no pods after the first success",
        a_job(parallelism=3, shown=PodCounts(2, 0, 1)),
        PodCounts(2, 0, 1),
    ),
    case(
        "a work queue completes with its last pod",
        a_job(parallelism=3),
        PodCounts(succeeded=1, failed=2),
        "write SuccessCriteriaMet Complete",
    ),
    case(
        "nothing to do is done", a_job(parallelism=3, completions=0), PodCounts(), "write SuccessCriteriaMet Complete"
    ),
    case(
        "too many failed",
        a_job(**THREE, backoff_limit=1),
        PodCounts(active=1, failed=2),
        "write FailureTarget",
        "delete 1",
    ),
    case(
        "too many failed and none is left",
        a_job(condition("FailureTarget", "BackoffLimitExceeded"), **THREE, backoff_limit=1),
        PodCounts(failed=2),
        "write FailureTarget Failed",
    ),
    case(
        "as many failures as the backoff limit",
        a_job(**THREE, backoff_limit=2),
        PodCounts(2, failed=2),
        "write",
        "create 1",
    ),
    case("the default backoff limit is six", a_job(**THREE), PodCounts(failed=7), "write FailureTarget Failed"),
    case(
        "the deadline has passed",
        a_job(**THREE, active_deadline_seconds=0),
        PodCounts(3),
        "write FailureTarget",
        "delete 3",
    ),
    case(
        "the deadline has not passed",
        a_job(**THREE, active_deadline_seconds=90, shown=PodCounts(3)),
        PodCounts(3),
        look_again_s=90,
    ),
    case(
        "a job with an unsupported field fails",
        a_job(**THREE),
        PodCounts(),
        "write FailureTarget Failed",
        not_supported="podFailurePolicy",
    ),
    case("a suspended job has no pods", a_job(**THREE, suspend=True), PodCounts(3), "write Suspended", "delete 3"),
    case(
        "a resumed job continues",
        a_job(condition("Suspended"), **THREE),
        PodCounts(),
        "write Suspended=False",
        "create 3",
    ),
    case(
        "a complete job releases its claims",
        a_job(condition("Complete")),
        PodCounts(),
        "release claims",
        holds_claims=True,
    ),
    case(
        "a failed job releases its claims", a_job(condition("Failed")), PodCounts(), "release claims", holds_claims=True
    ),
    case(
        "while a pod still goes, it does not", a_job(condition("Failed")), PodCounts(terminating=1), holds_claims=True
    ),
    case("a late pod is deleted", a_job(condition("Failed")), PodCounts(1), "delete 1", holds_claims=True),
    case("a job without claims releases nothing", a_job(condition("Complete")), PodCounts()),
    case(
        "a finished job is kept for its ttl",
        a_job(condition("Complete"), ttl_seconds_after_finished=60),
        PodCounts(),
        look_again_s=60,
    ),
    case(
        "a finished job is deleted after its ttl",
        a_job(condition("Complete"), ttl_seconds_after_finished=0),
        PodCounts(),
        "delete the job",
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_plan_job(case: Case) -> None:
    planned = plan_job(case.job, case.facts, NOW)
    assert tuple(map(in_words, planned.actions)) == case.want
    wait = None if planned.look_again_at is None else (planned.look_again_at - NOW).total_seconds()
    assert wait == (None if case.look_again_s is None else pytest.approx(case.look_again_s))


def test_a_job_that_is_being_deleted_needs_no_action() -> None:
    job = a_job(**THREE)
    leaving = replace(job, metadata=replace(job.metadata, deletion_timestamp=STARTED))
    assert plan_job(leaving, JobFacts(counts=PodCounts()), NOW).actions == ()


@given(
    count=st.builds(PodCounts, *[st.integers(0, 4)] * 4),
    spec=st.fixed_dictionaries(
        {
            "parallelism": st.sampled_from([None, 0, 3]),
            "completions": st.sampled_from([None, 0, 3]),
            "backoff_limit": st.sampled_from([None, 0, 2]),
            "suspend": st.sampled_from([None, True]),
            "active_deadline_seconds": st.sampled_from([None, 0, 10]),
        }
    ),
)
def test_plans_converge_and_never_create_and_delete_at_once(count: PodCounts, spec: dict[str, Any]) -> None:
    job = a_job(**spec)
    for _ in range(6):
        actions = plan_job(job, JobFacts(counts=count), NOW).actions
        kinds = {type(action) for action in actions}
        assert not {CreatePods, DeletePods} <= kinds
        if not actions:
            break
        for action in actions:
            match action:
                case WriteJobStatus(status):
                    job = replace(job, status=status)
                case CreatePods(number):
                    count = count._replace(active=count.active + number)
                case DeletePods(number):
                    count = count._replace(active=count.active - number)
    assert plan_job(job, JobFacts(counts=count), NOW).actions == ()


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        ({"parallelism": 3, "completionMode": "Indexed"}, None),
        ({"completionMode": "Other"}, "completionMode"),
        ({"podFailurePolicy": {"rules": []}}, "podFailurePolicy"),
        ({"podReplacementPolicy": "Failed"}, "podReplacementPolicy"),
        ({"podReplacementPolicy": "TerminatingOrFailed"}, None),
        ({"backoffLimitPerIndex": 0}, "backoffLimitPerIndex"),
    ],
)
def test_unsupported_fields_are_named(spec: dict[str, Any], want: str | None) -> None:
    assert unsupported_field(spec) == want
