"""Watches jobs, their pods and the claims that jobs hold, and has done what each job needs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Final, assert_never

from dralloc.api.batch_v1 import GROUP, Job, JobStatus
from dralloc.api.pod_claims import controller_of
from dralloc.api.pod_v1 import Pod
from dralloc.api.resource_v1 import ConsumerReference, ResourceClaim
from dralloc.api.unstructured_object import UnstructuredObject
from dralloc.client.event_recorder import Report, reference_to
from dralloc.client.known_resources import resource_for
from dralloc.client.typed_resource import ObjectKey, key_of
from dralloc.controllers.claim_creation import CreateClaim, ReportProblem
from dralloc.controllers.claim_patches import write_status
from dralloc.controllers.controller_context import ControllerContext
from dralloc.controllers.controller_loop import Controller
from dralloc.controllers.jobs.completion_indexes import print_indexes
from dralloc.controllers.jobs.plan import (
    INDEXED,
    MANAGERS,
    CreatePods,
    DeleteJob,
    DeletePods,
    JobAction,
    JobFacts,
    ReleaseClaims,
    WriteJobStatus,
    plan_job,
    unsupported_field,
)
from dralloc.controllers.jobs.plan_claims import SHARED_CLAIMS, ClaimAction, plan_claims
from dralloc.controllers.jobs.pod_template import PodNames
from dralloc.controllers.jobs.pod_tracker import PodTracker
from dralloc.controllers.jobs.pod_worker_pool import PODS, PodWorkerPool
from dralloc.controllers.mutation_cache import MutationCache
from dralloc.controllers.planned_actions import PlannedActions
from dralloc.controllers.shared_informers import JOBS, TEMPLATES
from dralloc.primitives.errors import AlreadyExists, ApiError, NotFound

NAME: Final = "job-controller"
CLAIMS: Final = resource_for(ResourceClaim)

# Templates say nothing to the jobs that wait for them.
TEMPLATE_CHECK_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class JobKey:
    """One job, and not another one that got its name later."""

    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class JobStep:
    """Something to do for a job that is there."""

    job: UnstructuredObject
    action: JobAction | ClaimAction


@dataclass(frozen=True, slots=True)
class ReleaseClaimsOfGoneJob:
    """A job that is gone holds no claims."""

    key: JobKey


class JobController(Controller[JobKey, JobStep | ReleaseClaimsOfGoneJob]):
    """Keys are jobs, also those that are gone and may still stand on the lists of claims."""

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
        jobs = context.informers.informer_for(JOBS)
        self._jobs = MutationCache(jobs)
        # By the UIDs of jobs. Pods may be shown before their job, and outlive it.
        self._tallies: dict[str, PodTracker] = {}
        self._crews: dict[str, PodWorkerPool] = {}
        self._pods.subscribe(self._on_pod)
        self._claims.subscribe(self._on_claim)
        jobs.subscribe(self._on_job)

    # --- what brings a job up -----------------------------------------------------------------------------------

    def _on_job(self, before: UnstructuredObject | None, after: UnstructuredObject | None) -> None:
        job = after or before
        assert job is not None, "a change has an object"
        if after is None:
            self._crews.pop(job.metadata.uid, None)
        self.queue.add(JobKey(job.metadata.namespace, job.metadata.name, job.metadata.uid))

    def _on_pod(self, before: Pod | None, after: Pod | None) -> None:
        pod = after or before
        assert pod is not None, "a change has an object"
        owner = controller_of(pod.metadata)
        if owner is None or owner.kind != JOBS.kind:
            return
        tally = self._tallies.setdefault(owner.uid, PodTracker())
        if after is not None:
            tally.put(after, self._clock.now())
        else:
            tally.remove(pod, self._clock.now())
        if (crew := self._crews.get(owner.uid)) is not None:
            crew.unmade.pop(pod.metadata.name, None)
        self.queue.add(JobKey(pod.metadata.namespace, owner.name, owner.uid))

    def _on_claim(self, before: ResourceClaim | None, after: ResourceClaim | None) -> None:
        claim = after or before
        assert claim is not None, "a change has an object"
        owner = controller_of(claim.metadata)
        if owner is not None and owner.kind == JOBS.kind and (before is None or after is None):
            self.queue.add(JobKey(claim.metadata.namespace, owner.name, owner.uid))
        for consumer in claim.status.reserved_for:
            if is_job(consumer):
                self.queue.add(JobKey(claim.metadata.namespace, consumer.name, consumer.uid))

    # --- plan ---------------------------------------------------------------------------------------------------

    async def plan(self, key: JobKey) -> PlannedActions[JobStep | ReleaseClaimsOfGoneJob]:
        job = self._jobs.get(key.name, key.namespace)
        if job is None or job.metadata.uid != key.uid:
            return await self._plan_gone(key)
        crew, now = self._crew_of(job), self._clock.now()
        known = crew.view_of(job)
        if known.spec.managed_by not in MANAGERS:
            return PlannedActions()
        crew.tally.adopt(known.status)
        facts = JobFacts(
            count=crew.tally.count(now),
            completed_indexes=partial(_completed, known, crew.tally),
            resume_at=crew.tally.resume_at(),
            written_at=crew.written_at,
            not_supported=unsupported_field(job.member("spec")),
            holds_claims=bool(self._claims.by("workload", key.uid)),
        )
        planned, claims = plan_job(known, facts, now), () if known.is_finished else self._plan_claims(job)
        waits = [] if planned.look_again_at is None else [(planned.look_again_at - now).total_seconds()]
        if any(isinstance(action, ReportProblem) for action in claims):
            waits.append(TEMPLATE_CHECK_S)
        return PlannedActions(
            [JobStep(job, action) for action in (*claims, *planned.actions)], min(waits, default=None)
        )

    def _plan_claims(self, job: UnstructuredObject) -> tuple[ClaimAction, ...]:
        if SHARED_CLAIMS not in job.metadata.annotations or job.metadata.deletion_timestamp is not None:
            return ()
        find_claim = partial(self._claims.get, namespace=job.metadata.namespace)
        find_template = partial(self._templates.get, namespace=job.metadata.namespace)
        return tuple(plan_claims(job, find_claim, find_template, for_workloads=self._for_workloads))

    async def _plan_gone(self, key: JobKey) -> PlannedActions[JobStep | ReleaseClaimsOfGoneJob]:
        """Our copy may only be too old to show the job, so before anything is taken from it, the server is asked."""
        self._crews.pop(key.uid, None)
        if not self._claims.by("workload", key.uid):
            if key.uid in self._tallies and not self._tallies[key.uid].fates:
                del self._tallies[key.uid]
            return PlannedActions()
        try:
            job = await self._calls.get(JOBS, ObjectKey(key.namespace, key.name))
        except NotFound:
            return PlannedActions([ReleaseClaimsOfGoneJob(key)])
        if job.metadata.uid != key.uid:
            return PlannedActions([ReleaseClaimsOfGoneJob(key)])
        # It will be shown, and that brings it up again.
        return PlannedActions()

    def _crew_of(self, job: UnstructuredObject) -> PodWorkerPool:
        uid, namespace = job.metadata.uid, job.metadata.namespace
        if uid not in self._crews:
            tally = self._tallies.setdefault(uid, PodTracker())

            def is_taken(name: str) -> bool:
                return name in tally.expected or self._pods.get(name, namespace) is not None

            self._crews[uid] = PodWorkerPool(self._calls, self._clock, self._pods, tally, PodNames(job, is_taken))
        return self._crews[uid]

    # --- apply --------------------------------------------------------------------------------------------------

    async def apply(self, action: JobStep | ReleaseClaimsOfGoneJob) -> None:
        match action:
            case JobStep(job, step):
                await self._apply_to_job(job, step)
            case ReleaseClaimsOfGoneJob(key):
                await self._give_up_claims(key.uid)
            case _:
                assert_never(action)

    async def _apply_to_job(self, job: UnstructuredObject, action: JobAction | ClaimAction) -> None:
        match action:
            case CreatePods(count):
                await self._create_pods(job, count)
            case DeletePods(count):
                await self._crew_of(job).dismiss(job, count)
            case WriteJobStatus(status):
                await self._write(job, status)
            case ReleaseClaims():
                await self._give_up_claims(job.metadata.uid)
            case DeleteJob():
                await self._calls.delete(JOBS, key_of(job), uid=job.metadata.uid, propagation="Background")
            case CreateClaim():
                await self._create_claim(job, action)
            case ReportProblem(_, message):
                self._tell(job, "FailedResourceClaimCreation", message)
            case _:
                assert_never(action)

    async def _create_claim(self, job: UnstructuredObject, action: CreateClaim) -> None:
        try:
            await self._calls.create(CLAIMS, action.document)
        except AlreadyExists:
            # Whoever was faster made the same one; if not, the next plan says so.
            return
        except ApiError as refusal:
            self._metrics.claim_refused(action.labels, owner_group=GROUP, owner_kind=JOBS.kind)
            self._tell(job, "FailedResourceClaimCreation", str(refusal))
            raise
        self._metrics.claim_created(action.labels, owner_group=GROUP, owner_kind=JOBS.kind)

    async def _create_pods(self, job: UnstructuredObject, count: int) -> None:
        try:
            await self._crew_of(job).create(job, count)
        except ApiError as refusal:
            self._tell(job, "FailedCreate", f"cannot create pods: {refusal}")
            raise

    async def _write(self, job: UnstructuredObject, status: JobStatus) -> None:
        metadata = {"uid": job.metadata.uid, "resourceVersion": job.metadata.resource_version}
        patch = {"metadata": metadata, "status": _document(status)}
        self._jobs.keep(await self._calls.patch(JOBS, key_of(job), patch, subresource="status"))
        self._crew_of(job).written_at = self._clock.now()

    async def _give_up_claims(self, uid: str) -> None:
        for claim in self._claims.by("workload", uid):
            kept = tuple(consumer for consumer in claim.status.reserved_for if consumer.uid != uid)
            await write_status(self._calls, claim, {"reservedFor": kept or None})

    def _tell(self, job: UnstructuredObject, reason: str, message: str) -> None:
        """Tell the job's owner; the same thing once."""
        told = self._crew_of(job).told
        if told.get(reason) != message:
            told[reason] = message
            self._recorder.report(Report(reference_to(job, JOBS.api_version, JOBS.kind), "Warning", reason, message))


def is_job(consumer: ConsumerReference) -> bool:
    return consumer.api_group == GROUP and consumer.resource == JOBS.plural


def _completed(job: Job, tally: PodTracker) -> str:
    return print_indexes(tally.slots.succeeded) if job.spec.completion_mode == INDEXED else ""


def _document(status: JobStatus) -> dict[str, Any]:
    """The status as a merge patch; what it does not have is taken out."""
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
