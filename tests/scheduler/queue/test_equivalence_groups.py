"""Equivalence groups in the queue: one representative is tried for all, and no member is forgotten."""

from __future__ import annotations

from collections.abc import Hashable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from dralloc.scheduler.queue.scheduling_queue import BACKOFF_MAX_S, SchedulingQueue
from dralloc.scheduler.state.cluster_events import ClusterEvent

DEVICES_FREED = ClusterEvent("devices freed")
NODE_ADDED = ClusterEvent("node added")


def popped(queue: SchedulingQueue, now_s: float) -> object:
    pod = queue.pop(now_s=now_s)
    return pod.key if pod else None


def group_of(*keys: str) -> SchedulingQueue:
    """A queue in which these pods are parked in one group."""
    queue = SchedulingQueue()
    for key in keys:
        queue.add(key, priority=0, now_s=0)
        queue.pop(now_s=0)
        queue.rejected(
            key, waits_for=frozenset({DEVICES_FREED, ClusterEvent("claim", key)}), now_s=0, group_key="shape"
        )
    return queue


def test_the_next_member_is_tried_only_if_the_representative_finds_a_node() -> None:
    queue = group_of("a", "b", "c")
    assert queue.wake(DEVICES_FREED, now_s=20) == 1
    assert popped(queue, 20) == "a"
    assert popped(queue, 20) is None
    queue.binding("a")
    assert popped(queue, 20) == "b"
    queue.rejected("b", waits_for=frozenset({DEVICES_FREED}), now_s=20, group_key="shape")
    assert popped(queue, 20) is None
    assert queue.counts()["unschedulable"] == 2


def test_the_representative_has_the_highest_priority_and_then_the_highest_age() -> None:
    queue = SchedulingQueue()
    for number, priority in enumerate((0, 5, 5)):
        queue.add(f"p{number}", priority=priority, now_s=number)
    for _ in range(3):
        pod = queue.pop(now_s=3)
        assert pod is not None
        queue.rejected(pod.key, waits_for=frozenset({DEVICES_FREED}), now_s=3, group_key="shape")
    tried = []
    queue.wake(DEVICES_FREED, now_s=20)
    while (key := popped(queue, 20)) is not None:
        tried.append(key)
        queue.binding(key)
    assert tried == ["p1", "p2", "p0"]


def test_a_representative_that_is_deleted_or_fails_is_replaced() -> None:
    queue = group_of("a", "b", "c")
    queue.wake(DEVICES_FREED, now_s=20)
    queue.discard("a")
    assert popped(queue, 20) == "b"
    queue.failed("b", now_s=20)
    assert popped(queue, 20) == "c"


def test_an_event_about_one_member_wakes_that_member() -> None:
    queue = group_of("a", "b", "c")
    assert queue.wake(ClusterEvent("claim", "b"), now_s=20) == 1
    assert popped(queue, 20) == "b"
    assert queue.wake(DEVICES_FREED, now_s=20) == 1
    assert popped(queue, 20) == "a"


def test_a_group_with_a_representative_is_not_woken_again() -> None:
    queue = group_of("a", "b", "c")
    assert [queue.wake(DEVICES_FREED, now_s=20) for _ in range(3)] == [1, 0, 0]


@given(pods=st.integers(1, 30), freed=st.lists(st.integers(0, 5), max_size=10))
def test_a_group_fills_all_free_devices_in_few_attempts(pods: int, freed: list[int]) -> None:
    queue = group_of(*(f"p{number}" for number in range(pods)))
    room = placed = attempts = 0
    for now_s, more in enumerate(freed, start=20):
        room += more
        for _ in range(more):
            queue.wake(DEVICES_FREED, now_s=now_s)
        while (pod := queue.pop(now_s=now_s)) is not None:
            attempts += 1
            if room:
                room, placed = room - 1, placed + 1
                queue.binding(pod.key)
            else:
                queue.rejected(pod.key, waits_for=frozenset({DEVICES_FREED}), now_s=now_s, group_key="shape")
        assert placed == min(pods, sum(freed[: now_s - 19]))
    assert attempts <= placed + len(freed)


def test_a_newer_pod_does_not_overtake_a_woken_group() -> None:
    queue = group_of("a", "b", "c")
    queue.wake(DEVICES_FREED, now_s=20)
    queue.add("new", priority=0, now_s=21)
    tried = []
    while (key := popped(queue, 21)) is not None:
        tried.append(key)
        queue.binding(key)
    assert tried == ["a", "b", "c", "new"]


def test_a_representative_stays_if_an_event_came_during_its_attempt() -> None:
    queue = group_of("a", "b", "c")
    queue.wake(DEVICES_FREED, now_s=20)
    assert popped(queue, 20) == "a"
    queue.wake(DEVICES_FREED, now_s=20)
    assert not queue.rejected("a", waits_for=frozenset({DEVICES_FREED}), now_s=20, group_key="shape")
    assert popped(queue, 30) == "a"
    queue.binding("a")
    assert popped(queue, 30) == "b"


def test_a_rejected_representative_reports_that_members_stay_parked() -> None:
    queue = group_of("a", "b", "c")
    queue.wake(DEVICES_FREED, now_s=20)
    popped(queue, 20)
    assert queue.rejected("a", waits_for=frozenset({DEVICES_FREED}), now_s=20, group_key="shape")
    assert sorted(map(str, queue.group_members("shape"))) == ["a", "b", "c"]
    queue.wake(ClusterEvent("claim", "c"), now_s=21)
    popped(queue, 21)
    assert not queue.rejected("c", waits_for=frozenset({DEVICES_FREED}), now_s=21, group_key="shape")
    assert queue.group_members("another shape") == ()


