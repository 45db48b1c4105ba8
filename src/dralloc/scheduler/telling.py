"""What users see of an attempt: the pod's PodScheduled condition and events. Once, and not again with every attempt.

An attempt that ends as the one before it is no news. Counts in a message change all the time, so a message that differs
from the last in numbers alone is written again only after a while. That a pod got its node is plain to see in the pod, so
the event that says so waits its turn: it must not hold up pods that have none yet.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from typing import Final

from dralloc.api.core_v1 import Event, Pod
from dralloc.api.resource_v1 import ResourceClaim
from dralloc.api.timestamps import print_timestamp
from dralloc.client.calls import Calls, PatchType
from dralloc.client.events import EventRecorder, Report, reference_to
from dralloc.client.resource import ObjectKey
from dralloc.client.resources import resource_for
from dralloc.client.transport import TransportError
from dralloc.client.work_queue import Backoff, WorkQueue, work
from dralloc.primitives.clock import Clock
from dralloc.primitives.errors import ApiError, NotFound

UNSCHEDULABLE: Final = "Unschedulable"
ERROR: Final = "SchedulerError"
SAME_AGAIN_S: Final = 60.0
SCHEDULED_PER_S: Final = 20.0
SCHEDULED_WAITING_MAX: Final = 10_000
WRITERS: Final = 4

PODS: Final = resource_for(Pod)
_NUMBERS: Final = re.compile(r"\d+( nodes?\b)?")


class Teller:
    """Takes what happened at once, and writes it from `run`."""

    def __init__(self, calls: Calls, clock: Clock, *, component: str) -> None:
        self._calls = calls
        self._clock = clock
        self._events = EventRecorder(calls, resource_for(Event), component=component, clock=clock)
        # The last thing told about a pod that waits, and what is yet to be written of it.
        self._told: dict[str, tuple[str, float]] = {}
        self._unwritten: dict[ObjectKey, tuple[Pod, str, str]] = {}
        self._queue: WorkQueue[ObjectKey] = WorkQueue(Backoff(first_s=1.0, most_s=60.0))
        self._scheduled: deque[tuple[Pod, str]] = deque(maxlen=SCHEDULED_WAITING_MAX)
        self._was_scheduled = asyncio.Event()

    async def run(self) -> None:
        """Write until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._events.run())
            tasks.create_task(self._tell_scheduled())
            for _ in range(WRITERS):
                tasks.create_task(work(self._queue, self._write, lambda *_: None))

    def scheduled(self, pod: Pod, node: str) -> None:
        self.forget(pod)
        self._scheduled.append((pod, node))
        self._was_scheduled.set()

    async def _tell_scheduled(self) -> None:
        while True:
            while self._scheduled:
                pod, node = self._scheduled.popleft()
                name = f"{pod.metadata.namespace}/{pod.metadata.name}"
                self._report(pod, "Normal", "Scheduled", f"{name} is assigned to {node}", "Binding")
                await asyncio.sleep(1 / SCHEDULED_PER_S)
            self._was_scheduled.clear()
            await self._was_scheduled.wait()

    def waits(self, pod: Pod, reason: str, message: str) -> None:
        """The pod has no node, for this reason."""
        now_s = asyncio.get_running_loop().time()
        gist = f"{reason}: {_NUMBERS.sub('#', message)}"
        told, told_at_s = self._told.get(pod.metadata.uid, ("", 0.0))
        if told == gist and (_is_written(pod, reason, message) or now_s < told_at_s + SAME_AGAIN_S):
            return
        self._told[pod.metadata.uid] = (gist, now_s)
        self._report(pod, "Warning", "FailedScheduling", message, "Scheduling")
        if not _is_written(pod, reason, message):
            key = ObjectKey(pod.metadata.namespace, pod.metadata.name)
            self._unwritten[key] = (pod, reason, message)
            self._queue.add(key)

    def devices_pending(self, pod: Pod, claim: ResourceClaim) -> None:
        """The pod has devices that must be made ready before it gets its node."""
        message = f"waiting for the devices of claim {claim.metadata.name} to be made ready"
        self._report(pod, "Normal", "BindingConditionsPending", message, "Scheduling")

    def forget(self, pod: Pod) -> None:
        """The pod has a node, or is gone: nothing is told about it any more."""
        self._told.pop(pod.metadata.uid, None)
        self._unwritten.pop(ObjectKey(pod.metadata.namespace, pod.metadata.name), None)

    def _report(self, pod: Pod, kind: str, reason: str, message: str, action: str) -> None:
        self._events.report(Report(reference_to(pod, "v1", "Pod"), kind, reason, message, action))

    async def _write(self, key: ObjectKey) -> None:
        pending = self._unwritten.pop(key, None)
        if pending is None:
            return
        pod, reason, message = pending
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": reason,
            "message": message,
            "lastTransitionTime": _since(pod) or print_timestamp(self._clock.now()),
        }
        patch = {"metadata": {"uid": pod.metadata.uid}, "status": {"conditions": [condition]}}
        try:
            await self._calls.patch(PODS, key, patch, type=PatchType.STRATEGIC, subresource="status")
        except NotFound:
            return
        except (ApiError, TransportError):
            self._unwritten.setdefault(key, pending)
            raise


def _is_written(pod: Pod, reason: str, message: str) -> bool:
    return any(
        (condition.type, condition.status, condition.reason, condition.message)
        == ("PodScheduled", "False", reason, message)
        for condition in pod.status.conditions
    )


def _since(pod: Pod) -> str | None:
    """Since when the pod is known not to be scheduled."""
    conditions = pod.status.conditions
    known = (condition for condition in conditions if (condition.type, condition.status) == ("PodScheduled", "False"))
    return next((condition.last_transition_time for condition in known), None)
