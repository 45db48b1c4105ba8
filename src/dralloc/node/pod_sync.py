"""The reconciliation loop for pods: syncs a pod whenever something about it changed, and takes the next steps.

A sync starts from the present state, so missed and repeated events do no harm. The same code serves one node with real drivers and
thousands of simulated nodes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from dralloc.client.api_calls import ApiCalls, PatchType
from dralloc.client.event_recorder import EventRecorder, Report, reference_to
from dralloc.client.typed_resource import key_of, version_of
from dralloc.client.work_queue import WorkQueue, work
from dralloc.kube.pod_claims import claims_of
from dralloc.node.checkpoint import ClaimRecord, ReportedDevice
from dralloc.node.claims import ClaimsFailed, PodClaimPreparer, PodStage
from dralloc.node.health import NOT_KNOWN, HealthReport
from dralloc.node.metrics import NodeMetrics
from dralloc.node.pod_plan import NEVER_RUN, ContainerRun, Exit, PodPlan, plan_pod
from dralloc.node.pod_status import (
    PodFacts,
    Waiting,
    has_other_readiness,
    pod_status,
    restored_runs,
    status_patch,
)
from dralloc.node.pod_view import NODE_PODS, NodeContainer, NodePod, ResourceHealth, ResourceStatus
from dralloc.node.runtime import CannotStart, Launch, Runtime
from dralloc.node.timings import DEFAULT_TIMINGS, Timings
from dralloc.node.tracked_pod import Ending, TrackedPod
from dralloc.primitives.clock import Clock
from dralloc.primitives.errors import Conflict, Invalid, NotFound, RequestEntityTooLarge
from dralloc.primitives.metrics import CounterMetric

_logger = logging.getLogger(__name__)

# A container that ended while no agent was running.
LOST_CODE: Final = 137
LOST_REASON: Final = "ContainerStatusUnknown"


class TryAgain(Exception):
    """The pod has not reached its desired state; the sync is retried with backoff."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSyncContext:
    """The components that `PodSync` works with."""

    # Calls with the rights of a node.
    calls_of_node: Callable[[str], ApiCalls]
    claims: PodClaimPreparer
    runtime: Runtime
    events: EventRecorder
    clock: Clock
    timings: Timings = DEFAULT_TIMINGS
    health_of: HealthOf = lambda *_: NOT_KNOWN
    shows_health: bool = True
    host_ip: str = ""
    start_errors: CounterMetric = field(default_factory=lambda: NodeMetrics(tuple).start_errors)


