"""The scheduling queue: order, back-off, parking and waking, without losing a pod or an event."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from dralloc.scheduler.queue.parked_pods import PARKED_MAX_S
from dralloc.scheduler.queue.scheduling_queue import BACKOFF_MAX_S, SchedulingQueue
from dralloc.scheduler.state.cluster_events import ClusterEvent

DEVICES_FREED = ClusterEvent("devices freed")
NODE_ADDED = ClusterEvent("node added")


def queue_with(*keys: str, priority: int = 0) -> SchedulingQueue:
    queue = SchedulingQueue()
    for key in keys:
        queue.add(key, priority=priority, now_s=0)
    return queue


def popped(queue: SchedulingQueue, now_s: float) -> object:
    pod = queue.pop(now_s=now_s)
    return pod.key if pod else None


def test_pods_are_ordered_by_priority_and_age() -> None:
    queue = SchedulingQueue()
    queue.add("young", priority=1, now_s=5)
    queue.add("old", priority=1, now_s=3)
    queue.add("important", priority=9, now_s=7)
    assert [popped(queue, 10) for _ in range(4)] == ["important", "old", "young", None]


def test_an_interrupted_pod_goes_on_later_behind_pods_that_waited_for_their_turn() -> None:
    queue = queue_with("slow", "quick")
    assert popped(queue, 1) == "slow"
    queue.postponed("slow", until_s=2, interrupted_s=1)
    assert popped(queue, 1) == "quick"
    queue.postponed("quick", until_s=2)
    assert popped(queue, 1.9) is None
    assert queue.next_time_s() == 2
    assert [popped(queue, 2) for _ in range(3)] == ["quick", "slow", None]


def test_a_parked_pod_wakes_only_for_events_that_it_waits_for() -> None:
    queue = queue_with("a")
    popped(queue, 0)
    queue.rejected("a", waits_for=frozenset({DEVICES_FREED}), now_s=0)
    assert queue.wake(NODE_ADDED, now_s=20) == 0
    assert popped(queue, 20) is None
    assert queue.wake(DEVICES_FREED, now_s=20) == 1
    assert popped(queue, 20) == "a"


def test_an_event_with_a_subject_wakes_pods_that_wait_for_it_or_for_any_subject() -> None:
    queue = queue_with("one", "any")
    for _ in range(2):
        queue.pop(now_s=0)
    queue.rejected("one", waits_for=frozenset({ClusterEvent("claim", "ns/x")}), now_s=0)
    queue.rejected("any", waits_for=frozenset({ClusterEvent("claim")}), now_s=0)
    assert queue.wake(ClusterEvent("claim", "ns/y"), now_s=30) == 1
    assert popped(queue, 30) == "any"
    assert queue.wake(ClusterEvent("claim", "ns/x"), now_s=30) == 1


def test_an_event_during_an_attempt_is_not_lost() -> None:
    queue = queue_with("a")
    popped(queue, 0)
    queue.wake(DEVICES_FREED, now_s=0.5)
    queue.rejected("a", waits_for=frozenset({DEVICES_FREED}), now_s=1)
    assert queue.counts()["backoff"] == 1
    assert popped(queue, 2) == "a"


def test_an_event_before_an_attempt_does_not_wake_the_pod_after_it() -> None:
    queue = queue_with("a", "b")
    popped(queue, 0)
    queue.wake(DEVICES_FREED, now_s=0)
    popped(queue, 0)
    queue.rejected("b", waits_for=frozenset({DEVICES_FREED}), now_s=1)
    assert queue.counts()["unschedulable"] == 1


def test_back_off_after_errors_doubles_up_to_its_bound() -> None:
    queue = queue_with("a")
    now_s, waits = 0.0, []
    for _ in range(6):
        popped(queue, now_s)
        queue.failed("a", now_s=now_s)
        ready_s = queue.next_time_s()
        assert ready_s is not None
        waits.append(ready_s - now_s)
        assert popped(queue, ready_s - 0.01) is None
        now_s = ready_s
    assert waits == [1, 2, 4, 8, 10, 10]


def test_time_spent_parked_counts_as_back_off() -> None:
    queue = queue_with("a")
    popped(queue, 0)
    queue.rejected("a", waits_for=frozenset({DEVICES_FREED}), now_s=0)
    queue.wake(DEVICES_FREED, now_s=0.25)
    assert queue.next_time_s() == 1
    queue.pop(now_s=1)
    queue.rejected("a", waits_for=frozenset({DEVICES_FREED}), now_s=1)
    queue.wake(DEVICES_FREED, now_s=100)
    assert popped(queue, 100) == "a"


def test_a_rejected_pod_is_tried_before_its_back_off_ends_if_no_other_pod_is_ready() -> None:
    queue = queue_with("rejected")
    popped(queue, 0)
    queue.rejected("rejected", waits_for=frozenset({DEVICES_FREED}), now_s=0)
    queue.wake(DEVICES_FREED, now_s=0.25)
    queue.add("new", priority=0, now_s=0.25)
    assert [popped(queue, 0.25) for _ in range(3)] == ["new", "rejected", None]


@pytest.mark.parametrize(
    ("ends", "begun_s", "now_s", "order"),
    [
        pytest.param("rejected", (0.1, 0.15), 0.5, ["high", "low"], id="ready in the same second"),
        pytest.param("rejected", (0.7, 1.1), 1.2, ["low", "high"], id="ready in different seconds"),
        pytest.param("failed", (0.1, 0.15), 1.05, ["high", "low"], id="ready in the same second after errors"),
    ],
)
def test_back_off_pods_of_the_same_second_are_ordered_by_priority(
    ends: str, begun_s: tuple[float, float], now_s: float, order: list[str]
) -> None:
    queue = SchedulingQueue()
    for key, priority, tried_s in (("low", 1, begun_s[0]), ("high", 1000, begun_s[1])):
        queue.add(key, priority=priority, now_s=tried_s)
        queue.pop(now_s=tried_s)
        if ends == "failed":
            queue.failed(key, now_s=tried_s)
        else:
            queue.rejected(key, waits_for=frozenset({DEVICES_FREED}), now_s=tried_s)
    queue.wake(DEVICES_FREED, now_s=now_s)
    assert [popped(queue, now_s) for _ in order] == order


def test_a_pod_with_an_error_is_never_tried_before_its_back_off_ends() -> None:
    queue = queue_with("broken", "collided")
    for _ in range(2):
        queue.pop(now_s=0)
    queue.failed("broken", now_s=0)
    queue.collided("collided", now_s=0)
    assert popped(queue, 0.01) is None
    assert popped(queue, 0.1) == "collided"
    assert popped(queue, 0.1) is None
    assert popped(queue, 1) == "broken"


def test_a_parked_pod_is_tried_again_after_five_minutes() -> None:
    queue = queue_with("a")
    popped(queue, 0)
    queue.rejected("a", waits_for=frozenset({DEVICES_FREED}), now_s=0)
    assert queue.next_time_s() == PARKED_MAX_S
    assert popped(queue, PARKED_MAX_S) == "a"


def test_a_discarded_pod_does_not_return_when_its_attempt_ends() -> None:
    queue = queue_with("tried", "parked", "waiting")
    popped(queue, 0)
    popped(queue, 0)
    queue.rejected("parked", waits_for=frozenset({DEVICES_FREED}), now_s=0)
    for key in ("tried", "parked", "waiting"):
        queue.discard(key)
    queue.rejected("tried", waits_for=frozenset({DEVICES_FREED}), now_s=1)
    assert len(queue) == 0
    assert queue.wake(DEVICES_FREED, now_s=2) == 0
    assert popped(queue, 1000) is None


@pytest.mark.parametrize("is_written", [False, True])
def test_a_pod_that_comes_back_is_tried_when_its_attempt_has_ended(is_written: bool) -> None:
    queue = queue_with("p")
    popped(queue, 0)
    if is_written:
        queue.binding("p")
    queue.discard("p")
    queue.add("p", priority=0, now_s=1)
    assert popped(queue, 1) is None
    if is_written:
        queue.placed("p")
    else:
        queue.failed("p", now_s=2)
    assert popped(queue, 2) == "p"
    queue.failed("p", now_s=3)
    assert len(queue) == 1


class QueueMachine(RuleBasedStateMachine):
    """Whatever happens to pods, each is in exactly one place and is tried again in the end."""

    @initialize()
    def start(self) -> None:
        self.queue = SchedulingQueue()
        self.now_s = 0.0
        self.present: set[int] = set()
        self.tried: list[int] = []
        self.created = 0

    @rule(priority=st.integers(0, 2))
    def add(self, priority: int) -> None:
        self.created += 1
        self.present.add(self.created)
        self.queue.add(self.created, priority=priority, now_s=self.now_s)

    @rule(seconds=st.floats(0, 30))
    def pass_time(self, seconds: float) -> None:
        self.now_s += seconds

    @rule()
    def pop(self) -> None:
        pod = self.queue.pop(now_s=self.now_s)
        if pod is not None:
            assert pod.key in self.present
            assert pod.key not in self.tried
            self.tried.append(pod.key)

    @precondition(lambda self: self.tried)
    @rule(verdict=st.sampled_from(["placed", "failed", "parked"]), pick=st.integers(0, 100))
    def end_attempt(self, verdict: str, pick: int) -> None:
        key = self.tried.pop(pick % len(self.tried))
        if verdict == "placed":
            self.queue.placed(key)
            self.present.discard(key)
        elif verdict == "failed":
            self.queue.failed(key, now_s=self.now_s)
        else:
            self.queue.rejected(key, waits_for=frozenset({DEVICES_FREED}), now_s=self.now_s)

    @rule(event=st.sampled_from([DEVICES_FREED, NODE_ADDED]))
    def happen(self, event: ClusterEvent) -> None:
        self.queue.wake(event, now_s=self.now_s)

    @precondition(lambda self: self.present)
    @rule(pick=st.integers(0, 100))
    def discard(self, pick: int) -> None:
        key = sorted(self.present)[pick % len(self.present)]
        self.present.discard(key)
        self.queue.discard(key)

    @invariant()
    def every_pod_is_in_one_place(self) -> None:
        if hasattr(self, "queue"):
            assert len(self.queue) == len(self.present)
            assert sum(self.queue.counts().values()) == len(self.present - set(self.tried))

    def teardown(self) -> None:
        if not hasattr(self, "queue"):
            return
        for key in self.tried:
            self.queue.failed(key, now_s=self.now_s)
        far_s = self.now_s + PARKED_MAX_S + BACKOFF_MAX_S
        again = set()
        while (pod := self.queue.pop(now_s=far_s)) is not None:
            again.add(pod.key)
        assert again == self.present


TestQueueMachine = pytest.mark.slow(QueueMachine.TestCase)
TestQueueMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
