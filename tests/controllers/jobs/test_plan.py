"""What a job needs, as sentences; how its pods are counted, against a count of everything."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from dralloc.api.batch_v1 import Job, JobCondition, JobSpec, JobStatus
from dralloc.api.codec import encode
from dralloc.api.meta_v1 import ObjectMeta
from dralloc.api.pod_v1 import Pod
from dralloc.api.resource_v1 import ResourceClaim, ResourceClaimTemplate
from dralloc.api.unstructured_object import UnstructuredObject, read_unstructured
from dralloc.controllers.claim_creation import CreateClaim, ReportProblem
from dralloc.controllers.jobs.completion_indexes import parse_indexes, print_indexes
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
from dralloc.controllers.jobs.plan_claims import SHARED_CLAIMS, plan_claims
from dralloc.controllers.jobs.pod_template import PodNames, name_base, pod_document
from dralloc.controllers.jobs.pod_tracker import COMPLETION_INDEX, PodCounts, PodTracker
from dralloc.controllers.jobs.pod_worker_pool import batches
from dralloc.testing.builders import request
from tests.support.workloads import claim_template, pod, seen

NOW = datetime(2026, 1, 1, tzinfo=UTC)
STARTED = "2026-01-01T00:00:00Z"
NO_PODS = PodCounts()


def after(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def condition(kind: str, reason: str = "", status: str = "True") -> JobCondition:
    return JobCondition(type=kind, status=status, reason=reason, last_transition_time=STARTED)


def a_job(*conditions: JobCondition, shown: PodCounts = NO_PODS, **spec: Any) -> Job:
    """A job that started; `shown` is what its status says."""
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
            return "give up claims"
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
    case("one that nothing is said of gets one", a_job(completions=1), PodCounts(), "create 1"),
    case("never more at once than it may", a_job(parallelism=2, completions=9), PodCounts(), "create 2"),
    case(
        "never more than are left to do",
        a_job(parallelism=5, completions=9),
        PodCounts(succeeded=7),
        "write",
        "create 2",
    ),
    case("a thousand pods come in portions", a_job(parallelism=1000, completions=1000), PodCounts(), "create 500"),
    case("all are there", a_job(**THREE, shown=PodCounts(3)), PodCounts(3)),
    case(
        "numbers are written, but not all the time",
        a_job(**THREE),
        PodCounts(3),
        written_at=after(-0.4),
        look_again_s=0.6,
    ),
    case("and written when they may be", a_job(**THREE), PodCounts(3), "write", written_at=after(-2)),
    case("too many are too many", a_job(**THREE, shown=PodCounts(5)), PodCounts(5), "delete 2"),
    case("what failed is replaced", a_job(**THREE, shown=PodCounts(2, failed=1)), PodCounts(2, failed=1), "create 1"),
    case(
        "but not at once",
        a_job(**THREE, shown=PodCounts(2, failed=1)),
        PodCounts(2, failed=1),
        resume_at=after(8),
        look_again_s=8,
    ),
    case(
        "what was deleted is replaced while it is going",
        a_job(**THREE, shown=PodCounts(2, terminating=1, failed=1)),
        PodCounts(2, terminating=1, failed=1),
        "create 1",
    ),
    case("all succeeded", a_job(**THREE), PodCounts(succeeded=3), "write SuccessCriteriaMet Complete"),
    case(
        "all succeeded that had to, and one still runs",
        a_job(parallelism=2, completions=1),
        PodCounts(active=1, succeeded=1),
        "write SuccessCriteriaMet",
        "delete 1",
    ),
    case(
        "it is going",
        a_job(
            condition("SuccessCriteriaMet"), parallelism=2, completions=1, shown=PodCounts(terminating=1, succeeded=1)
        ),
        PodCounts(terminating=1, succeeded=1),
    ),
    case(
        "it is gone",
        a_job(
            condition("SuccessCriteriaMet"), parallelism=2, completions=1, shown=PodCounts(terminating=1, succeeded=1)
        ),
        PodCounts(succeeded=1),
        "write SuccessCriteriaMet Complete",
    ),
    case("pods that share a queue run until the last one ends", a_job(parallelism=3), PodCounts(), "create 3"),
    case("one of them succeeded: no new ones", a_job(parallelism=3, shown=PodCounts(2, 0, 1)), PodCounts(2, 0, 1)),
    case(
        "the last one ended",
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
    case("as many failed as may", a_job(**THREE, backoff_limit=2), PodCounts(2, failed=2), "write", "create 1"),
    case("six may fail if nothing is said", a_job(**THREE), PodCounts(failed=7), "write FailureTarget Failed"),
    case(
        "its time is over",
        a_job(**THREE, active_deadline_seconds=0),
        PodCounts(3),
        "write FailureTarget",
        "delete 3",
    ),
    case(
        "its time is not over yet",
        a_job(**THREE, active_deadline_seconds=90, shown=PodCounts(3)),
        PodCounts(3),
        look_again_s=90,
    ),
    case(
        "what it asks for and we do not have is said, and nothing run",
        a_job(**THREE),
        PodCounts(),
        "write FailureTarget Failed",
        not_supported="podFailurePolicy",
    ),
    case("suspended, nothing runs", a_job(**THREE, suspend=True), PodCounts(3), "write Suspended", "delete 3"),
    case(
        "resumed, it goes on",
        a_job(condition("Suspended"), **THREE),
        PodCounts(),
        "write Suspended=False",
        "create 3",
    ),
    case(
        "ended, it gives up its claims", a_job(condition("Complete")), PodCounts(), "give up claims", holds_claims=True
    ),
    case("failed, too", a_job(condition("Failed")), PodCounts(), "give up claims", holds_claims=True),
    case(
        "while a pod still goes, it does not", a_job(condition("Failed")), PodCounts(terminating=1), holds_claims=True
    ),
    case("a pod that came late is sent away", a_job(condition("Failed")), PodCounts(1), "delete 1", holds_claims=True),
    case("without claims there is nothing to give up", a_job(condition("Complete")), PodCounts()),
    case(
        "it stays as long as it was told to",
        a_job(condition("Complete"), ttl_seconds_after_finished=60),
        PodCounts(),
        look_again_s=60,
    ),
    case(
        "and no longer",
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


def test_a_job_that_is_being_deleted_is_left_alone() -> None:
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
def test_a_job_whose_plan_is_carried_out_settles_and_never_creates_and_deletes_at_once(
    count: PodCounts, spec: dict[str, Any]
) -> None:
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
def test_what_is_not_supported_is_named(spec: dict[str, Any], want: str | None) -> None:
    assert unsupported_field(spec) == want


# --- Counting ---------------------------------------------------------------------------------------------------


@dataclass
class Life:
    """One pod of the model."""

    pod: Pod
    index: int | None = None
    is_dismissed: bool = False
    is_gone: bool = False

    @property
    def is_lost(self) -> bool:
        return not self.pod.is_finished and (self.pod.is_terminating or self.is_gone)

    @property
    def is_done_with(self) -> bool:
        """The job has deleted it, so that it does not matter how it ends."""
        return self.is_dismissed and self.pod.is_terminating


@dataclass
class Model:
    """Counts by looking at everything that ever was."""

    lives: dict[str, Life] = field(default_factory=dict)

    def count(self) -> PodCounts:
        lives = list(self.lives.values())
        return PodCounts(
            active=sum(not life.is_gone and not life.is_lost and not life.pod.is_finished for life in lives),
            terminating=sum(not life.is_gone and (life.is_lost or life.is_done_with) for life in lives),
            succeeded=sum(self._succeeded(life) for life in lives),
            failed=sum(
                not life.is_done_with
                and (life.pod.status.phase == "Failed" or (life.is_lost and not life.is_dismissed))
                for life in lives
            ),
        )

    def _succeeded(self, life: Life) -> bool:
        return life.pod.status.phase == "Succeeded" and not life.is_done_with

    def vacant(self, completions: int) -> list[int]:
        busy = {
            life.index
            for life in self.lives.values()
            if self._succeeded(life) or not (life.is_gone or life.is_lost or life.pod.is_finished)
        }
        return [index for index in range(completions) if index not in busy]


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["create", "succeed", "fail", "delete", "dismiss", "remove", "forget"]), st.integers(0, 2)
    ),
    max_size=40,
)


@given(steps=STEPS)
@example(steps=[("create", 0), ("dismiss", 0), ("delete", 0), ("fail", 0), ("remove", 0)])
def test_counting_change_by_change_is_counting_everything(steps: list[tuple[str, int]]) -> None:
    tally, model = PodTracker(), Model()
    for step, number in steps:
        name = f"p{number}"
        life = model.lives.get(name)
        if step == "create" and life is None:
            index = number % 4
            made = seen(pod(name), uid=name)
            annotated = replace(made, metadata=replace(made.metadata, annotations={COMPLETION_INDEX: str(index)}))
            tally.expect(name, index, NOW)
            tally.put(annotated, NOW)
            model.lives[name] = Life(annotated, index)
        elif step == "forget" and life is None:
            tally.expect(name, number % 4, NOW)
            assert tally.count(NOW).active == model.count().active + 1
            tally.forget(name)
        elif life is None or life.is_gone:
            continue
        elif step == "remove":
            life.is_gone = True
            tally.remove(life.pod, NOW)
        elif step == "dismiss":
            if not life.pod.is_finished and not life.pod.is_terminating:
                life.is_dismissed = True
                tally.dismissed.add(name)
        elif not life.pod.is_finished:
            if step == "delete":
                metadata = replace(life.pod.metadata, deletion_timestamp=STARTED)
                life.pod = replace(life.pod, metadata=metadata)
            else:
                phase = {"succeed": "Succeeded", "fail": "Failed"}.get(step, life.pod.status.phase)
                life.pod = replace(life.pod, status=replace(life.pod.status, phase=phase))
            tally.put(life.pod, NOW)
        assert tally.count(NOW) == model.count()
        assert tally.slots.vacant(4, 4) == model.vacant(4)


def test_whoever_takes_over_counts_on() -> None:
    tally = PodTracker()
    tally.put(seen(pod("a"), phase="Succeeded"), NOW)
    tally.adopt(JobStatus(succeeded=3, failed=1, completed_indexes="0-1,4"))
    assert tally.count(NOW) == PodCounts(succeeded=3, failed=1)
    assert tally.slots.vacant(9, 6) == [2, 3, 5]
    tally.put(seen(pod("b"), phase="Succeeded"), NOW)
    tally.adopt(JobStatus(succeeded=9))
    assert tally.count(NOW).succeeded == 4


def test_a_pod_that_is_never_shown_is_not_waited_for_for_ever() -> None:
    tally = PodTracker()
    tally.expect("p", None, NOW)
    assert tally.count(after(59)).active == 1
    assert tally.count(after(61)).active == 0


def test_failures_in_a_row_make_the_next_pod_wait_longer_and_longer() -> None:
    tally, waits = PodTracker(), []
    for number in range(8):
        tally.put(seen(pod(f"p{number}"), phase="Failed"), NOW)
        resume_at = tally.resume_at()
        assert resume_at is not None
        waits.append((resume_at - NOW).total_seconds())
    assert waits == [10, 20, 40, 80, 160, 320, 360, 360]
    tally.put(seen(pod("good"), phase="Succeeded"), NOW)
    assert tally.resume_at() is None


@given(indexes=st.sets(st.integers(0, 50)))
def test_sets_of_indexes_survive_being_written_down(indexes: set[int]) -> None:
    assert parse_indexes(print_indexes(indexes)) == indexes


def test_sets_of_indexes_look_as_in_kubernetes() -> None:
    assert print_indexes({7, 0, 1, 2, 5, 8}) == "0-2,5,7-8"
    assert parse_indexes("nonsense,3,-,5-x") == {3}


# --- Pods -------------------------------------------------------------------------------------------------------


def job_document(**spec: Any) -> UnstructuredObject:
    document = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train", "namespace": "default", "uid": "uid-of-train"},
        "spec": {"template": {"metadata": {"labels": {"team": "a"}}, "spec": pod("x")["spec"]}, **spec},
    }
    return read_unstructured(encode(document), Job)


def test_a_pod_is_made_as_the_template_says_and_belongs_to_its_job() -> None:
    job = job_document()
    job.content["spec"]["template"]["spec"]["fieldOfTheFuture"] = {"kept": True}
    made = pod_document(job, "train-x", None)
    assert made["spec"] == job.content["spec"]["template"]["spec"]
    assert made["metadata"]["labels"]["team"] == "a"
    assert made["metadata"]["labels"]["batch.kubernetes.io/job-name"] == "train"
    assert made["metadata"]["labels"]["batch.kubernetes.io/controller-uid"] == "uid-of-train"
    assert made["metadata"]["ownerReferences"] == [
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": "train",
            "uid": "uid-of-train",
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]


def test_a_pod_with_an_index_finds_it_everywhere() -> None:
    made = pod_document(job_document(), "train-7-x", 7)
    assert made["metadata"]["annotations"] == {COMPLETION_INDEX: "7"}
    assert made["metadata"]["labels"][COMPLETION_INDEX] == "7"
    assert made["spec"]["hostname"] == "train-7"
    assert made["spec"]["containers"][0]["env"] == [{"name": "JOB_COMPLETION_INDEX", "value": "7"}]


def test_names_of_pods_are_all_different_and_the_same_again_for_who_takes_over() -> None:
    names = PodNames(job_document(), lambda _: False)
    first = [names.next(None) for _ in range(10_000)]
    assert len(set(first)) == 10_000
    again = PodNames(job_document(), lambda _: False)
    assert [again.next(None) for _ in range(3)] == first[:3]
    passing_over = PodNames(job_document(), set(first[:5]).__contains__)
    assert passing_over.next(None) == first[5]


@pytest.mark.parametrize(
    ("job", "index", "want"),
    [
        ("train", None, "train-"),
        ("train", 3, "train-3-"),
        ("j" * 63, None, "j" * 57 + "-"),
        ("j" * 63, 12, "j" * 54 + "-12-"),
    ],
)
def test_names_of_pods_begin_with_their_job(job: str, index: int | None, want: str) -> None:
    assert name_base(job, index) == want
    assert len(want) + 5 <= 63


def test_few_at_first() -> None:
    assert list(batches(100, 32)) == [1, 2, 4, 8, 16, 32, 32, 5]
    assert list(batches(0, 32)) == []


# --- Claims -----------------------------------------------------------------------------------------------------


def test_a_job_gets_the_claims_that_it_asks_for_and_is_their_holder() -> None:
    job = job_document()
    job = replace(job, metadata=replace(job.metadata, annotations={SHARED_CLAIMS: "nic=t, disk = none,nonsense"}))
    template = read_unstructured(encode(claim_template("t", request(), labels={"a": "b"})), ResourceClaimTemplate)
    found = {"t": template}
    create, missing, wrong = plan_claims(job, dict[str, ResourceClaim]().get, found.get, for_workloads=True)
    assert isinstance(create, CreateClaim)
    assert create.document["metadata"]["name"] == "nic"
    assert create.document["metadata"]["labels"] == {"a": "b"}
    assert create.document["metadata"]["ownerReferences"][0]["uid"] == "uid-of-train"
    assert create.document["spec"]["reservedFor"] == {
        "apiGroup": "batch",
        "resource": "jobs",
        "name": "train",
        "uid": "uid-of-train",
    }
    assert missing == ReportProblem(job, "claim 'disk': resource claim template 'none' not found")
    assert isinstance(wrong, ReportProblem)
    assert "'nonsense' is not of the form claim=template" in wrong.message
    (without, *_) = plan_claims(job, dict[str, ResourceClaim]().get, found.get, for_workloads=False)
    assert isinstance(without, CreateClaim)
    assert "reservedFor" not in without.document["spec"]
