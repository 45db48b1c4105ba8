"""Creates claims from templates for pods, records them in the pods' statuses, and reserves claims for bound pods."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from functools import partial
from typing import ClassVar, Final, assert_never
from weakref import WeakValueDictionary

from dralloc.api.meta_v1 import ApiObject
from dralloc.api.pod_claims import POD_CLAIM_NAME, claims_of, controller_of, is_made_for
from dralloc.api.pod_v1 import Pod
from dralloc.api.resource_v1 import ResourceClaim
from dralloc.api.unstructured_object import UnstructuredObject
from dralloc.client.claim_patches import patch_claim_status
from dralloc.client.event_recorder import Report, reference_to
from dralloc.client.known_resources import resource_for
from dralloc.client.typed_resource import ObjectKey, key_of
from dralloc.controllers.claim_creation import CreateClaim, ReportProblem
from dralloc.controllers.claim_templates.plan import (
    PodAction,
    PodContext,
    RecordClaims,
    Reserve,
    needs_reservation,
    plan_pod,
    with_reservations,
)
from dralloc.controllers.claim_users import users_of
from dralloc.controllers.controller_context import ControllerContext
from dralloc.controllers.controller_loop import Controller
from dralloc.controllers.mutation_cache import MutationCache
from dralloc.controllers.planned_actions import PlannedActions
from dralloc.controllers.shared_informers import TEMPLATES
from dralloc.primitives.errors import AlreadyExists, ApiError, NotFound

# The field manager that Kubernetes uses for pod statuses.
FIELD_MANAGER: Final = "ResourceClaimController"
COMPONENT: Final = "resource_claim"
PODS: Final = resource_for(Pod)
CLAIMS: Final = resource_for(ResourceClaim)

PROBLEMS_REMEMBERED_MAX: Final = 4096


class ClaimTemplatesController(Controller[ObjectKey, PodAction]):
    """Keys are pods."""

    queue_name: ClassVar[str] = "resource_claim"
    workers: ClassVar[int] = 20

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self._calls = context.calls(FIELD_MANAGER)
        self._recorder = context.recorder(COMPONENT)
        self._clock = context.clock
        self._gates = context.gates
        self._metrics = context.metrics
        self._pod_informer = context.informers.informer_for(PODS)
        self._claim_informer = context.informers.informer_for(CLAIMS)
        self._templates = context.informers.informer_for(TEMPLATES)
        self._pods = MutationCache(self._pod_informer)
        self._claims = MutationCache(self._claim_informer)
        # The last reported problem of each pod, by UID: a lasting problem is reported once.
        self._reported: OrderedDict[str, str] = OrderedDict()
        # Held while a claim is read and reserved. Unused locks are dropped.
        self._reserving: WeakValueDictionary[ObjectKey, asyncio.Lock] = WeakValueDictionary()
        self._pod_informer.subscribe(self._on_pod)
        self._claim_informer.subscribe(self._on_claim)
        self._templates.subscribe(self._on_template)

    # --- Events ---------------------------------------------------------------------------------------------------

    def _on_pod(self, before: Pod | None, after: Pod | None) -> None:  # noqa: ARG002
        if after is not None and (after.spec.resource_claims or after.status.extended_resource_claim_status):
            self.queue.add(key_of(after))

    def _on_claim(self, before: ResourceClaim | None, after: ResourceClaim | None) -> None:
        claim = after or before
        assert claim is not None, "a change has an object"
        if before is None or after is None:
            owner = controller_of(claim.metadata)
            if owner is not None and owner.kind == "Pod":
                self.queue.add(ObjectKey(claim.metadata.namespace, owner.name))
        if after is None or after.status.allocation is None:
            return
        # A claim may have thousands of users; only those that lack a reservation are queued.
        for pod in self._pod_informer.by("claim", (claim.metadata.namespace, claim.metadata.name)):
            if pod.spec.node_name and not pod.is_finished and needs_reservation(after, pod, self._gates):
                self.queue.add(key_of(pod))

    def _on_template(self, before: UnstructuredObject | None, after: UnstructuredObject | None) -> None:
        if after is not None and before is None:
            for pod in self._pod_informer.by("template", (after.metadata.namespace, after.metadata.name)):
                self.queue.add(key_of(pod))

    # --- Plan and apply -------------------------------------------------------------------------------------------

    async def plan(self, key: ObjectKey) -> PlannedActions[PodAction]:
        pod = self._pods.get(key.name, key.namespace)
        if pod is None or pod.is_finished:
            return PlannedActions()
        await self._get_missing(pod)
        pod_context = PodContext(
            find_claim=partial(self._claims.get, namespace=key.namespace),
            find_template=partial(self._templates.get, namespace=key.namespace),
            own_claims=self._claim_informer.by("controller", (key.namespace, pod.metadata.uid)),
            gates=self._gates,
            now=self._clock.now(),
        )
        return plan_pod(pod, pod_context)

    async def _get_missing(self, pod: Pod) -> None:
        """Ask the server for recorded claims that the informer lacks: it may be stale."""
        for use in claims_of(pod):
            if use.is_own and self._claims.get(use.claim, pod.metadata.namespace) is None:
                try:
                    self._claims.keep(await self._calls.get(CLAIMS, ObjectKey(pod.metadata.namespace, use.claim)))
                except NotFound:
                    continue

    async def apply(self, action: PodAction) -> None:
        match action:
            case CreateClaim():
                await self._create(action)
            case RecordClaims():
                await self._record(action)
            case Reserve():
                await self._reserve(action)
            case ReportProblem():
                self._report(action.owner, action.message, action.reason)
            case _:
                assert_never(action)

    async def _create(self, action: CreateClaim) -> None:
        metadata, pod = action.document["metadata"], action.owner
        try:
            claim = await self._calls.create(CLAIMS, action.document)
        except AlreadyExists:
            claim = await self._calls.get(CLAIMS, ObjectKey(metadata["namespace"], metadata["name"]))
            self._claims.keep(claim)
            if not is_made_for(claim, pod):
                # Another object has the name; the next plan uses the next candidate.
                raise
            return
        except ApiError as refusal:
            self._metrics.claim_refused(action.labels, owner_group="", owner_kind="Pod")
            self._report(pod, f"PodResourceClaim {metadata['annotations'][POD_CLAIM_NAME]}: {refusal}")
            raise
        self._metrics.claim_created(action.labels, owner_group="", owner_kind="Pod")
        self._claims.keep(claim)

    async def _record(self, action: RecordClaims) -> None:
        metadata = action.pod.metadata
        statuses = [{"name": entry, "resourceClaimName": claim} for entry, claim in action.names]
        document = {
            "metadata": {"name": metadata.name, "namespace": metadata.namespace, "uid": metadata.uid},
            "status": {"resourceClaimStatuses": statuses},
        }
        written = await self._calls.apply(PODS, key_of(action.pod), document, force=True, subresource="status")
        self._pods.keep(written)

    async def _reserve(self, action: Reserve) -> None:
        """Reserve the claim for all its pods with one write, so that they do not compete for it.

        The claim is read first: the scheduler reserves before it binds, so the reservation usually exists.
        """
        key = ObjectKey(action.pod.metadata.namespace, action.claim)
        async with self._reserving.setdefault(key, asyncio.Lock()):
            known = self._claims.get(key.name, key.namespace)
            if known is None or needs_reservation(known, action.pod, self._gates):
                claim = await self._calls.get(CLAIMS, key)
                pods = (action.pod, *users_of(claim, self._pod_informer))
                bound = [pod for pod in pods if pod.spec.node_name and not pod.is_terminating]
                listed = with_reservations(claim, bound, self._gates)
                if listed != claim.status.reserved_for:
                    claim = await patch_claim_status(self._calls, claim, {"reservedFor": listed})
                self._claims.keep(claim)

    def _report(self, pod: ApiObject, message: str, reason: str = "FailedResourceClaimCreation") -> None:
        if self._reported.get(pod.metadata.uid) == message:
            return
        self._reported[pod.metadata.uid] = message
        if len(self._reported) > PROBLEMS_REMEMBERED_MAX:
            self._reported.popitem(last=False)
        reference = reference_to(pod, PODS.api_version, PODS.kind)
        self._recorder.report(Report(reference, "Warning", reason, message))