class GroupMachine(RuleBasedStateMachine):
    """Two groups of pods and free devices for each that come and go: no device stays free while a pod could use it.

    Time passes slowly, so that no pod is tried only because it was parked for long.
    """

    @initialize(asleep=st.lists(st.sampled_from("xxxy"), min_size=2, max_size=6))
    def start(self, asleep: list[str]) -> None:
        self.queue = SchedulingQueue()
        self.now_s = 0.0
        self.room = {"x": 0, "y": 0}
        self.kinds: dict[int, str] = {}
        self.present: set[int] = set()
        # Attempts that are decided and not ended: rejected, or with a node.
        self.refused: list[int] = []
        self.bound: list[int] = []
        # Parked for an event of their own.
        self.gated: set[int] = set()
        for kind in asleep:
            self.add(kind, 0)
            self.attempt("")

    @rule(kind=st.sampled_from("xy"), priority=st.integers(0, 2))
    def add(self, kind: str, priority: int) -> None:
        key = len(self.kinds)
        self.kinds[key] = kind
        self.present.add(key)
        self.queue.add(key, priority=priority, now_s=self.now_s)

    @rule(seconds=st.floats(0, 2))
    def pass_time(self, seconds: float) -> None:
        self.now_s += seconds

    @rule(kind=st.sampled_from("xy"), amount=st.integers(1, 3))
    def free(self, kind: str, amount: int) -> None:
        for _ in range(amount):
            self.room[kind] += 1
            self.queue.wake(DEVICES_FREED, now_s=self.now_s)

    @rule(kind=st.sampled_from("xy"))
    def another_scheduler_takes_it(self, kind: str) -> None:
        self.room[kind] = max(self.room[kind] - 1, 0)

    @rule()
    def node_comes(self) -> None:
        self.queue.wake(NODE_ADDED, now_s=self.now_s)

    @rule(mishap=st.sampled_from(["", "", "", "slow", "failed", "gated"]))
    def attempt(self, mishap: str) -> None:
        if (pod := self.queue.pop(now_s=self.now_s)) is not None:
            self.decide(pod.key, mishap)

    def decide(self, key: Hashable, mishap: str) -> None:
        assert isinstance(key, int)
        assert key in self.present
        if mishap == "failed":
            self.queue.failed(key, now_s=self.now_s)
        elif mishap == "gated":
            self.gated.add(key)
            self.queue.gated(key, waits_for=frozenset({ClusterEvent("claim", key)}), now_s=self.now_s)
        elif self.room[self.kinds[key]]:
            self.room[self.kinds[key]] -= 1
            self.queue.binding(key)
            self.bound.append(key)
        else:
            self.refused.append(key)
            if mishap != "slow":
                self.refuse(-1)

    @precondition(lambda self: self.refused)
    @rule(pick=st.integers(0, 100))
    def refuse(self, pick: int) -> None:
        key = self.refused.pop(pick % len(self.refused))
        waits_for = frozenset({DEVICES_FREED, NODE_ADDED, ClusterEvent("claim", key)})
        self.queue.rejected(key, waits_for=waits_for, now_s=self.now_s, group_key=self.kinds[key])

    @precondition(lambda self: self.bound)
    @rule(pick=st.integers(0, 100), works=st.booleans())
    def bind(self, pick: int, works: bool) -> None:
        key = self.bound.pop(pick % len(self.bound))
        if works:
            self.queue.placed(key)
            self.present.discard(key)
        else:
            self.free(self.kinds[key], 1)
            self.queue.collided(key, now_s=self.now_s)

    @precondition(lambda self: self.present)
    @rule(pick=st.integers(0, 100))
    def event_about_one(self, pick: int) -> None:
        key = sorted(self.present)[pick % len(self.present)]
        self.gated.discard(key)
        self.queue.wake(ClusterEvent("claim", key), now_s=self.now_s)

    @precondition(lambda self: self.present)
    @rule(pick=st.integers(0, 100))
    def delete(self, pick: int) -> None:
        key = sorted(self.present)[pick % len(self.present)]
        self.present.discard(key)
        self.queue.discard(key)

    @invariant()
    def while_a_device_is_free_a_member_is_tried(self) -> None:
        if not hasattr(self, "queue"):
            return
        for kind in (kind for kind, room in self.room.items() if room):
            alike = {key for key in self.present - self.gated if self.kinds[key] == kind}
            asleep = {key for key in alike if self.queue.waits_for(key) is not None}
            assert not asleep or alike - asleep - set(self.bound), (
                f"{asleep} are parked while a device is free for {kind}"
            )

    def teardown(self) -> None:
        if not hasattr(self, "queue"):
            return
        for _ in self.refused[:]:
            self.refuse(0)
        for _ in self.bound[:]:
            self.bind(0, works=True)
        self.now_s += BACKOFF_MAX_S
        while (pod := self.queue.pop(now_s=self.now_s)) is not None:
            self.decide(pod.key, "")
        asleep = {self.kinds[key] for key in self.present - self.gated - set(self.bound)}
        assert not any(self.room[kind] for kind in asleep)


TestGroupMachine = pytest.mark.slow(GroupMachine.TestCase)
TestGroupMachine.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
