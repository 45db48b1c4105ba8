"""Parked pods: no attempt for them can succeed before one of the cluster events that their last attempt named."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from itertools import takewhile
from typing import Final

from msgspec import Struct

from dralloc.scheduler.queue.equivalence_groups import EquivalenceGroup, EquivalenceGroups
from dralloc.scheduler.state.cluster_events import ClusterEvent

# A parked pod is tried again after this time without any event.
PARKED_MAX_S: Final = 300.0


class QueuedPod(Struct, kw_only=True):
    """A pod in the queue, with the history that its position depends on."""

    key: Hashable
    priority: int = 0
    queued_at_s: float = 0.0
    first_seen_s: float = 0.0
    attempts: int = 0
    rejections: int = 0
    errors_in_a_row: int = 0
    # The rest is set while the pod is parked.
    parked_at_s: float | None = None
    # Parked before a real attempt, so it is tried without back-off when it wakes.
    is_gated: bool = False
    waits_for: frozenset[ClusterEvent] = frozenset()
    group: EquivalenceGroup[QueuedPod] | None = None


class ParkedPods:
    """Parked pods by the events that wake them.

    A member of an equivalence group wakes by itself only for events about one object, like its own claim. For all other
    events the group's representative wakes.
    """

    def __init__(self) -> None:
        # In the order of parking.
        self.pods: dict[Hashable, QueuedPod] = {}
        self._by_event: dict[ClusterEvent, dict[Hashable, QueuedPod]] = {}
        self.groups: EquivalenceGroups[QueuedPod] = EquivalenceGroups()

    def find(self, key: Hashable) -> QueuedPod | None:
        return self.pods.get(key)

    def park(
        self, pod: QueuedPod, waits_for: frozenset[ClusterEvent], now_s: float, group_key: Hashable = None
    ) -> None:
        pod.parked_at_s, pod.waits_for = now_s, waits_for
        self.pods[pod.key] = pod
        if group_key is not None:
            shared = (event for event in waits_for if event.subject is None)
            rank = (-pod.priority, pod.first_seen_s)
            pod.group = self.groups.join(group_key, pod.key, pod, rank=rank, waits_for=shared)
        for event in _own_events(pod):
            self._by_event.setdefault(event, {})[pod.key] = pod

    def unpark(self, pod: QueuedPod) -> None:
        del self.pods[pod.key]
        for event in _own_events(pod):
            waiting = self._by_event[event]
            del waiting[pod.key]
            if not waiting:
                del self._by_event[event]
        if pod.group is not None:
            self.groups.leave(pod.group, pod.key)
        pod.waits_for, pod.group = frozenset(), None

    def waiting_for(self, event: ClusterEvent) -> tuple[QueuedPod, ...]:
        """The pods that wake by themselves for the event."""
        found: dict[Hashable, QueuedPod] = {}
        for wanted in (event, event.of_any_subject):
            found.update(self._by_event.get(wanted, {}))
        return tuple(found.values())

    def next_time_s(self) -> float | None:
        """When the first pod is to be tried without an event; None if no pod is parked."""
        return next((due_s for due_s, _ in self._due_times()), None)

    def due(self, now_s: float) -> tuple[QueuedPod, ...]:
        """The pods that have been parked for `PARKED_MAX_S`."""
        if not self.pods:
            return ()
        return tuple(pod for _, pod in takewhile(lambda entry: entry[0] <= now_s, self._due_times()))

    def _due_times(self) -> Iterator[tuple[float, QueuedPod]]:
        """Earliest first, because pods are kept in the order of parking."""
        for pod in self.pods.values():
            assert pod.parked_at_s is not None
            yield pod.parked_at_s + PARKED_MAX_S, pod


def _own_events(pod: QueuedPod) -> Iterator[ClusterEvent]:
    return (event for event in pod.waits_for if pod.group is None or event.subject is not None)
