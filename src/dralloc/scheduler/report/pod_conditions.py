"""Pod conditions and events: what users see of an attempt, written only when there is something new to say.

A rejection equal to the last one is not written again. Counts in messages change all the time, so a message that differs from
the last one only in numbers is written `SAME_AGAIN_S` later, with the numbers of that time. `Scheduled` events are
written slowly in the background: the pod shows its node anyway, and pods without a node come first.
"""

from __future__ import annotations

import asyncio
import re
from typing import Final

from msgspec import Struct

from dralloc.client.api_calls import ApiCalls, PatchType
from dralloc.client.event_recorder import EventRecorder, PacedReports, Report, reference_to
from dralloc.client.known_resources import resource_for
from dralloc.client.transport import TransportError
from dralloc.client.typed_resource import ObjectKey
from dralloc.client.work_queue import Backoff, WorkQueue, work
from dralloc.kube.core_v1 import Event
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import ResourceClaim
from dralloc.kube.timestamps import print_timestamp
from dralloc.primitives.clock import Clock
from dralloc.primitives.errors import ApiError, NotFound

UNSCHEDULABLE: Final = "Unschedulable"
ERROR: Final = "SchedulerError"
SAME_AGAIN_S: Final = 60.0
SCHEDULED_PER_S: Final = 20.0
WRITERS: Final = 4

PODS: Final = resource_for(Pod)
_NUMBERS: Final = re.compile(r"\d+( nodes?\b)?")


class Unscheduled(Struct, frozen=True):
    """Why a pod has no node: the reason and message of its `PodScheduled` condition."""

    reason: str
    message: str

    @property
    def gist(self) -> str:
        """The text without its numbers."""
        return f"{self.reason}: {_NUMBERS.sub('#', self.message)}"

    def is_stored_in(self, pod: Pod) -> bool:
        return any(
            (condition.type, condition.status, condition.reason, condition.message)
            == ("PodScheduled", "False", self.reason, self.message)
            for condition in pod.status.conditions
        )


class WrittenCondition(Struct, frozen=True):
    """The last condition written for a pod, and when."""

    condition: Unscheduled
    at_s: float


class _Unwritten(Struct):
    pod: Pod
    condition: Unscheduled
    has_event: bool = False


def delay_before_write_s(condition: Unscheduled, last: WrittenCondition | None, pod: Pod, now_s: float) -> float | None:
    """How long to wait before the condition is written; None if it must not be written because it says nothing new."""
    if last is None or last.condition.gist != condition.gist:
        return 0.0
    delay_s = max(last.at_s + SAME_AGAIN_S - now_s, 0.0)
    if last.condition == condition and (delay_s or condition.is_stored_in(pod)):
        return None
    return delay_s


