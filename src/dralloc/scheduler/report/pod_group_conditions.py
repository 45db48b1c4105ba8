"""Writes the condition `PodGroupInitiallyScheduled` of PodGroups. Once it is true, it stays true."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Final

from msgspec import Struct

from dralloc.client.api_calls import ApiCalls, PatchType
from dralloc.client.known_resources import resource_for
from dralloc.client.transport import TransportError
from dralloc.client.typed_resource import ObjectKey
from dralloc.client.work_queue import Backoff, WorkQueue, work
from dralloc.kube.meta_v1 import Condition
from dralloc.kube.scheduling_v1beta1 import INITIALLY_SCHEDULED, SCHEDULED, PodGroup
from dralloc.kube.timestamps import print_timestamp
from dralloc.primitives.clock import Clock
from dralloc.primitives.errors import ApiError, NotFound
from dralloc.scheduler.state.tracked_claim import revision_of

POD_GROUPS: Final = resource_for(PodGroup)


class _Stated(Struct, frozen=True):
    uid: str
    generation: int
    reason: str
    message: str


class PodGroupConditionWriter:
    """`find` has the groups as the watch shows them."""

    def __init__(self, calls: ApiCalls, clock: Clock, find: Callable[[str, str], PodGroup | None]) -> None:
        self._calls = calls
        self._clock = clock
        self._find = find
        self._unwritten: dict[ObjectKey, _Stated] = {}
        # By UID, until the watch shows it: the revision from which on a group, here its key, shows that its condition is true, unless
        # a user has taken it away.
        self._done: dict[str, tuple[ObjectKey, float]] = {}
        self._queue: WorkQueue[ObjectKey] = WorkQueue(Backoff(first_s=1.0, most_s=60.0))

    async def run(self) -> None:
        """Writes until cancelled."""
        await work(self._queue, self._write, lambda *_: None)

    def report(self, group: PodGroup, reason: str, message: str) -> None:
        """States how the last attempt for the group ended; `reason` is one of the API's."""
        uid, key = group.metadata.uid, ObjectKey(group.metadata.namespace, group.metadata.name)
        _, done = self._done.get(uid, (key, 0))
        if group.was_scheduled or revision_of(group) < done or self._says(group, reason, message):
            return
        if reason == SCHEDULED:
            self._drop_shown()
            self._done[uid] = key, inf
        self._unwritten[key] = _Stated(uid, group.metadata.generation, reason, message)
        self._queue.add(key)

    @staticmethod
    def _says(group: PodGroup, reason: str, message: str) -> bool:
        stated = _condition_of(group)
        return stated is not None and (stated.reason, stated.message) == (reason, message)

    async def _write(self, key: ObjectKey) -> None:
        stated, group = self._unwritten.pop(key, None), self._find(key.namespace, key.name)
        if stated is None or group is None or group.metadata.uid != stated.uid:
            return
        is_true = stated.reason == SCHEDULED
        condition = {
            "type": INITIALLY_SCHEDULED,
            "status": "True" if is_true else "False",
            "reason": stated.reason,
            "message": stated.message,
            "observedGeneration": stated.generation,
            "lastTransitionTime": self._transition_time(group, "True" if is_true else "False"),
        }
        patch = {"metadata": {"uid": stated.uid}, "status": {"conditions": [condition]}}
        try:
            stored = await self._calls.patch(POD_GROUPS, key, patch, type=PatchType.STRATEGIC, subresource="status")
            if is_true:
                self._done[stated.uid] = key, revision_of(stored)
        except NotFound:
            self._done.pop(stated.uid, None)
        except (ApiError, TransportError):
            self._unwritten.setdefault(key, stated)
            raise

    def _drop_shown(self) -> None:
        """Drops the oldest that the watch shows, or whose group is gone."""
        while self._done:
            uid, (key, done) = next(iter(self._done.items()))
            group = self._find(key.namespace, key.name)
            if group is not None and group.metadata.uid == uid and revision_of(group) < done:
                return
            del self._done[uid]

    def _transition_time(self, group: PodGroup, status: str) -> str:
        known = _condition_of(group)
        if known is not None and known.status == status and known.last_transition_time:
            return str(known.last_transition_time)
        return print_timestamp(self._clock.now())


def _condition_of(group: PodGroup) -> Condition | None:
    return next((each for each in group.status.conditions if each.type == INITIALLY_SCHEDULED), None)
