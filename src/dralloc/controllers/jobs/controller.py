"""Runs jobs: creates and deletes their pods, creates and releases their claims, writes their statuses."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, ClassVar, Final, assert_never

from dralloc.client.claim_patches import patch_claim
from dralloc.client.event_recorder import Report, reference_to
from dralloc.client.known_resources import resource_for
from dralloc.client.typed_resource import ObjectKey, key_of, version_of
from dralloc.controllers.claim_creation import CreateClaim, ReportProblem, users_of
from dralloc.controllers.controller_context import ControllerContext
from dralloc.controllers.controller_loop import Controller
from dralloc.controllers.jobs.job_groups import JobGroups
from dralloc.controllers.jobs.plan import (
    INDEXED,
    MANAGERS,
    SHARED_CLAIMS,
    ClaimAction,
    CreatePods,
    DeleteJob,
    DeletePods,
    JobAction,
    JobFacts,
    ReleaseClaims,
    WriteJobStatus,
    plan_claims,
    plan_job,
    unsupported_field,
)
from dralloc.controllers.jobs.plan_groups import CreatePodGroup, CreateWorkload, GroupAction, JobGroup, ResizeGang
from dralloc.controllers.jobs.pod_template import PodNames
from dralloc.controllers.jobs.pod_tracker import PodCounts, PodTracker, print_indexes
from dralloc.controllers.jobs.pod_worker_pool import PODS, PodWorkerPool
from dralloc.controllers.mutation_cache import LOOK_AGAIN_S, MutationCache, UnconfirmedOwners, is_gone
from dralloc.controllers.planned_actions import PlannedActions
from dralloc.controllers.shared_informers import JOBS, TEMPLATES
from dralloc.kube.batch_v1 import GROUP, Job, JobStatus
from dralloc.kube.meta_v1 import ApiObject
from dralloc.kube.pod_claims import controller_of
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import ConsumerReference, ResourceClaim
from dralloc.kube.unstructured_object import UnstructuredObject
from dralloc.primitives.errors import AlreadyExists, ApiError

NAME: Final = "job-controller"
CLAIMS: Final = resource_for(ResourceClaim)

# New templates do not queue the jobs that wait for them.
TEMPLATE_CHECK_S: Final = 5.0
# The Workload of another controller does not queue the jobs that wait for it.
GROUP_CHECK_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class JobKey:
    """A job by name and UID, to distinguish it from a later job of the same name. References to it are compared as a whole."""

    namespace: str
    name: str
    uid: str

    @property
    def workload(self) -> tuple[str, ConsumerReference]:
        """The namespace of claims that are reserved for the job, and their consumer."""
        consumer = ConsumerReference(api_group=GROUP, resource=JOBS.plural, name=self.name, uid=self.uid)
        return self.namespace, consumer

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class JobStep:
    """An action for an existing job."""

    job: UnstructuredObject
    action: JobAction | ClaimAction | GroupAction


@dataclass(frozen=True, slots=True)
class ReleaseClaimsOfGoneJob:
    key: JobKey


class JobController(Controller[JobKey, JobStep | ReleaseClaimsOfGoneJob]):
    """Keys are jobs, including deleted ones that claims may still be reserved for."""

    queue_name: ClassVar[str] = "job"

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self._calls = context.calls(NAME)
        self._recorder = context.recorder(NAME)
        self._clock = context.clock
        self._metrics = context.metrics
        self._for_workloads = "DRAReservedForWorkloads" in context.gates
        self._pods = context.informers.informer_for(PODS)
        self._claims = context.informers.informer_for(CLAIMS)
        self._templates = context.informers.informer_for(TEMPLATES)
        self._groups = (
            JobGroups(context, self._calls, self._on_dependent) if "WorkloadWithJob" in context.gates else None
        )
        jobs = context.informers.informer_for(JOBS)
        self._jobs = MutationCache(jobs)
        # The informers may show pods before their job and after its deletion.
        self._trackers: dict[JobKey, PodTracker] = {}
        self._unconfirmed = UnconfirmedOwners(self._is_gone)
        self._pools: dict[JobKey, PodWorkerPool] = {}
        self._pods.subscribe(self._on_pod)
        self._claims.subscribe(self._on_claim)
        jobs.subscribe(self._on_job)

    # --- Events ---------------------------------------------------------------------------------------------------

    def _on_job(self, before: UnstructuredObject | None, after: UnstructuredObject | None) -> None:
        job = after or before
        assert job is not None, "a change has an object"
        key = _key_of(job)
        if after is None:
            self._pools.pop(key, None)
            self._unconfirmed.remove(key)
        self.queue.add(key)

    def _on_pod(self, before: Pod | None, after: Pod | None) -> None:
        pod = after or before
        assert pod is not None, "a change has an object"
        key = _owner_of(pod)
        if key is None:
            return
        tracker = self._trackers.setdefault(key, PodTracker())
        if after is not None:
            tracker.put(after, self._clock.now())
        else:
            tracker.remove(pod, self._clock.now())
        if (pool := self._pools.get(key)) is not None:
            pool.unconfirmed.pop(pod.metadata.name, None)
        self._on_dependent(before, after)

    def _on_claim(self, before: ResourceClaim | None, after: ResourceClaim | None) -> None:
        claim = after or before
        assert claim is not None, "a change has an object"
        if before is None or after is None:
            self._on_dependent(before, after)
        for consumer in claim.status.reserved_for:
            if is_job(consumer):
                self.queue.add(JobKey(claim.metadata.namespace, consumer.name, consumer.uid))

    def _on_dependent(self, before: ApiObject | None, after: ApiObject | None) -> None:
        """Something that a job may control has changed."""
        item = after or before
        assert item is not None, "a change has an object"
        if (owner := _owner_of(item)) is not None:
            if after is None and self._known(owner) is not None:
                self._unconfirmed.add(owner)
            self.queue.add(owner)

    # --- Plan -----------------------------------------------------------------------------------------------------

    async def plan(self, key: JobKey) -> PlannedActions[JobStep | ReleaseClaimsOfGoneJob]:
        job = self._known(key)
        if job is None:
            return await self._plan_gone(key)
        planned = self._plan_existing(key, job)
        if any(_creates(step) for step in planned.actions) and not await self._unconfirmed.may_create(key):
            return PlannedActions(look_again_s=LOOK_AGAIN_S)
        return planned

    def _known(self, key: JobKey) -> UnstructuredObject | None:
        """The job as the informer shows it."""
        job = self._jobs.get(key.name, key.namespace)
        return job if job is not None and job.metadata.uid == key.uid else None

    def _plan_existing(self, key: JobKey, job: UnstructuredObject) -> PlannedActions[JobStep | ReleaseClaimsOfGoneJob]:
        pool, now = self._pool_of(job), self._clock.now()
        known = pool.view_of(job)
        if known.spec.managed_by not in MANAGERS:
            return PlannedActions()
        pool.tracker.adopt(known.status)
        group = self._plan_group(known, pool)
        if not group.is_ready:
            return PlannedActions([JobStep(job, action) for action in group.actions], GROUP_CHECK_S)
        facts = JobFacts(
            counts=_counts(known, pool.tracker, now),
            completed_indexes=partial(_completed, known, pool.tracker),
            resume_at=pool.tracker.resume_at(),
            written_at=pool.written_at,
            not_supported=unsupported_field(job.member("spec")),
            holds_claims=bool(self._claims.by("workload", key.workload)),
        )
        planned, claims = plan_job(known, facts, now), () if known.is_finished else self._plan_claims(job)
        waits = [] if planned.look_again_at is None else [(planned.look_again_at - now).total_seconds()]
        if any(isinstance(action, ReportProblem) for action in claims):
            waits.append(TEMPLATE_CHECK_S)
        return PlannedActions(
            [JobStep(job, action) for action in (*group.actions, *claims, *planned.actions)], min(waits, default=None)
        )

    def _plan_group(self, job: Job, pool: PodWorkerPool) -> JobGroup:
        """The group of the job's pods, which exists before they do."""
        if self._groups is None or job.is_finished:
            return JobGroup()
        group = self._groups.plan(job, has_pods=bool(pool.tracker.outcomes))
        pool.group = group.name
        if group.problem:
            self._report(job, "FailedWorkloadCompilation", group.problem)
        return group

    def _plan_claims(self, job: UnstructuredObject) -> tuple[ClaimAction, ...]:
        if SHARED_CLAIMS not in job.metadata.annotations or job.metadata.deletion_timestamp is not None:
            return ()
        find_claim = partial(self._claims.get, namespace=job.metadata.namespace)
        find_template = partial(self._templates.get, namespace=job.metadata.namespace)
        return tuple(plan_claims(job, find_claim, find_template, for_workloads=self._for_workloads))

    async def _plan_gone(self, key: JobKey) -> PlannedActions[JobStep | ReleaseClaimsOfGoneJob]:
        """Ask the server before claims are released: the informer may be stale."""
        self._pools.pop(key, None)
        self._unconfirmed.remove(key)
        if not self._unused_claims(key):
            if key in self._trackers and not self._trackers[key].outcomes:
                del self._trackers[key]
            return PlannedActions()
        # If it exists, the informer will show the job, which queues it again.
        return PlannedActions([ReleaseClaimsOfGoneJob(key)] if await self._is_gone(key) else [])

    async def _is_gone(self, key: JobKey) -> bool:
        return await is_gone(self._calls, JOBS, ObjectKey(key.namespace, key.name), key.uid)

    def _unused_claims(self, key: JobKey) -> list[ResourceClaim]:
        """The claims of a job that is gone which no pods use. The others are released after their pods: see `claim_lifecycle`."""
        return [claim for claim in self._claims.by("workload", key.workload) if not any(users_of(claim, self._pods))]

    def _pool_of(self, job: UnstructuredObject) -> PodWorkerPool:
        key, namespace = _key_of(job), job.metadata.namespace
        if key not in self._pools:
            tracker = self._trackers.setdefault(key, PodTracker())

            def is_taken(name: str) -> bool:
                return name in tracker.expected or self._pods.get(name, namespace) is not None

            self._pools[key] = PodWorkerPool(self._calls, self._clock, self._pods, tracker, PodNames(job, is_taken))
        return self._pools[key]

    # --- Apply ----------------------------------------------------------------------------------------------------

    async def apply(self, action: JobStep | ReleaseClaimsOfGoneJob) -> None:
        match action:
            case JobStep(job, step):
                await self._apply_to_job(job, step)
            case ReleaseClaimsOfGoneJob(key):
                await self._release(self._unused_claims(key), key)
            case _:
                assert_never(action)

    async def _apply_to_job(self, job: UnstructuredObject, action: JobAction | ClaimAction | GroupAction) -> None:
        match action:
            case CreatePods(count):
                await self._create_pods(job, count)
            case DeletePods(count):
                await self._pool_of(job).delete(job, count)
            case WriteJobStatus(status):
                await self._write(job, status)
            case ReleaseClaims():
                key = _key_of(job)
                await self._release(tuple(self._claims.by("workload", key.workload)), key)
            case DeleteJob():
                await self._calls.delete_unchanged(JOBS, job, propagation="Background")
            case CreateClaim():
                await self._create_claim(job, action)
            case CreateWorkload() | CreatePodGroup() | ResizeGang():
                await self._write_group(job, action)
            case ReportProblem(_, message):
                self._report(job, "FailedResourceClaimCreation", message)
            case _:
                assert_never(action)

    async def _create_claim(self, job: UnstructuredObject, action: CreateClaim) -> None:
        try:
            await self._calls.create(CLAIMS, action.document)
        except AlreadyExists:
            # Usually this job's own claim from an earlier attempt; otherwise the next plan reports a problem.
            return
        except ApiError as refusal:
            self._metrics.claim_refused(action.labels, owner_group=GROUP, owner_kind=JOBS.kind)
            self._report(job, "FailedResourceClaimCreation", str(refusal))
            raise
        self._metrics.claim_created(action.labels, owner_group=GROUP, owner_kind=JOBS.kind)

    async def _write_group(self, job: UnstructuredObject, action: GroupAction) -> None:
        assert self._groups is not None, "jobs have groups"
        kind = "Workload" if isinstance(action, CreateWorkload) else "PodGroup"
        try:
            made = await self._groups.apply(action)
        except ApiError as refusal:
            self._report(job, "FailedWorkloadCreate", f"cannot write the {kind} of the job: {refusal}")
            raise
        if made:
            self._report(job, f"{kind}Created", f"Created {kind} {made} for Job {job.metadata.name}", kind="Normal")

    async def _create_pods(self, job: UnstructuredObject, count: int) -> None:
        try:
            await self._pool_of(job).create(job, count)
        except ApiError as refusal:
            self._report(job, "FailedCreate", f"cannot create pods: {refusal}")
            raise

    async def _write(self, job: UnstructuredObject, status: JobStatus) -> None:
        patch = {"metadata": version_of(job), "status": _document(status)}
        self._jobs.keep(await self._calls.patch(JOBS, key_of(job), patch, subresource="status"))
        self._pool_of(job).written_at = self._clock.now()

    async def _release(self, claims: Iterable[ResourceClaim], key: JobKey) -> None:
        _, released = key.workload
        for claim in claims:
            kept = tuple(consumer for consumer in claim.status.reserved_for if consumer != released)
            await patch_claim(self._calls, claim, status={"reservedFor": kept or None})

    def _report(self, job: ApiObject, reason: str, message: str, *, kind: str = "Warning") -> None:
        """Record an event for the job, unless the last one with this reason was the same."""
        pool = self._pools.get(_key_of(job))
        reported = pool.reported if pool is not None else {}
        if reported.get(reason) != message:
            reported[reason] = message
            self._recorder.report(Report(reference_to(job, JOBS.api_version, JOBS.kind), kind, reason, message))