class PodSync:
    """Syncs the pods of one or many nodes. An informer calls `pod_changed`; `run` does the work."""

    def __init__(self, context: PodSyncContext) -> None:
        self._context = context
        self._pods: dict[str, TrackedPod] = {}
        self._queue: WorkQueue[str] = WorkQueue(context.timings.pod_backoff)
        context.runtime.listen(self)

    def pod_changed(self, before: NodePod | None, after: NodePod | None) -> None:
        """Handle an informer event; the informer has only pods that are bound to these nodes."""
        pod = after or before
        assert pod is not None
        uid = pod.metadata.uid
        known = self._pods.get(uid)
        if after is None and (known is None or known.is_over):
            self._forget(uid)
            return
        if known is None:
            assert after is not None
            if after.is_finished and not self._holds_anything(after):
                return
            known = self._pods[uid] = self._track(after)
        known.pod, known.is_gone = after or known.pod, after is None
        if known.is_over:
            if known.pod.is_finished and not known.pod.is_terminating:
                del self._pods[uid]
            return
        if known.preparing is not None and (known.is_gone or pod.is_terminating):
            known.preparing.cancel()
        self._queue.add(uid)

    def requeue(self, which: Callable[[NodePod], bool] = lambda _: True) -> None:
        """Sync these pods again because something that they depend on changed."""
        for uid, known in self._pods.items():
            if which(known.pod):
                self._queue.add(uid)

    def requeue_pod(self, uid: str) -> None:
        if uid in self._pods:
            self._queue.add(uid)

    def pods(self) -> frozenset[str]:
        """The UIDs of the pods that are being synced."""
        return frozenset(self._pods)

    def stage_of(self, uid: str) -> PodStage:
        known = self._pods.get(uid)
        return known.stage if known is not None else PodStage.ENDED

    async def run(self, workers: int) -> None:
        """Sync pods until cancelled."""
        await asyncio.gather(*(work(self._queue, self._sync, self._report_problem) for _ in range(workers)))

    # --- Runtime events -------------------------------------------------------------------------------------------

    def container_started(self, pod_uid: str, container: str, at: datetime) -> None:
        if known := self._pods.get(pod_uid):
            known.runs[container] = known.runs.get(container, NEVER_RUN).started(at)
            self._queue.add(pod_uid)

    def container_exited(self, pod_uid: str, container: str, exit: Exit) -> None:
        if known := self._pods.get(pod_uid):
            known.runs[container] = known.runs.get(container, NEVER_RUN).exited(exit, self._context.timings)
            self._queue.add(pod_uid)

    # --- One sync -------------------------------------------------------------------------------------------------

    async def _sync(self, uid: str) -> None:
        known = self._pods.get(uid)
        if known is None or known.is_over:
            return
        if known.is_unchecked and self._goes_on(known):
            await self._check_devices(known)
        # Asked again: the pod may have been deleted meanwhile.
        if not known.is_prepared and self._goes_on(known):
            await self._prepare(known)
        now = self._context.clock.now()
        ending = known.ending(now)
        is_ending = ending is not None or known.pod.is_finished
        plan = plan_pod(known.pod.spec, known.runs, is_ending=is_ending, now=now, timings=self._context.timings)
        for container in plan.stop:
            self._context.runtime.stop(uid, container.name, ending.grace_s if ending else known.grace_s)
        for container in plan.start:
            await self._start(known, container)
        if plan.is_over:
            await self._finish(known, ending)
            return
        await self._send_status(known, plan, ending)
        self._requeue_later(known, plan, now)
        if known.waiting:
            raise TryAgain("; ".join(waiting.message for waiting in known.waiting.values()))

    def _goes_on(self, known: TrackedPod) -> bool:
        return known.ending(self._context.clock.now()) is None and not known.pod.is_finished

    async def _prepare(self, known: TrackedPod) -> None:
        """Prepare the claims; a deletion of the pod cancels the wait."""
        known.preparing = asyncio.create_task(self._context.claims.prepare(known.pod))
        try:
            await known.preparing
            known.is_prepared = True
            self._report_limits(known.pod)
        except ClaimsFailed as failed:
            text = f"Failed to prepare dynamic resources: prepare dynamic resources: {failed}"
            self._event(known.pod, "Warning", "FailedPrepareDynamicResources", text)
            await self._send_status(known, PodPlan(), None)
            raise TryAgain(str(failed)) from None
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                known.preparing.cancel()
                raise
            if self._goes_on(known):
                # Not by its deletion: its containers must not start.
                raise TryAgain("the preparation of its claims was cancelled") from None
        finally:
            known.preparing = None

    async def _check_devices(self, known: TrackedPod) -> None:
        """Containers must not go on with devices that the claims of the pod no longer have, nor can others be prepared beside these."""
        try:
            is_current = await self._context.claims.is_current(known.pod)
        except ClaimsFailed as failed:
            raise TryAgain(str(failed)) from None
        known.is_unchecked = False
        if not is_current:
            known.starts_over = True
            text = "its claims have other devices now; its containers are stopped, and started again with these"
            self._event(known.pod, "Warning", "DevicesChanged", text)

    async def _start(self, known: TrackedPod, container: NodeContainer) -> None:
        run = known.runs.get(container.name, NEVER_RUN).begun()
        launch = Launch(
            pod=known.pod,
            container=container,
            cdi_ids=cdi_ids(known.pod, container, self._context.claims.of_pod(known.pod.metadata.uid)),
            restarts=run.restarts,
        )
        before = known.runs.get(container.name)
        known.runs[container.name] = run
        try:
            await self._context.runtime.start(launch)
            known.waiting.pop(container.name, None)
        except CannotStart as refused:
            if before is None:
                del known.runs[container.name]
            else:
                known.runs[container.name] = before
            known.waiting[container.name] = Waiting(reason=refused.reason, message=refused.message)
            container_type = "init_container" if container in known.pod.spec.init_containers else "container"
            self._context.start_errors.add(container_type, refused.reason)
            self._event(known.pod, "Warning", "Failed", f"Error: {refused.message}")

    async def _finish(self, known: TrackedPod, ending: Ending | None) -> None:
        """No container runs any more: unprepare the claims, write the final status, and complete a deletion."""
        uid = known.pod.metadata.uid
        known.stopped_at = known.stopped_at or self._context.clock.now()
        await self._unprepare(known, known.stopped_at + timedelta(seconds=self._context.timings.unprepare_s))
        if known.starts_over and not (known.is_gone or known.pod.is_terminating or known.pod.is_finished):
            self._context.runtime.forget(uid)
            self._pods[uid] = TrackedPod(known.pod, is_unchecked=self._has_records(uid))
            self._queue.add(uid)
            return
        if not known.is_gone and not known.pod.is_finished:
            await self._send_status(known, PodPlan(is_over=True), ending)
        if not known.is_gone and known.pod.is_terminating:
            await self._delete(known.pod)
        known.is_over, known.sent = True, None
        if known.is_gone:
            self._forget(uid)

    async def _unprepare(self, known: TrackedPod, deadline: datetime) -> None:
        """Unprepare the claims; after the deadline the pod ends without that, and the node tries on by itself."""
        pod, left_s = known.pod, (deadline - self._context.clock.now()).total_seconds()
        try:
            async with asyncio.timeout(max(left_s, 0.0)):
                await self._context.claims.unprepare(pod.metadata.uid)
        except (ClaimsFailed, TimeoutError) as failed:
            text = str(failed) or "its drivers do not answer"
            if self._context.clock.now() < deadline:
                text = f"Failed to unprepare dynamic resources: unprepare dynamic resources: {text}"
                self._event(pod, "Warning", "FailedUnprepareDynamicResources", text)
                raise TryAgain(text) from None
            message = (
                f"the pod ends although its claims are still prepared after {self._context.timings.unprepare_s:g} s: {text}; "
                "the node keeps trying to unprepare them, and prepares their devices for no other pod until then"
            )
            _logger.warning("pod %s: %s", key_of(pod), message)
            self._event(pod, "Warning", "UnprepareDynamicResourcesTimedOut", message)

    # --- Writes ---------------------------------------------------------------------------------------------------

    async def _send_status(self, known: TrackedPod, plan: PodPlan, ending: Ending | None) -> None:
        if known.is_gone:
            return
        facts = PodFacts(
            runs=known.runs,
            now=self._context.clock.now(),
            started_at=known.started_at,
            conditions=known.conditions,
            is_prepared=known.is_prepared,
            is_over=plan.is_over,
            waiting=known.waiting,
            ended=ending.ended if ending is not None else None,
            health=self._health(known.pod),
            host_ip=self._context.host_ip,
        )
        status = pod_status(known.pod, facts)
        if status == known.sent and not has_other_readiness(known.pod, status):
            return
        before = known.pod
        patch = {"metadata": version_of(before), "status": status_patch(status)}
        try:
            stored = await self._context.calls_of_node(before.spec.node_name).patch(
                NODE_PODS, key_of(before), patch, type=PatchType.STRATEGIC, subresource="status"
            )
            # A concurrent informer event is as new as the answer or newer; a deletion must not be lost.
            if known.pod is before:
                known.pod = stored
            known.sent, known.started_at = status, status["startTime"]
            known.conditions = tuple(status["conditions"])
        except NotFound:
            # The informer delivers the deletion.
            return
        except Conflict as changed:
            raise TryAgain(str(changed)) from None
        except (Invalid, RequestEntityTooLarge) as refused:
            text = f"the API server refuses the status of the pod, which is shown as it was before: {refused}"
            self._event(before, "Warning", "StatusRefused", text)
            raise TryAgain(text) from None

    async def _delete(self, pod: NodePod) -> None:
        try:
            calls = self._context.calls_of_node(pod.spec.node_name)
            await calls.delete_unchanged(NODE_PODS, pod, grace_period_s=0)
        except NotFound:
            return
        except Conflict as changed:
            raise TryAgain(str(changed)) from None

    def _health(self, pod: NodePod) -> Mapping[str, tuple[ResourceStatus, ...]]:
        if not self._context.shows_health or not pod.spec.resource_claims:
            return {}
        held = self._context.claims.of_pod(pod.metadata.uid)
        containers = pod.spec.all_containers
        return {each.name: devices_status(pod, each, held, self._context.health_of) for each in containers}

    def _event(self, pod: NodePod, type: str, reason: str, message: str) -> None:
        self._context.events.report(Report(reference_to(pod, "v1", "Pod"), type, reason, message))

    def _report_limits(self, pod: NodePod) -> None:
        held = self._context.claims.of_pod(pod.metadata.uid)
        containers = pod.spec.all_containers
        names = [name for each in containers for name in cdi_ids(pod, each, held)] if held else []
        if limits := self._context.runtime.limits(pod, names):
            self._event(pod, "Warning", "NotSupportedByRuntime", limits)

    def _report_problem(self, uid: str, error: Exception) -> None:
        known = self._pods.get(uid)
        name = str(key_of(known.pod)) if known is not None else uid
        if isinstance(error, TryAgain):
            _logger.info("pod %s: %s", name, error)
        else:
            _logger.warning("pod %s: %s: %s", name, type(error).__name__, error)

    # --- Deadlines and restarts of the agent ----------------------------------------------------------------------

    def _requeue_later(self, known: TrackedPod, plan: PodPlan, now: datetime) -> None:
        due = [moment for moment in (plan.wake_at, known.deadline) if moment is not None and moment > now]
        if due:
            self._queue.add_after(known.pod.metadata.uid, (min(due) - now).total_seconds())

    def _track(self, pod: NodePod) -> TrackedPod:
        """Start to sync a pod; containers that an earlier agent started and that still run are adopted."""
        known = TrackedPod(
            pod,
            runs=restored_runs(pod),
            started_at=pod.status.start_time,
            conditions=pod.status.conditions,
            is_unchecked=self._has_records(pod.metadata.uid),
        )
        for name, run in known.runs.items():
            if run.started_at is None or not run.is_running:
                continue
            if self._context.runtime.adopt(pod, name, run.started_at):
                # A restored backup may have brought a running pod back whose claims were unprepared since.
                known.is_prepared = self._context.claims.is_prepared(pod)
            else:
                known.runs[name] = run.exited(self._lost(run), self._context.timings)
        return known

    def _forget(self, uid: str) -> None:
        self._pods.pop(uid, None)
        self._context.runtime.forget(uid)

    def _lost(self, run: ContainerRun) -> Exit:
        return Exit(
            code=LOST_CODE,
            started_at=run.started_at,
            finished_at=self._context.clock.now(),
            reason=LOST_REASON,
            message="the container ended while the node agent was not running",
        )

    def _holds_anything(self, pod: NodePod) -> bool:
        return pod.is_terminating or self._has_records(pod.metadata.uid)

    def _has_records(self, uid: str) -> bool:
        """True if claims are prepared for the pod, completely or partly."""
        return bool(self._context.claims.of_pod(uid))


