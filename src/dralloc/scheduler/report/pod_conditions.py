"""What users see of an attempt: the pod's PodScheduled condition and events. Once, and not again with every attempt.

An attempt that ends as the one before it is no news. Counts in a message change all the time, so a message that differs
from the last in numbers alone is written some time after that one, with the numbers of then. That a pod got its node is plain to see in the pod, so
the event that says so waits its turn: it must not hold up pods that have none yet.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from typing import Final

from msgspec import Struct

from dralloc.api.core_v1 import Event
from dralloc.api.pod_v1 import Pod
from dralloc.api.resource_v1 import ResourceClaim
from dralloc.api.timestamps import print_timestamp
from dralloc.client.api_calls import ApiCalls, PatchType
from dralloc.client.event_recorder import EventRecorder, Report, reference_to
from dralloc.client.known_resources import resource_for
from dralloc.client.transport import TransportError
from dralloc.client.typed_resource import ObjectKey
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


class _Told(Struct):
    """The last thing told about a pod that waits."""

    gist: str
    message: str
    at_s: float


class _Unwritten(Struct):
    """What is to be told about a pod that waits."""

    pod: Pod
    reason: str
    message: str
    is_reported: bool = False


class PodConditionWriter:
    """Takes what happened at once, and writes it from `run`."""

    def __init__(self, calls: ApiCalls, clock: Clock, *, component: str) -> None:
        self._calls = calls
        self._clock = clock
        self._events = EventRecorder(calls, resource_for(Event), component=component, clock=clock)
        self._told: dict[str, _Told] = {}
        self._unwritten: dict[ObjectKey, _Unwritten] = {}
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

    def waits(self, pod: Pod, reason: str, message: str) -> bool:
        """The pod has no node, for this reason. Returns whether that is news."""
        key = ObjectKey(pod.metadata.namespace, pod.metadata.name)
        now_s = asyncio.get_running_loop().time()
        gist, told = _gist(reason, message), self._told.get(pod.metadata.uid)
        wait_s = 0.0
        if told is not None and told.gist == gist:
            wait_s = told.at_s + SAME_AGAIN_S - now_s
            if told.message == message and (wait_s > 0 or _is_written(pod, reason, message)):
                self._drop_other(key, message)
                return False
        self._unwritten[key] = _Unwritten(pod, reason, message)
        if wait_s > 0:
            self._queue.add_after(key, wait_s)
        else:
            self._told[pod.metadata.uid] = _Told(gist, message, now_s)
            self._queue.add(key)
        return True

    def devices_pending(self, pod: Pod, claim: ResourceClaim) -> None:
        """The pod has devices that must be made ready before it gets its node."""
        message = f"waiting for the devices of claim {claim.metadata.name} to be made ready"
        self._report(pod, "Normal", "BindingConditionsPending", message, "Scheduling")

    def decided(self, pod: Pod) -> None:
        """The pod is to get a node: what was not told by now is not true any more, and must not be told after it has one."""
        if self._unwritten.pop(ObjectKey(pod.metadata.namespace, pod.metadata.name), None) is not None:
            self._told.pop(pod.metadata.uid, None)

    def forget(self, pod: Pod) -> None:
        """The pod has a node, or is gone: nothing is told about it any more."""
        self._told.pop(pod.metadata.uid, None)
        self._unwritten.pop(ObjectKey(pod.metadata.namespace, pod.metadata.name), None)

    def _drop_other(self, key: ObjectKey, message: str) -> None:
        """The last thing told is true again: what was to be told since is not."""
        unwritten = self._unwritten.get(key)
        if unwritten is not None and unwritten.message != message:
            del self._unwritten[key]

    def _report(self, pod: Pod, kind: str, reason: str, message: str, action: str, *, is_latest: bool = False) -> None:
        about = reference_to(pod, "v1", "Pod")
        self._events.report(Report(about, kind, reason, message, action, is_latest=is_latest))

    async def _write(self, key: ObjectKey) -> None:
        unwritten = self._unwritten.pop(key, None)
        if unwritten is None:
            return
        pod, reason, message = unwritten.pod, unwritten.reason, unwritten.message
        if not unwritten.is_reported:
            unwritten.is_reported = True
            now_s = asyncio.get_running_loop().time()
            self._told[pod.metadata.uid] = _Told(_gist(reason, message), message, now_s)
            self._report(pod, "Warning", "FailedScheduling", message, "Scheduling", is_latest=True)
        if _is_written(pod, reason, message):
            return
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
            if pod.metadata.uid in self._told:
                self._unwritten.setdefault(key, unwritten)
            raise


def _gist(reason: str, message: str) -> str:
    return f"{reason}: {_NUMBERS.sub('#', message)}"


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