def _key_of(job: ApiObject) -> JobKey:
    return JobKey(job.metadata.namespace, job.metadata.name, job.metadata.uid)


def _owner_of(item: ApiObject) -> JobKey | None:
    """The job that controls the object."""
    owner = controller_of(item.metadata)
    if owner is None or owner.kind != JOBS.kind or owner.api_version.partition("/")[0] != GROUP:
        return None
    return JobKey(item.metadata.namespace, owner.name, owner.uid)


def _creates(step: JobStep | ReleaseClaimsOfGoneJob) -> bool:
    return isinstance(step, JobStep) and isinstance(
        step.action, CreatePods | CreateClaim | CreateWorkload | CreatePodGroup
    )


def is_job(consumer: ConsumerReference) -> bool:
    return consumer.api_group == GROUP and consumer.resource == JOBS.plural


def _counts(job: Job, tracker: PodTracker, now: datetime) -> PodCounts:
    """The numbers of pods. The successes of an Indexed job are its indexes, which its status has: it does not say which pods it counts."""
    counts = tracker.count(now)
    if job.spec.completion_mode != INDEXED:
        return counts
    return counts._replace(succeeded=tracker.slots.count_succeeded(job.spec.completions or 0))


def _completed(job: Job, tracker: PodTracker) -> str:
    return print_indexes(tracker.slots.succeeded) if job.spec.completion_mode == INDEXED else ""


def _document(status: JobStatus) -> dict[str, Any]:
    """The status as a merge patch that removes absent members."""
    return {
        "active": status.active,
        "succeeded": status.succeeded,
        "failed": status.failed,
        "terminating": status.terminating,
        "completedIndexes": status.completed_indexes or None,
        "startTime": status.start_time,
        "completionTime": status.completion_time,
        "conditions": status.conditions,
    }
