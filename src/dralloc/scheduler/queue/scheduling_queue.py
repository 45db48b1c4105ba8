"""Pods without a node: which one is tried next, which back off, and which are parked.

Three places hold pods, as in Kubernetes. *Active* pods are ready, in the order of priority and age. *Back-off* pods become
ready after a time that doubles with each failure, or earlier if no active pod is left; those that become ready in the same
second are ordered by priority and age. *Parked* pods wait for a cluster event (`parked_pods`). Events during an attempt
are kept until the attempt ends, so none is lost. Pure: the time is an argument.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from itertools import count
from math import floor
from typing import Final

from msgspec import Struct

from dralloc.scheduler.queue.equivalence_groups import EquivalenceGroup
from dralloc.scheduler.queue.parked_pods import ParkedPods, QueuedPod
from dralloc.scheduler.state.change_log import NumberedLog
from dralloc.scheduler.state.cluster_events import ClusterEvent

BACKOFF_FIRST_S: Final = 1.0
BACKOFF_MAX_S: Final = 10.0
COLLISION_FIRST_S: Final = 0.05


class _Attempt(Struct):
    pod: QueuedPod
    first_event: int
    is_discarded: bool = False
    # The pod came back after it was discarded: it is tried when this attempt has ended.
    successor: QueuedPod | None = None


# When the pod becomes ready, then as in the active heap.
_BackingOff = tuple[float, int, float, int, QueuedPod]


class SchedulingQueue:
    """Every pod that has no node yet, each in exactly one place."""

    def __init__(self) -> None:
        self._numbers = count()
        self._active: list[tuple[int, float, int, QueuedPod]] = []
        self._backoff: list[_BackingOff] = []
        # Pods whose attempt ended in an error. They are not tried early: they would only fail again.
        self._error_backoff: list[_BackingOff] = []
        self._parked = ParkedPods()
        # The group that a pod is tried for, by the key of that pod.
        self._representatives: dict[Hashable, EquivalenceGroup[QueuedPod]] = {}
        # Pods that are being decided on, in the order in which their attempts began.
        self._attempts: dict[Hashable, _Attempt] = {}
        # Pods whose decision is being written. They need no recent events.
        self._binding: dict[Hashable, _Attempt] = {}
        # Where a pod is now. Heap entries of pods that have moved are skipped when they reach the top.
        self._place: dict[Hashable, tuple[str, int]] = {}
        # The events since the oldest running attempt began, so that none is lost.
        self._recent: NumberedLog[ClusterEvent] = NumberedLog()
        # The latest time that a caller has passed.
        self._now_s = 0.0

    def __len__(self) -> int:
        return len(self._place)

    def waits_for(self, key: Hashable) -> frozenset[ClusterEvent] | None:
        """The events that a parked pod waits for; None if the pod is not parked."""
        pod = self._parked.find(key)
        return pod.waits_for if pod is not None else None

    @property
    def has_active(self) -> bool:
        """True if a pod is probably ready: it may have moved."""
        return bool(self._active)

    def counts(self) -> dict[str, int]:
        """The number of pods in each place, without those that are being decided on or written."""
        counts = dict.fromkeys(("active", "backoff", "unschedulable", "gated"), 0)
        for place, _ in self._place.values():
            if place in counts:
                counts[place] += 1
        return counts

    def add(self, key: Hashable, *, priority: int, now_s: float) -> None:
        """Adds a new pod as active; a known pod stays where it is."""
        if key in self._place:
            return
        pod = QueuedPod(key=key, priority=priority, queued_at_s=now_s, first_seen_s=now_s)
        running = self._attempts.get(key) or self._binding.get(key)
        if running is not None:
            running.successor = pod
        else:
            self._activate(pod)

    def discard(self, key: Hashable) -> None:
        """Removes a pod that is gone or has a node."""
        self._place.pop(key, None)
        if (parked := self._parked.find(key)) is not None:
            self._parked.unpark(parked)
        self._try_next_member(key)
        for attempts in (self._attempts, self._binding):
            if key in attempts:
                attempts[key].is_discarded = True
                attempts[key].successor = None

    def pop(self, *, now_s: float) -> QueuedPod | None:
        """Begins an attempt for the next pod; None if every pod has to wait."""
        self._now_s = now_s
        self._release(now_s)
        pod = self._pop_active() or self._pop_backing_off()
        if pod is not None:
            pod.attempts += 1
            self._place[pod.key] = ("attempt", next(self._numbers))
            self._attempts[pod.key] = _Attempt(pod, self._recent.next)
        return pod

    def wake(self, event: ClusterEvent, *, now_s: float) -> int:
        """Wakes the parked pods that wait for the event, one of each group; returns their number."""
        self._now_s = now_s
        if self._attempts:
            self._recent.add(event)
        if not self._parked.pods:
            return 0
        woken = self._parked.waiting_for(event)
        for pod in woken:
            self._parked.unpark(pod)
            self._back_off(pod, pod.rejections, now_s)
        groups = self._parked.groups.waiting_for(event.of_any_subject)
        for group in groups:
            group.woken_at_s = now_s
            self._wake_representative(group)
        return len(woken) + len(groups)

    def group_members(self, group_key: Hashable) -> tuple[Hashable, ...]:
        """The parked pods of the group."""
        group = self._parked.groups.find(group_key)
        return tuple(group.members) if group is not None else ()

    def next_time_s(self) -> float | None:
        """When a pod becomes ready without an event; None if that never happens."""
        times = [ready_s for heap in (self._backoff, self._error_backoff) for ready_s, *_ in heap[:1]]
        if (parked_s := self._parked.next_time_s()) is not None:
            times.append(parked_s)
        return min(times, default=None)

    # --- How an attempt ends ----------------------------------------------------------------------------------------

    def decided(self, key: Hashable) -> None:
        """Events up to now do not wake the pod: its attempt has caused them, for example by the end of nominations, or knew them."""
        if (attempt := self._attempts.get(key)) is not None:
            attempt.first_event = self._recent.next

    def binding(self, key: Hashable) -> None:
        """The attempt found a node, and the decision is being written."""
        self._binding[key] = self._attempts.pop(key)
        self._drop_recent()
        # The event that woke this pod may help another member of its group, too.
        self._try_next_member(key)

    def placed(self, key: Hashable) -> QueuedPod:
        """The pod has its node or is gone."""
        self._place.pop(key, None)
        return self._end(key).pod

    def rejected(
        self, key: Hashable, *, waits_for: frozenset[ClusterEvent], now_s: float, group_key: Hashable = None
    ) -> bool:
        """The attempt found no node: parks the pod, unless an awaited event came during the attempt.

        Pods with the same `group_key` must get the same answer at any time. Returns whether other members of the group
        stay parked because of this answer.
        """
        has_event = self._had_event(key, waits_for)
        group = self._representatives.pop(key, None)
        if group is not None and group.key != group_key:
            # The pod's requirements have changed, so its answer does not hold for the group.
            self._wake_representative(group)
            group = None
        attempt = self._end(key)
        if attempt.is_discarded:
            return False
        pod = attempt.pod
        pod.rejections += 1
        pod.errors_in_a_row = 0
        if has_event:
            if group is not None:
                # The pod stays representative and is tried again.
                self._representatives[key] = group
            self._back_off(pod, pod.rejections, now_s)
            return False
        self._park(pod, waits_for, now_s, group_key)
        if group is not None:
            self._parked.groups.dismiss_representative(group)
        return group is not None and len(group.members) > 1

    def gated(self, key: Hashable, *, waits_for: frozenset[ClusterEvent], now_s: float) -> None:
        """The pod cannot be tried yet: parks it, without back-off when it wakes."""
        has_event = self._had_event(key, waits_for)
        attempt = self._end(key)
        if attempt.is_discarded:
            return
        attempt.pod.is_gated = True
        if has_event:
            self._back_off(attempt.pod, 0, now_s)
        else:
            self._park(attempt.pod, waits_for, now_s)

    def failed(self, key: Hashable, *, now_s: float) -> None:
        """The attempt ended in an error: it is retried after a back-off, without waiting for an event."""
        attempt = self._end(key)
        if attempt.is_discarded:
            return
        attempt.pod.errors_in_a_row += 1
        self._back_off(attempt.pod, attempt.pod.errors_in_a_row, now_s)

    def postponed(self, key: Hashable, *, until_s: float, interrupted_s: float | None = None) -> None:
        """The attempt must not begin before this time; or was interrupted, and goes on then behind pods that have waited for their turn."""
        attempt = self._end(key)
        if attempt.is_discarded:
            return
        pod, number = attempt.pod, next(self._numbers)
        pod.parked_at_s = None
        if interrupted_s is not None:
            pod.queued_at_s = interrupted_s
        self._place[key] = ("backoff", number)
        heapq.heappush(self._error_backoff, (until_s, -pod.priority, pod.queued_at_s, number, pod))

    def collided(self, key: Hashable, *, now_s: float) -> int:
        """Another scheduler won a race: retried as soon as its write can be seen here. Returns the errors in a row."""
        attempt = self._end(key)
        attempt.pod.errors_in_a_row += 1
        if not attempt.is_discarded:
            self._back_off(attempt.pod, attempt.pod.errors_in_a_row, now_s, first_s=COLLISION_FIRST_S)
        return attempt.pod.errors_in_a_row

    # --- Moves between the places -----------------------------------------------------------------------------------

    def _activate(self, pod: QueuedPod) -> None:
        number = next(self._numbers)
        self._place[pod.key] = ("active", number)
        heapq.heappush(self._active, (-pod.priority, pod.queued_at_s, number, pod))

    def _back_off(
        self,
        pod: QueuedPod,
        failures: int,
        now_s: float,
        *,
        first_s: float = BACKOFF_FIRST_S,
        queued_at_s: float | None = None,
    ) -> None:
        # A retried pod is placed behind pods of the same priority.
        pod.queued_at_s = now_s if queued_at_s is None else queued_at_s
        number = next(self._numbers)
        self._place[pod.key] = ("backoff", number)
        wait_s = 0.0 if pod.is_gated else min(first_s * 2.0 ** min(max(failures - 1, 0), 10), BACKOFF_MAX_S)
        pod.is_gated = False
        # The time that a pod was parked counts as back-off.
        begun_s = now_s if pod.parked_at_s is None else pod.parked_at_s
        pod.parked_at_s = None
        ready_s = begun_s + wait_s
        if first_s >= BACKOFF_FIRST_S:
            # Whole seconds, so that priority decides between pods that were tried shortly after each other.
            ready_s = floor(ready_s)
        heap = self._error_backoff if pod.errors_in_a_row else self._backoff
        heapq.heappush(heap, (max(ready_s, now_s), -pod.priority, pod.queued_at_s, number, pod))

    def _park(
        self, pod: QueuedPod, waits_for: frozenset[ClusterEvent], now_s: float, group_key: Hashable = None
    ) -> None:
        self._place[pod.key] = ("gated" if pod.is_gated else "unschedulable", next(self._numbers))
        self._parked.park(pod, waits_for, now_s, group_key)

    def _wake_representative(self, group: EquivalenceGroup[QueuedPod]) -> None:
        pod = self._parked.groups.choose_representative(group)
        if pod is None:
            self._parked.groups.dismiss_representative(group)
            return
        self._representatives[pod.key] = group
        self._parked.unpark(pod)
        # As old in the queue as if all members had been woken together: newer pods must not overtake them.
        self._back_off(pod, pod.rejections, self._now_s, queued_at_s=group.woken_at_s)

    def _try_next_member(self, key: Hashable) -> None:
        """If the pod represents a group and was not rejected, wakes the next member."""
        group = self._representatives.pop(key, None)
        if group is not None:
            self._wake_representative(group)

    def _pop_active(self) -> QueuedPod | None:
        while self._active:
            *_, number, pod = heapq.heappop(self._active)
            if self._place.get(pod.key) == ("active", number):
                return pod
        return None

    def _pop_backing_off(self) -> QueuedPod | None:
        """A pod whose back-off has not ended: it is tried early because no other pod is ready."""
        while self._backoff:
            *_, number, pod = heapq.heappop(self._backoff)
            if self._place.get(pod.key) == ("backoff", number):
                return pod
        return None

    def _release(self, now_s: float) -> None:
        """Moves pods on whose parking time or back-off has ended."""
        for pod in self._parked.due(now_s):
            self._parked.unpark(pod)
            self._back_off(pod, pod.rejections, now_s)
        for heap in (self._backoff, self._error_backoff):
            while heap and heap[0][0] <= now_s:
                *_, number, pod = heapq.heappop(heap)
                if self._place.get(pod.key) == ("backoff", number):
                    self._activate(pod)

    def _end(self, key: Hashable) -> _Attempt:
        self._try_next_member(key)
        attempt = self._binding.pop(key, None) or self._attempts.pop(key)
        if attempt.successor is not None:
            self._activate(attempt.successor)
        self._drop_recent()
        return attempt

    def _had_event(self, key: Hashable, waits_for: frozenset[ClusterEvent]) -> bool:
        events = self._recent.since(self._attempts[key].first_event)
        assert events is not None, "events are kept while an attempt needs them"
        return any(event in waits_for or event.of_any_subject in waits_for for event in events)

    def _drop_recent(self) -> None:
        if not self._recent:
            return
        oldest = next(iter(self._attempts.values()), None)
        self._recent.drop_before(oldest.first_event if oldest is not None else self._recent.next)