class PodConditionWriter:
    """Accepts conditions and events without waiting; `run` writes them."""

    def __init__(self, calls: ApiCalls, clock: Clock, *, component: str) -> None:
        self._calls = calls
        self._clock = clock
        self._events = EventRecorder(calls, resource_for(Event), component=component, clock=clock)
        self._written: dict[str, WrittenCondition] = {}
        self._unwritten: dict[ObjectKey, _Unwritten] = {}
        self._queue: WorkQueue[ObjectKey] = WorkQueue(Backoff(first_s=1.0, most_s=60.0))
        self._scheduled = PacedReports(self._events, clock, per_s=SCHEDULED_PER_S)

    async def run(self) -> None:
        """Writes until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._events.run())
            tasks.create_task(self._scheduled.run())
            for _ in range(WRITERS):
                tasks.create_task(work(self._queue, self._write, lambda *_: None))

    def unscheduled(self, pod: Pod, reason: str, message: str) -> bool:
        """Reports that the pod has no node; returns whether that is new."""
        key = ObjectKey(pod.metadata.namespace, pod.metadata.name)
        now_s = asyncio.get_running_loop().time()
        condition = Unscheduled(reason, message)
        delay_s = delay_before_write_s(condition, self._written.get(pod.metadata.uid), pod, now_s)
        if delay_s is None:
            self._drop_outdated(key, message)
            return False
        self._unwritten[key] = _Unwritten(pod, condition)
        if delay_s:
            self._queue.add_after(key, delay_s)
        else:
            self._written[pod.metadata.uid] = WrittenCondition(condition, now_s)
            self._queue.add(key)
        return True

    def devices_pending(self, pod: Pod, claim: ResourceClaim) -> None:
        """Reports that the pod waits for binding conditions of the claim's devices."""
        message = f"waiting for binding conditions of the devices of claim {claim.metadata.name}"
        self._report(pod, "Normal", "BindingConditionsPending", message, "Scheduling")

    def strategy_refused(self, pod: Pod, message: str) -> None:
        self._report(pod, "Warning", "StrategyNotAllowed", message, "Scheduling")

    def preempted(self, victim: Pod, by: Pod, node: str, group: str = "") -> None:
        """Reports whom a pod was evicted for: a pod, or its group. The names of pods in other namespaces are confidential."""
        is_near = victim.metadata.namespace == by.metadata.namespace
        name = f"{by.metadata.namespace}/{group or by.metadata.name}" if is_near else by.metadata.uid
        who = f"pod group {name}" if group and is_near else f"pod {name}"
        self._report(victim, "Normal", "Preempted", f"Preempted by {who} on node {node}", "Preempting")

    def assumed(self, pod: Pod) -> None:
        """Drops an unwritten condition of a pod that was assigned a node: it must not be written after the binding."""
        if self._unwritten.pop(ObjectKey(pod.metadata.namespace, pod.metadata.name), None) is not None:
            self._written.pop(pod.metadata.uid, None)

    def scheduled(self, pod: Pod, node: str) -> None:
        """Reports that the pod has its node."""
        self.forget(pod)
        message = f"{pod.metadata.namespace}/{pod.metadata.name} is assigned to {node}"
        self._scheduled.add(Report(reference_to(pod, "v1", "Pod"), "Normal", "Scheduled", message, "Binding"))

    def forget(self, pod: Pod) -> None:
        """Writes nothing more about the pod, which has a node or is gone."""
        self._written.pop(pod.metadata.uid, None)
        self._unwritten.pop(ObjectKey(pod.metadata.namespace, pod.metadata.name), None)

    def _drop_outdated(self, key: ObjectKey, message: str) -> None:
        """Drops an unwritten condition that differs from the current one, which is the one last written."""
        unwritten = self._unwritten.get(key)
        if unwritten is not None and unwritten.condition.message != message:
            del self._unwritten[key]

    def _report(self, pod: Pod, kind: str, reason: str, message: str, action: str, *, is_latest: bool = False) -> None:
        about = reference_to(pod, "v1", "Pod")
        self._events.report(Report(about, kind, reason, message, action, is_latest=is_latest))

    async def _write(self, key: ObjectKey) -> None:
        unwritten = self._unwritten.pop(key, None)
        if unwritten is None:
            return
        pod, condition = unwritten.pod, unwritten.condition
        if not unwritten.has_event:
            unwritten.has_event = True
            self._written[pod.metadata.uid] = WrittenCondition(condition, asyncio.get_running_loop().time())
            self._report(pod, "Warning", "FailedScheduling", condition.message, "Scheduling", is_latest=True)
        if condition.is_stored_in(pod):
            return
        stored_form = {
            "type": "PodScheduled",
            "status": "False",
            "reason": condition.reason,
            "message": condition.message,
            "lastTransitionTime": _unscheduled_since(pod) or print_timestamp(self._clock.now()),
        }
        patch = {"metadata": {"uid": pod.metadata.uid}, "status": {"conditions": [stored_form]}}
        try:
            await self._calls.patch(PODS, key, patch, type=PatchType.STRATEGIC, subresource="status")
        except NotFound:
            return
        except (ApiError, TransportError):
            if pod.metadata.uid in self._written:
                self._unwritten.setdefault(key, unwritten)
            raise


def _unscheduled_since(pod: Pod) -> str | None:
    """The transition time of the pod's `PodScheduled=False` condition."""
    conditions = pod.status.conditions
    known = (condition for condition in conditions if (condition.type, condition.status) == ("PodScheduled", "False"))
    return next((condition.last_transition_time for condition in known), None)
