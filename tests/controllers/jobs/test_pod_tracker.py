"""The counts of a job's pods, against a count of everything."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from dralloc.controllers.jobs.pod_tracker import COMPLETION_INDEX, PodCounts, PodTracker
from dralloc.kube.batch_v1 import JobStatus
from dralloc.kube.pod_v1 import Pod
from tests.support.workloads import pod, seen

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def after(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


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
        """The job deleted the pod, so its end does not count."""
        return self.is_dismissed and self.pod.is_terminating


@dataclass
class Model:
    """Counts all pods that ever existed."""

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
def test_incremental_counts_agree_with_a_full_count(steps: list[tuple[str, int]]) -> None:
    tracker, model = PodTracker(), Model()
    for step, number in steps:
        name = f"p{number}"
        life = model.lives.get(name)
        if step == "create" and life is None:
            index = number % 4
            made = seen(pod(name), uid=name)
            annotated = replace(made, metadata=replace(made.metadata, annotations={COMPLETION_INDEX: str(index)}))
            tracker.expect(name, index, NOW)
            tracker.put(annotated, NOW)
            model.lives[name] = Life(annotated, index)
        elif step == "forget" and life is None:
            tracker.expect(name, number % 4, NOW)
            assert tracker.count(NOW).active == model.count().active + 1
            tracker.forget(name)
        elif life is None or life.is_gone:
            continue
        elif step == "remove":
            life.is_gone = True
            tracker.remove(life.pod, NOW)
        elif step == "dismiss":
            if not life.pod.is_finished and not life.pod.is_terminating:
                life.is_dismissed = True
                tracker.dismissed.add(name)
        elif not life.pod.is_finished:
            if step == "delete":
                metadata = replace(life.pod.metadata, deletion_timestamp="2026-01-01T00:00:00Z")
                life.pod = replace(life.pod, metadata=metadata)
            else:
                phase = {"succeed": "Succeeded", "fail": "Failed"}.get(step, life.pod.status.phase)
                life.pod = replace(life.pod, status=replace(life.pod.status, phase=phase))
            tracker.put(life.pod, NOW)
        assert tracker.count(NOW) == model.count()
        assert tracker.slots.vacant(4, 4) == model.vacant(4)


def test_a_new_leader_continues_from_the_status() -> None:
    tracker = PodTracker()
    tracker.put(seen(pod("a"), phase="Succeeded"), NOW)
    tracker.adopt(JobStatus(succeeded=3, failed=1, completed_indexes="0-1,4"))
    assert tracker.count(NOW) == PodCounts(succeeded=3, failed=1)
    assert tracker.slots.vacant(9, 6) == [2, 3, 5]
    tracker.put(seen(pod("b"), phase="Succeeded"), NOW)
    tracker.adopt(JobStatus(succeeded=9))
    assert tracker.count(NOW).succeeded == 4


def test_an_expected_pod_is_forgotten_after_a_timeout() -> None:
    tracker = PodTracker()
    tracker.expect("p", None, NOW)
    assert tracker.count(after(59)).active == 1
    assert tracker.count(after(61)).active == 0


def test_consecutive_failures_increase_the_backoff() -> None:
    tracker, waits = PodTracker(), []
    for number in range(8):
        tracker.put(seen(pod(f"p{number}"), phase="Failed"), NOW)
        resume_at = tracker.resume_at()
        assert resume_at is not None
        waits.append((resume_at - NOW).total_seconds())
    assert waits == [10, 20, 40, 80, 160, 320, 360, 360]
    tracker.put(seen(pod("good"), phase="Succeeded"), NOW)
    assert tracker.resume_at() is None


def test_indexes_beyond_reduced_completions_do_not_count() -> None:
    tracker = PodTracker()
    tracker.adopt(JobStatus(completed_indexes="0-1,4"))
    assert [tracker.slots.count_succeeded(completions) for completions in (5, 4, 1)] == [3, 2, 1]
