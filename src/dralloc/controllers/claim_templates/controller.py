"""Creates claims from templates for pods and PodGroups, records them in statuses, and reserves claims for bound pods."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Final, assert_never
from weakref import WeakValueDictionary

from dralloc.client.claim_patches import patch_claim
from dralloc.client.event_recorder import Report, reference_to
from dralloc.client.known_resources import resource_for
from dralloc.client.typed_resource import ObjectKey, key_of
from dralloc.controllers.claim_creation import CreateClaim, ReportProblem, users_of
from dralloc.controllers.claim_templates.owned_claims import ClaimObjects
from dralloc.controllers.claim_templates.plan import (
    ClaimAction,
    PodContext,
    RecordClaims,
    Reserve,
    may_get_claims,
    needs_reservation,
    plan_group,
    plan_pod,
    with_reservations,
)
from dralloc.controllers.controller_context import ControllerContext
from dralloc.controllers.controller_loop import Controller
from dralloc.controllers.mutation_cache import LOOK_AGAIN_S, MutationCache, UnconfirmedOwners, is_gone
from dralloc.controllers.planned_actions import PlannedActions
from dralloc.controllers.shared_informers import POD_GROUPS, TEMPLATES
from dralloc.kube.meta_v1 import ApiObject
from dralloc.kube.pod_claims import POD_CLAIM_NAME, claims_of, controller_of, group_name, is_made_for
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import ResourceClaim
from dralloc.kube.scheduling_v1beta1 import PodGroup
from dralloc.kube.unstructured_object import UnstructuredObject
from dralloc.primitives.errors import AlreadyExists, ApiError, NotFound

COMPONENT: Final = "resource_claim"
PODS: Final = resource_for(Pod)
CLAIMS: Final = resource_for(ResourceClaim)

PROBLEMS_REMEMBERED_MAX: Final = 4096


@dataclass(frozen=True, slots=True)
class GroupKey:
    group: ObjectKey


Key = ObjectKey | GroupKey


class ClaimTemplatesController(Controller[Key, ClaimAction]):
    """Keys are pods and PodGroups."""

    queue_name: ClassVar[str] = "resource_claim"
    # A pod takes two writes in turn, and the writes of all workers travel together (`client/batch_transport`): two full batches.
    workers: ClassVar[int] = 128

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        # Without a field manager, our server records no owners of fields, which would double the size of a claim, and its cost.
        self._calls = context.calls("")
        self._recorder = context.recorder(COMPONENT)
        self._clock = context.clock
        self._gates = context.gates
        self._metrics = context.metrics
        self._pod_informer = context.informers.informer_for(PODS)
        self._claim_informer = context.informers.informer_for(CLAIMS)
        self._templates = context.informers.informer_for(TEMPLATES)
        self._pods = MutationCache(self._pod_informer)
        self._claims = MutationCache(self._claim_informer)
        self._groups: MutationCache[PodGroup] | None = None
        # The last reported problem of each pod or group, by UID: a lasting problem is reported once.
        self._reported: OrderedDict[str, str] = OrderedDict()
        # Held while a claim is read and reserved. Unused locks are dropped.
        self._reserving: WeakValueDictionary[ObjectKey, asyncio.Lock] = WeakValueDictionary()
        self._unconfirmed: UnconfirmedOwners[Key] = UnconfirmedOwners(self._is_gone)
        self._pod_informer.subscribe(self._on_pod)
        self._claim_informer.subscribe(self._on_claim)
        self._templates.subscribe(self._on_template)
        if "GenericWorkload" in self._gates:
            self._group_informer = context.informers.informer_for(POD_GROUPS)
            self._groups = MutationCache(self._group_informer)
            self._group_informer.subscribe(self._on_group)

    # --- Events ---------------------------------------------------------------------------------------------------

    def _on_pod(self, before: Pod | None, after: Pod | None) -> None:
        if after is None and before is not None:
            self._unconfirmed.remove(key_of(before))
        if after is not None and (may_get_claims(after) or self._lacks_reservation(after)):
            self.queue.add(key_of(after))

    def _lacks_reservation(self, pod: Pod) -> bool:
        """True if the pod has a node and a claim that is not reserved for it. A claim that is not shown yet queues the pod later."""
        if not pod.spec.node_name or pod.is_finished:
            return False
        claims = (self._claim_informer.get(use.claim, pod.metadata.namespace) for use in claims_of(pod))
        return any(claim is not None and self._must_reserve(claim, pod) for claim in claims)

    def _must_reserve(self, claim: ResourceClaim, pod: Pod) -> bool:
        return needs_reservation(claim, pod, self._gates, self._group_of(pod))

    def _on_claim(self, before: ResourceClaim | None, after: ResourceClaim | None) -> None:
        claim = after or before
        assert claim is not None, "a change has an object"
        if before is None or after is None:
            self._queue_owner(claim, is_gone=after is None)
        if after is None or after.status.allocation is None:
            return
        # A claim may have thousands of users; only those that lack a reservation are queued.
        for pod in self._pod_informer.by("claim", (claim.metadata.namespace, claim.metadata.name)):
            if pod.spec.node_name and not pod.is_finished and self._must_reserve(after, pod):
                self.queue.add(key_of(pod))

    def _queue_owner(self, claim: ResourceClaim, *, is_gone: bool) -> None:
        if (owner := controller_of(claim.metadata)) is None:
            return
        named = ObjectKey(claim.metadata.namespace, owner.name)
        key: Key = named
        if owner.kind == POD_GROUPS.kind and self._groups is not None:
            self._queue_members(named.namespace, named.name)
            key = GroupKey(named)
        elif owner.kind != "Pod":
            return
        if is_gone and self._shown(key) is not None:
            self._unconfirmed.add(key)
        self.queue.add(key)

    def _on_group(self, before: PodGroup | None, after: PodGroup | None) -> None:
        if after is None:
            if before is not None:
                self._unconfirmed.remove(GroupKey(key_of(before)))
            return
        if after.spec.resource_claims:
            self.queue.add(GroupKey(key_of(after)))
        if before is None or before.status.resource_claim_statuses != after.status.resource_claim_statuses:
            self._queue_members(after.metadata.namespace, after.metadata.name)

    def _queue_members(self, namespace: str, group: str) -> None:
        for pod in self._pod_informer.by("group", (namespace, group)):
            if pod.spec.resource_claims:
                self.queue.add(key_of(pod))

    def _group_of(self, pod: Pod) -> PodGroup | None:
        name = group_name(pod)
        return self._groups.get(name, pod.metadata.namespace) if name and self._groups is not None else None

    def _on_template(self, before: UnstructuredObject | None, after: UnstructuredObject | None) -> None:
        if after is not None and before is None:
            key = (after.metadata.namespace, after.metadata.name)
            for pod in self._pod_informer.by("template", key):
                self.queue.add(key_of(pod))
            for group in self._group_informer.by("template", key) if self._groups is not None else ():
                self.queue.add(GroupKey(key_of(group)))

    # --- Plan and apply -------------------------------------------------------------------------------------------

    async def plan(self, key: Key) -> PlannedActions[ClaimAction]:
        if self._shown(key) is None:
            self._unconfirmed.remove(key)
        planned = await (self._plan_group(key.group) if isinstance(key, GroupKey) else self._plan_pod(key))
        creates = any(isinstance(action, CreateClaim) for action in planned.actions)
        if creates and not await self._unconfirmed.may_create(key):
            return PlannedActions(look_again_s=LOOK_AGAIN_S)
        return planned

    def _shown(self, key: Key) -> Pod | PodGroup | None:
        """The owner of claims as the informer has it."""
        if not isinstance(key, GroupKey):
            return self._pods.get(key.name, key.namespace)
        return self._groups.get(key.group.name, key.group.namespace) if self._groups is not None else None

    async def _is_gone(self, key: Key) -> bool:
        """True if the server does not have the owner that the informer shows."""
        resource, name = (POD_GROUPS, key.group) if isinstance(key, GroupKey) else (PODS, key)
        shown = self._shown(key)
        return shown is None or await is_gone(self._calls, resource, name, shown.metadata.uid)

    async def _plan_pod(self, key: ObjectKey) -> PlannedActions[ClaimAction]:
        pod = self._pods.get(key.name, key.namespace)
        if pod is None or pod.is_finished:
            return PlannedActions()
        await self._get_missing(key.namespace, [use.claim for use in claims_of(pod) if use.is_own])
        objects = self._objects(key.namespace)
        return plan_pod(pod, PodContext(objects=objects, now=self._clock.now(), group=self._group_of(pod)))

    async def _plan_group(self, key: ObjectKey) -> PlannedActions[ClaimAction]:
        group = self._groups.get(key.name, key.namespace) if self._groups is not None else None
        if group is None:
            return PlannedActions()
        recorded = [status.resource_claim_name for status in group.status.resource_claim_statuses]
        await self._get_missing(key.namespace, filter(None, recorded))
        return plan_group(group, self._objects(key.namespace))

    def _objects(self, namespace: str) -> ClaimObjects:
        return ClaimObjects(
            find_claim=partial(self._claims.get, namespace=namespace),
            find_template=partial(self._templates.get, namespace=namespace),
            claims_made_for=lambda uid: self._claim_informer.by("controller", (namespace, uid)),
            gates=self._gates,
        )

    async def _get_missing(self, namespace: str, claims: Iterable[str]) -> None:
        """Ask the server for recorded claims that the informer lacks: it may be stale."""
        for name in claims:
            if self._claims.get(name, namespace) is None:
                try:
                    self._claims.keep(await self._calls.get(CLAIMS, ObjectKey(namespace, name)))
                except NotFound:
                    continue

    async def apply(self, action: ClaimAction) -> None:
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
        metadata, owner = action.document["metadata"], action.owner
        kind = {"owner_group": POD_GROUPS.group, "owner_kind": POD_GROUPS.kind}
        if isinstance(owner, Pod):
            kind = {"owner_group": "", "owner_kind": "Pod"}
        try:
            claim = await self._calls.create(CLAIMS, action.document)
        except AlreadyExists:
            claim = await self._calls.get(CLAIMS, ObjectKey(metadata["namespace"], metadata["name"]))
            self._claims.keep(claim)
            if not is_made_for(claim, owner):
                # Another object has the name; the next plan uses the next candidate.
                raise
            return
        except ApiError as refusal:
            self._metrics.claim_refused(action.labels, **kind)
            entry = metadata["annotations"][POD_CLAIM_NAME]
            self._report(owner, f"{type(owner).__name__}ResourceClaim {entry}: {refusal}")
            raise
        self._metrics.claim_created(action.labels, **kind)
        self._claims.keep(claim)

    async def _record(self, action: RecordClaims) -> None:
        """Write the whole list: no other component writes it."""
        owner = action.owner
        statuses = [{"name": entry, "resourceClaimName": claim} for entry, claim in action.names]
        patch = {"metadata": {"uid": owner.metadata.uid}, "status": {"resourceClaimStatuses": statuses}}
        if isinstance(owner, Pod):
            self._pods.keep(await self._calls.patch(PODS, key_of(owner), patch, subresource="status"))
        elif self._groups is not None:
            self._groups.keep(await self._calls.patch(POD_GROUPS, key_of(owner), patch, subresource="status"))

    async def _reserve(self, action: Reserve) -> None:
        """Reserve the claim for all its pods with one write, so that they do not compete for it.

        The claim is read first: the scheduler reserves before it binds, so the reservation usually exists.
        """
        key = ObjectKey(action.pod.metadata.namespace, action.claim)
        async with self._reserving.setdefault(key, asyncio.Lock()):
            known = self._claims.get(key.name, key.namespace)
            if known is None or needs_reservation(known, action.pod, self._gates, self._group_of(action.pod)):
                claim = await self._calls.get(CLAIMS, key)
                pods = (action.pod, *users_of(claim, self._pod_informer))
                bound = [pod for pod in pods if pod.spec.node_name and not pod.is_terminating]
                listed = with_reservations(claim, bound, self._gates, self._group_of)
                if listed == claim.status.reserved_for:
                    self._claims.keep(claim)
                else:
                    self._claims.keep(await patch_claim(self._calls, claim, status={"reservedFor": listed}))

    def _report(self, owner: ApiObject, message: str, reason: str = "FailedResourceClaimCreation") -> None:
        if self._reported.get(owner.metadata.uid) == message:
            return
        self._reported[owner.metadata.uid] = message
        if len(self._reported) > PROBLEMS_REMEMBERED_MAX:
            self._reported.popitem(last=False)
        kind = PODS if isinstance(owner, Pod) else POD_GROUPS
        reference = reference_to(owner, kind.api_version, kind.kind)
        self._recorder.report(Report(reference, "Warning", reason, message))