# --- Container devices ----------------------------------------------------------------------------------------------
# The devices that a container uses of the pod's claims: their CDI names and their health.


# The records of a pod's claims, by claim name.
Held = Mapping[str, ClaimRecord]
HealthOf = Callable[[str, str, str], HealthReport]


def cdi_ids(pod: NodePod, container: NodeContainer, held: Held) -> tuple[str, ...]:
    """The CDI names of all devices of the container, without duplicates."""
    names = (
        cdi_id for _, _, devices in _uses(pod, container, held) for _, device in devices for cdi_id in device.cdi_ids
    )
    return tuple(dict.fromkeys(names))


def devices_status(
    pod: NodePod, container: NodeContainer, held: Held, health_of: HealthOf
) -> tuple[ResourceStatus, ...]:
    """`allocatedResourcesStatus` of the container: one entry for each claim or request that it refers to."""
    return tuple(
        ResourceStatus(
            name=f"claim:{entry}/{request}" if request else f"claim:{entry}",
            resources=tuple(_health(driver, device, health_of) for driver, device in devices),
        )
        for entry, request, devices in _uses(pod, container, held)
        if entry and devices
    )


def _uses(
    pod: NodePod, container: NodeContainer, held: Held
) -> Iterator[tuple[str, str, list[tuple[str, ReportedDevice]]]]:
    """For each use: the entry in the pod, the request (empty for all), and the devices with their drivers."""
    claims = {use.entry: use.claim for use in claims_of(pod)}
    for asked in container.resources.claims:
        record = held.get(claims.get(asked.name, ""))
        if record is not None:
            yield asked.name, asked.request, _serving(record, asked.request)
    extended = pod.status.extended_resource_claim_status
    if extended is not None and (record := held.get(extended.resource_claim_name)) is not None:
        for mapping in extended.request_mappings:
            if mapping.container_name == container.name:
                yield "", mapping.request_name, _serving(record, mapping.request_name)


def _serving(record: ClaimRecord, request: str) -> list[tuple[str, ReportedDevice]]:
    return [(driver, device) for driver, device in record.devices() if device.serves(request)]


def _health(driver: str, device: ReportedDevice, health_of: HealthOf) -> ResourceHealth:
    known = health_of(driver, device.pool, device.device)
    resource_id = device.cdi_ids[0] if device.cdi_ids else f"{driver}/{device.pool}/{device.device}"
    return ResourceHealth(resource_id=resource_id, health=known.health, message=known.message or None)
