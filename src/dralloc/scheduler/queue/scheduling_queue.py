"""Pods that wait for a node: who is next, who has to wait a while, and who waits for something to happen.

Pure: time comes in as seconds. Three places hold pods, as in Kubernetes: *active* (ready, by priority and age), *backoff*
(ready after a while that doubles with each failure, or when there is nothing better to do; those that are ready in the same
second go by priority and age, too), and *parked* (no attempt can succeed until one of the things happens that the last
attempt named). What happens while a pod is being tried is remembered
until its attempt ends, so a change that arrives in the middle is never lost.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from itertools import count, islice, takewhile
from math import floor
from typing import Final

from msgspec import Struct

from dralloc.scheduler.queue.equivalence_groups import EquivalenceGroup, EquivalenceGroups
from dralloc.scheduler.state.cluster_events import ClusterEvent

BACKOFF_FIRST_S: Final = 1.0
BACKOFF_MOST_S: Final = 10.0
COLLISION_FIRST_S: Final = 0.05
PARKED_MOST_S: Final = 300.0


class QueuedPod(Struct, kw_only=True):
    """A pod in the queue, with the history that its place depends on."""

    key: Hashable
    priority: int = 0
    queued_at_s: float = 0.0
    first_seen_s: float = 0.0
    attempts: int = 0
    rejections: int = 0
    errors_in_a_row: int = 0
    # Set while the pod is parked.
    parked_at_s: float | None = None
    # Parked before its attempt could begin, so it is not held back afterwards.
    is_gated: bool = False
    waits_for: frozenset[ClusterEvent] = frozenset()
    # What it is parked in, together with pods that ask for the same.
    crowd: EquivalenceGroup[QueuedPod] | None = None


class _InFlight(Struct):
    pod: QueuedPod
    since: int
    discarded: bool = False


@dataclass(slots=True)
class _Recent:
    """The happenings since the oldest attempt that is still running began."""

    first: int = 0
    happenings: deque[ClusterEvent] = field(default_factory=deque)

    @property
    def next(self) -> int:
        return self.first + len(self.happenings)

    def since(self, number: int) -> Iterator[ClusterEvent]:
        return (self.happenings[index] for index in range(number - self.first, len(self.happenings)))

    def forget_before(self, number: int) -> None:
        while self.first < number and self.happenings:
            self.happenings.popleft()
            self.first += 1
        self.first = max(self.first, number)


# When it is ready, then as in the active queue.
_BackingOff = tuple[float, int, float, int, QueuedPod]


class SchedulingQueue:
    """Every pod that has no node yet, each in exactly one place."""

    def __init__(self) -> None:
        self._numbers = count()
        self._active: list[tuple[int, float, int, QueuedPod]] = []
        self._backoff: list[_BackingOff] = []
        # Attempts that broke. Trying these early only breaks again.
        self._broken: list[_BackingOff] = []
        self._parked: dict[Hashable, QueuedPod] = {}
        self._parked_by: dict[ClusterEvent, dict[Hashable, QueuedPod]] = {}
        self._crowds: EquivalenceGroups[QueuedPod] = EquivalenceGroups()
        # Pods that are tried for their crowd, and the crowd.
        self._envoys: dict[Hashable, EquivalenceGroup[QueuedPod]] = {}
        self._in_flight: dict[Hashable, _InFlight] = {}
        # Decided on, being written: what happens meanwhile does not matter any more.
        self._binding: dict[Hashable, _InFlight] = {}
        # Where a key is now. Heap entries of pods that are elsewhere meanwhile are passed over when they surface.
        self._place: dict[Hashable, tuple[str, int]] = {}
        self._recent = _Recent()
        # The last time that we were told.
        self._now_s = 0.0

    def __len__(self) -> int:
        return len(self._place)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._place

    def waits_for(self, key: Hashable) -> frozenset[ClusterEvent] | None:
        """What a parked pod waits for; None for a pod that is not parked."""
        pod = self._parked.get(key)
        return pod.waits_for if pod is not None else None

    def counts(self) -> dict[str, int]:
        """How many pods wait in each place; those that are being tried wait in none."""
        counts = dict.fromkeys(("active", "backoff", "unschedulable", "gated"), 0)
        for place, _ in self._place.values():
            if place in counts:
                counts[place] += 1
        return counts

    def add(self, key: Hashable, *, priority: int, now_s: float) -> None:
        """A new pod, ready at once. One that is here already stays where it is."""
        if key not in self._place:
            self._activate(QueuedPod(key=key, priority=priority, queued_at_s=now_s, first_seen_s=now_s))

    def discard(self, key: Hashable) -> None:
        """The pod is gone or has a node."""
        self._place.pop(key, None)
        if (parked := self._parked.get(key)) is not None:
            self._unpark(parked)
        self._send_next(key)
        for flights in (self._in_flight, self._binding):
            if key in flights:
                flights[key].discarded = True

    def pop(self, *, now_s: float) -> QueuedPod | None:
        """The pod to try next, marked as being tried; `None` where every pod has to wait."""
        self._now_s = now_s
        self._release(now_s)
        pod = self._take_ready() or self._take_early()
        if pod is not None:
            pod.attempts += 1
            self._place[pod.key] = ("in_flight", next(self._numbers))
            self._in_flight[pod.key] = _InFlight(pod, self._recent.next)
        return pod

    def binding(self, key: Hashable) -> None:
        """The attempt found a node; whether the pod gets it is yet to be seen."""
        self._binding[key] = self._in_flight.pop(key)
        self._forget_recent()
        # What helped this pod may have more to give.
        self._send_next(key)

    def placed(self, key: Hashable) -> QueuedPod:
        """The pod has its node."""
        self._place.pop(key, None)
        return self._end(key).pod

    def rejected(
        self, key: Hashable, *, waits_for: frozenset[ClusterEvent], now_s: float, like: Hashable = None
    ) -> bool:
        """The attempt found no node: park the pod, unless what it waits for happened during the attempt.

        Pods that are given the same `like` must get the same answer at any time. Returns whether others sleep on because they
        would have got this answer.
        """
        happened = self._happened_meanwhile(key, waits_for)
        crowd = self._envoys.pop(key, None)
        if crowd is not None and crowd.like != like:
            # What it got is no answer for the others.
            self._send(crowd)
            crowd = None
        flight = self._end(key)
        if flight.discarded:
            return False
        pod = flight.pod
        pod.rejections += 1
        pod.errors_in_a_row = 0
        if happened:
            if crowd is not None:
                # Yet to be tried for all.
                self._envoys[key] = crowd
            self._back_off(pod, pod.rejections, now_s)
            return False
        self._park(pod, waits_for, now_s, like)
        if crowd is not None:
            self._crowds.returned(crowd)
        return crowd is not None and len(crowd.asleep) > 1

    def failed(self, key: Hashable, *, now_s: float) -> None:
        """The attempt broke: try again after a while, whatever happens."""
        flight = self._end(key)
        if flight.discarded:
            return
        flight.pod.errors_in_a_row += 1
        self._back_off(flight.pod, flight.pod.errors_in_a_row, now_s)

    def gated(self, key: Hashable, *, waits_for: frozenset[ClusterEvent], now_s: float) -> None:
        """The attempt could not begin: park the pod, and try it at once when what it waits for happens."""
        happened = self._happened_meanwhile(key, waits_for)
        flight = self._end(key)
        if flight.discarded:
            return
        flight.pod.is_gated = True
        if happened:
            self._back_off(flight.pod, 0, now_s)
        else:
            self._park(flight.pod, waits_for, now_s)

    def collided(self, key: Hashable, *, now_s: float) -> int:
        """Somebody else was faster: try again as soon as what they did can be seen here. Returns the errors in a row."""
        flight = self._end(key)
        flight.pod.errors_in_a_row += 1
        if not flight.discarded:
            self._back_off(flight.pod, flight.pod.errors_in_a_row, now_s, first_s=COLLISION_FIRST_S)
        return flight.pod.errors_in_a_row

    def wake(self, event: ClusterEvent, *, now_s: float) -> int:
        """Wake the parked pods that this may help, of each crowd the first; returns how many."""
        self._now_s = now_s
        if self._in_flight:
            self._recent.happenings.append(event)
        else:
            self._recent.forget_before(self._recent.next)
        woken: dict[Hashable, QueuedPod] = {}
        for wanted in (event, event.any):
            woken.update(self._parked_by.get(wanted, {}))
        for pod in woken.values():
            self._unpark(pod)
            self._back_off(pod, pod.rejections, now_s)
        crowds = self._crowds.waiting_for(event.any)
        for crowd in crowds:
            crowd.woken_at_s = now_s
            self._send(crowd)
        return len(woken) + len(crowds)

    def alike(self, like: Hashable) -> tuple[Hashable, ...]:
        """The pods that sleep while one of them is tried for all."""
        crowd = self._crowds.find(like)
        return tuple(crowd.asleep) if crowd is not None else ()

    def next_time_s(self) -> float | None:
        """When a pod becomes ready by itself; `None` where only a event can do that."""
        times = [ready_s for heap in (self._backoff, self._broken) for ready_s, *_ in heap[:1]]
        times += [tried_s for tried_s, _ in islice(self._parked_until(), 1)]
        return min(times, default=None)

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
        # A retried pod goes behind its peers.
        pod.queued_at_s = now_s if queued_at_s is None else queued_at_s
        number = next(self._numbers)
        self._place[pod.key] = ("backoff", number)
        wait_s = 0.0 if pod.is_gated else min(first_s * 2.0 ** min(max(failures - 1, 0), 10), BACKOFF_MOST_S)
        pod.is_gated = False
        # A parked pod has waited already: its back-off began when it was parked.
        begun_s = now_s if pod.parked_at_s is None else pod.parked_at_s
        pod.parked_at_s = None
        ready_s = begun_s + wait_s
        if first_s >= BACKOFF_FIRST_S:
            # Whole seconds, so that priority decides between pods that were tried shortly after each other.
            ready_s = floor(ready_s)
        heap = self._broken if pod.errors_in_a_row else self._backoff
        heapq.heappush(heap, (max(ready_s, now_s), -pod.priority, pod.queued_at_s, number, pod))

    def _park(self, pod: QueuedPod, waits_for: frozenset[ClusterEvent], now_s: float, like: Hashable = None) -> None:
        pod.parked_at_s, pod.waits_for = now_s, waits_for
        self._place[pod.key] = ("gated" if pod.is_gated else "unschedulable", next(self._numbers))
        self._parked[pod.key] = pod
        if like is not None:
            shared = (event for event in waits_for if event.subject is None)
            rank = (-pod.priority, pod.first_seen_s)
            pod.crowd = self._crowds.join(like, pod.key, pod, rank=rank, waits_for=shared)
        for event in _waited_for_alone(pod):
            self._parked_by.setdefault(event, {})[pod.key] = pod

    def _unpark(self, pod: QueuedPod) -> None:
        del self._parked[pod.key]
        for event in _waited_for_alone(pod):
            waiting = self._parked_by[event]
            del waiting[pod.key]
            if not waiting:
                del self._parked_by[event]
        if pod.crowd is not None:
            self._crowds.leave(pod.crowd, pod.key)
        pod.waits_for, pod.crowd = frozenset(), None

    def _send(self, crowd: EquivalenceGroup[QueuedPod]) -> None:
        """Wake one of the crowd, if there is any left, to be tried for all."""
        pod = self._crowds.send(crowd)
        if pod is None:
            self._crowds.returned(crowd)
            return
        self._envoys[pod.key] = crowd
        self._unpark(pod)
        # It is as old in the queue as if all had been woken together: who came since must not get ahead of them.
        self._back_off(pod, pod.rejections, self._now_s, queued_at_s=crowd.woken_at_s)

    def _send_next(self, key: Hashable) -> None:
        """If the pod was tried for a crowd, it has not shown that it is in vain: the next one."""
        crowd = self._envoys.pop(key, None)
        if crowd is not None:
            self._send(crowd)

    def _take_ready(self) -> QueuedPod | None:
        while self._active:
            *_, number, pod = heapq.heappop(self._active)
            if self._place.get(pod.key) == ("active", number):
                return pod
        return None

    def _take_early(self) -> QueuedPod | None:
        """A pod whose back-off is not over yet: better than nothing."""
        while self._backoff:
            *_, number, pod = heapq.heappop(self._backoff)
            if self._place.get(pod.key) == ("backoff", number):
                return pod
        return None

    def _release(self, now_s: float) -> None:
        """Make ready what has waited long enough."""
        for pod in [pod for _, pod in takewhile(lambda entry: entry[0] <= now_s, self._parked_until())]:
            self._unpark(pod)
            self._back_off(pod, pod.rejections, now_s)
        for heap in (self._backoff, self._broken):
            while heap and heap[0][0] <= now_s:
                *_, number, pod = heapq.heappop(heap)
                if self._place.get(pod.key) == ("backoff", number):
                    self._activate(pod)

    def _parked_until(self) -> Iterator[tuple[float, QueuedPod]]:
        """When each parked pod is tried in any case; the earliest first, because pods are kept in the order of parking."""
        for pod in self._parked.values():
            assert pod.parked_at_s is not None
            yield pod.parked_at_s + PARKED_MOST_S, pod

    def _end(self, key: Hashable) -> _InFlight:
        self._send_next(key)
        flight = self._binding.pop(key, None) or self._in_flight.pop(key)
        self._forget_recent()
        return flight

    def _happened_meanwhile(self, key: Hashable, waits_for: frozenset[ClusterEvent]) -> bool:
        since = self._in_flight[key].since
        return any(_helps(waits_for, event) for event in self._recent.since(since))

    def _forget_recent(self) -> None:
        # Attempts are kept in the order in which they began.
        oldest = next(iter(self._in_flight.values()), None)
        self._recent.forget_before(oldest.since if oldest is not None else self._recent.next)


def _waited_for_alone(pod: QueuedPod) -> Iterator[ClusterEvent]:
    """What the pod is woken by itself for; for the rest, its crowd is."""
    return (event for event in pod.waits_for if pod.crowd is None or event.subject is not None)


def _helps(waits_for: frozenset[ClusterEvent], event: ClusterEvent) -> bool:
    return event in waits_for or event.any in waits_for
