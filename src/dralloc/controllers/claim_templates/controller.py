"""Watches pods, claims and templates, and gives every pod the claims that it asks for."""

from __future__ import annotations

from collections import OrderedDict
from functools import partial
from typing import ClassVar, Final, assert_never

from dralloc.api.pod_claims import claims_of, controller_of, is_made_for, pod_reference
from dralloc.api.pod_v1 import Pod
from dralloc.api.resource_v1 import ResourceClaim
from dralloc.api.unstructured_object import UnstructuredObject
from dralloc.client.event_recorder import Report, reference_to
from dralloc.client.known_resources import resource_for
from dralloc.client.typed_resource import ObjectKey, key_of
from dralloc.controllers.claim_patches import write_status
from dralloc.controllers.claim_templates.plan import (
    CreateClaim,
    PodAction,
    RecordClaims,
    ReportProblem,
    Reserve,
    Surroundings,
    needs_reservation,
    plan_pod,
)
from dralloc.controllers.controller_context import Setup
from dralloc.controllers.controller_loop import Controller, Plan
from dralloc.controllers.mutation_cache import Latest
from dralloc.controllers.shared_informers import TEMPLATES
from dralloc.primitives.errors import AlreadyExists, ApiError, NotFound

# Under this name pods' statuses are written, here as in Kubernetes.
FIELD_MANAGER: Final = "ResourceClaimController"
COMPONENT: Final = "resource_claim"
PODS: Final = resource_for(Pod)
CLAIMS: Final = resource_for(ResourceClaim)

PROBLEMS_REMEMBERED_MAX: Final = 4096


class ClaimTemplatesController(Controller[ObjectKey, PodAction]):
    """Keys are pods."""

    queue_name: ClassVar[str] = "resource_claim"
    workers: ClassVar[int] = 20

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._calls = setup.calls(FIELD_MANAGER)
        self._recorder = setup.recorder(COMPONENT)
        self._clock = setup.clock
        self._gates = setup.gates
        self._metrics = setup.metrics
        self._pod_copies = setup.watched.copy_of(PODS)
        self._claim_copies = setup.watched.copy_of(CLAIMS)
        self._templates = setup.watched.copy_of(TEMPLATES)
        self._pods = Latest(self._pod_copies)
        self._claims = Latest(self._claim_copies)
        # What was last told about a pod: a problem that lasts is told once, not at every look.
        self._told: OrderedDict[str, str] = OrderedDict()
        self._pod_copies.subscribe(self._on_pod)
        self._claim_copies.subscribe(self._on_claim)
        self._templates.subscribe(self._on_template)

    # --- what brings a pod up -----------------------------------------------------------------------------------

    def _on_pod(self, before: Pod | None, after: Pod | None) -> None:  # noqa: ARG002
        if after is not None and (after.spec.resource_claims or after.status.extended_resource_claim_status):
            self.queue.add(key_of(after))

    def _on_claim(self, before: ResourceClaim | None, after: ResourceClaim | None) -> None:
        claim = after or before
        assert claim is not None, "a change is of something"
        if before is None or after is None:
            owner = controller_of(claim.metadata)
            if owner is not None and owner.kind == "Pod":
                self.queue.add(ObjectKey(claim.metadata.namespace, owner.name))
        if after is None or after.status.allocation is None:
            return
        # A claim may have thousands of users; only those that are not listed and should be are worth a look.
        for pod in self._pod_copies.by("claim", (claim.metadata.namespace, claim.metadata.name)):
            if pod.spec.node_name and not pod.is_finished and needs_reservation(after, pod, self._gates):
                self.queue.add(key_of(pod))

    def _on_template(self, before: UnstructuredObject | None, after: UnstructuredObject | None) -> None:
        if after is not None and before is None:
            for pod in self._pod_copies.by("template", (after.metadata.namespace, after.metadata.name)):
                self.queue.add(key_of(pod))

    # --- plan and apply -----------------------------------------------------------------------------------------

    async def plan(self, key: ObjectKey) -> Plan[PodAction]:
        pod = self._pods.get(key.name, key.namespace)
        if pod is None or pod.is_finished:
            return Plan()
        await self._look_for_missing(pod)
        around = Surroundings(
            find_claim=partial(self._claims.get, namespace=key.namespace),
            find_template=partial(self._templates.get, namespace=key.namespace),
            own_claims=self._claim_copies.by("controller", pod.metadata.uid),
            gates=self._gates,
            now=self._clock.now(),
        )
        plan = plan_pod(pod, around)
        return Plan(plan.actions, None if plan.look_again is None else plan.look_again.total_seconds())

    async def _look_for_missing(self, pod: Pod) -> None:
        """A recorded claim that our copies do not show may be too new for them; only the server knows."""
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
                self._tell(action.pod, action.message)
            case _:
                assert_never(action)

    async def _create(self, action: CreateClaim) -> None:
        name = action.document["metadata"]["name"]
        try:
            claim = await self._calls.create(CLAIMS, action.document)
        except AlreadyExists:
            claim = await self._calls.get(CLAIMS, ObjectKey(action.pod.metadata.namespace, name))
            self._claims.keep(claim)
            if not is_made_for(claim, action.pod):
                # Now that we know it, the next plan chooses another name.
                raise
            return
        except ApiError as refusal:
            self._metrics.claim_refused(action.labels, owner_group="", owner_kind="Pod")
            self._tell(action.pod, f"PodResourceClaim {action.entry}: {refusal}")
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
        """The scheduler lists a pod before it binds it, so a look at the claim itself mostly shows that all is well."""
        key = ObjectKey(action.pod.metadata.namespace, action.claim)
        claim = await self._calls.get(CLAIMS, key)
        if needs_reservation(claim, action.pod, self._gates):
            consumers = (*claim.status.reserved_for, pod_reference(action.pod))
            claim = await write_status(self._calls, claim, {"reservedFor": consumers})
        self._claims.keep(claim)

    def _tell(self, pod: Pod, message: str) -> None:
        if self._told.get(pod.metadata.uid) == message:
            return
        self._told[pod.metadata.uid] = message
        if len(self._told) > PROBLEMS_REMEMBERED_MAX:
            self._told.popitem(last=False)
        about = reference_to(pod, PODS.api_version, PODS.kind)
        self._recorder.report(Report(about, "Warning", "FailedResourceClaimCreation", message))
