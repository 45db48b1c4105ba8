"""Removes finished consumers from claims, and deallocates and deletes claims that are no longer needed."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import ClassVar, Final, assert_never

import msgspec

from dralloc.client.claim_patches import patch_claim
from dralloc.client.informer import Informer
from dralloc.client.known_resources import resource_for
from dralloc.client.status_errors import error_of_response
from dralloc.client.transport import ClientRequest, Transport
from dralloc.client.typed_resource import ObjectKey, key_of
from dralloc.controllers.claim_creation import is_done, users_of
from dralloc.controllers.claim_lifecycle.claim_events import ClaimEvents, why_unscheduled
from dralloc.controllers.claim_lifecycle.plan import (
    ClaimAction,
    ConsumerFacts,
    Deallocate,
    DeleteClaim,
    RemoveConsumers,
    RemoveFinalizer,
    plan_claim,
)
from dralloc.controllers.controller_context import ControllerContext
from dralloc.controllers.controller_loop import Controller
from dralloc.controllers.metrics import ClaimLabels
from dralloc.controllers.mutation_cache import MutationCache
from dralloc.controllers.planned_actions import PlannedActions
from dralloc.controllers.shared_informers import POD_GROUPS
from dralloc.devices.deallocation import DEALLOCATED
from dralloc.kube.codec import decode
from dralloc.kube.meta_v1 import ApiObject
from dralloc.kube.pod_claims import CLAIM_FINALIZER, claims_of, controller_of, group_reference, is_group, is_pod
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import ConsumerReference, ResourceClaim
from dralloc.kube.scheduling_v1beta1 import PodGroup
from dralloc.primitives.errors import NotFound

FIELD_MANAGER: Final = "resource-claim-controller"
PODS: Final = resource_for(Pod)
CLAIMS: Final = resource_for(ResourceClaim)

# Consumers that no informer shows are checked at this interval: workloads, which are not watched, and pods and groups that exist
# although an informer does not have them yet. If it never does, it does not report their deletion either.
CHECK_S: Final = 60.0
# Longer than a scheduler takes from the reservation to the binding: it waits up to ten minutes for devices, then for volumes.
BINDING_MAX_S: Final = 1500.0
GONE_REMEMBERED_MAX: Final = 10_000


class ClaimLifecycleController(Controller[ObjectKey, ClaimAction]):
    """Keys are claims."""

    queue_name: ClassVar[str] = "resource_claim"
    workers: ClassVar[int] = 20

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self._calls = context.calls(FIELD_MANAGER)
        self._workloads = WorkloadLookup(context.transport)
        self._pods = context.informers.informer_for(PODS)
        self._claim_informer = context.informers.informer_for(CLAIMS)
        self._claims = MutationCache(self._claim_informer)
        self._events = ClaimEvents(context, context.recorder(FIELD_MANAGER))
        self._groups: Informer[PodGroup] | None = None
        # The UIDs of deleted pods and groups, so that the server need not be asked about them.
        self._gone: OrderedDict[str, None] = OrderedDict()
        # When each workload, by namespace, was last found to exist.
        self._checked_s: dict[tuple[str, ConsumerReference], float] = {}
        # Since when the pods that use a claim of a workload have all been without a node.
        self._waiting_since_s: dict[ObjectKey, float] = {}
        context.metrics.claims = lambda: map(ClaimLabels.of, self._claim_informer.all())
        self._pods.subscribe(self._on_pod)
        self._claim_informer.subscribe(self._on_claim)
        if "DRAWorkloadResourceClaims" in context.gates:
            self._groups = context.informers.informer_for(POD_GROUPS)
            self._groups.subscribe(self._on_group)

    # --- Events ---------------------------------------------------------------------------------------------------

    def _on_pod(self, before: Pod | None, after: Pod | None) -> None:
        pod = after or before
        assert pod is not None, "a change has an object"
        self._remember_gone(before, after)
        if after is not None and (why := why_unscheduled(after)) and why != why_unscheduled(before):
            used = (self._claim_informer.get(use.claim, pod.metadata.namespace) for use in claims_of(after))
            self._events.pod_waits(after, (claim for claim in used if claim is not None))
        if after is None or is_done(after):
            for use in claims_of(pod):
                self.queue.add(ObjectKey(pod.metadata.namespace, use.claim))
            # Claims that were created for the pod but not recorded in its status, because of a crash in between.
            for claim in self._claim_informer.by("controller", (pod.metadata.namespace, pod.metadata.uid)):
                self.queue.add(key_of(claim))

    def _on_group(self, before: PodGroup | None, after: PodGroup | None) -> None:
        self._remember_gone(before, after)
        if before is not None and after is None:
            for claim in self._claim_informer.by("workload", (before.metadata.namespace, group_reference(before))):
                self.queue.add(key_of(claim))

    def _remember_gone(self, before: ApiObject | None, after: ApiObject | None) -> None:
        if before is not None and after is None:
            self._gone[before.metadata.uid] = None
            if len(self._gone) > GONE_REMEMBERED_MAX:
                self._gone.popitem(last=False)

    def _on_claim(self, before: ResourceClaim | None, after: ResourceClaim | None) -> None:
        self._events.claim_changed(before, after)
        claim = after or before
        assert claim is not None, "a change has an object"
        if after is None or not claim.status.reserved_for:
            self._waiting_since_s.pop(key_of(claim), None)
        for consumer in _consumers(before) - _consumers(after):
            self._checked_s.pop((claim.metadata.namespace, consumer), None)
        if after is not None and not self._is_settled(after):
            self.queue.add(key_of(after))

    def _is_settled(self, claim: ResourceClaim) -> bool:
        """True if the informers show that the plan is empty, as at most changes: the claim is new, or used by pods that are not done."""
        if claim.status.reserved_for:
            return all(self._is_working(claim.metadata.namespace, each) for each in claim.status.reserved_for)
        return controller_of(claim.metadata) is None and not plan_claim(claim, ConsumerFacts())

    def _is_working(self, namespace: str, consumer: ConsumerReference) -> bool:
        pod = self._shown(namespace, consumer)
        return isinstance(pod, Pod) and not is_done(pod)

    # --- Plan and apply -------------------------------------------------------------------------------------------

    async def plan(self, key: ObjectKey) -> PlannedActions[ClaimAction]:
        claim = self._claims.get(key.name, key.namespace)
        if claim is None:
            return PlannedActions()
        listed = claim.status.reserved_for
        gone = frozenset([consumer.uid for consumer in listed if await self._is_gone(claim, consumer)])
        consumers = ConsumerFacts(
            gone=gone,
            # Checked only if no consumer is left: a claim may have thousands of users.
            in_use=len(gone) == len(listed) and any(pod.spec.node_name for pod in users_of(claim, self._pods)),
            owner_is_done=await self._owner_is_done(claim),
        )
        is_checked = any(
            consumer.uid not in gone and self._shown(key.namespace, consumer) is None for consumer in listed
        )
        return PlannedActions(plan_claim(claim, consumers), CHECK_S if is_checked else None)

    def _shown(self, namespace: str, consumer: ConsumerReference) -> Pod | PodGroup | None:
        """The consumer, if an informer has it, and thus reports its end."""
        found: Pod | PodGroup | None = None
        if is_pod(consumer):
            found = self._pods.get(consumer.name, namespace)
        elif self._groups is not None and is_group(consumer):
            found = self._groups.get(consumer.name, namespace)
        return found if found is not None and found.metadata.uid == consumer.uid else None

    async def _is_gone(self, claim: ResourceClaim, consumer: ConsumerReference) -> bool:
        namespace = claim.metadata.namespace
        if is_pod(consumer):
            return await self._pod_is_done(ObjectKey(namespace, consumer.name), consumer.uid)
        if self._is_watched(consumer):
            return await self._group_is_gone(ObjectKey(namespace, consumer.name), consumer.uid)
        return not self._has_pods(claim) and await self._workload_is_gone(namespace, consumer)

    def _has_pods(self, claim: ResourceClaim) -> bool:
        """True if a pod with a node uses the claim, or one without may be about to get a node.

        Pods that wait for longer are kept waiting by the reservation if their devices are on a node that they cannot get: schedulers
        deallocate no claim of a workload. They must not keep the reservation in turn.
        """
        key, has_node = key_of(claim), any(pod.spec.node_name for pod in users_of(claim, self._pods))
        if has_node or not any(users_of(claim, self._pods)):
            self._waiting_since_s.pop(key, None)
            return has_node
        now_s = asyncio.get_running_loop().time()
        return now_s < self._waiting_since_s.setdefault(key, now_s) + BINDING_MAX_S

    def _is_watched(self, consumer: ConsumerReference) -> bool:
        return self._groups is not None and is_group(consumer)

    async def _group_is_gone(self, key: ObjectKey, uid: str) -> bool:
        """True if the PodGroup with this UID does not exist. One that is being deleted waits for its pods, and still exists."""
        assert self._groups is not None, "groups are watched"
        if uid in self._gone:
            return True
        group = self._groups.get(key.name, key.namespace)
        if group is not None and group.metadata.uid == uid:
            return False
        try:
            live: PodGroup = await self._calls.get(POD_GROUPS, key)
        except NotFound as missing:
            # A server that does not serve groups, because of another gate there, says nothing of this one.
            return missing.details is not None and missing.details.name == key.name
        return live.metadata.uid != uid

    async def _pod_is_done(self, key: ObjectKey, uid: str) -> bool:
        """True if the pod with this UID is done or gone. Asks the server if the informer lacks it: it may be stale."""
        if uid in self._gone:
            return True
        pod = self._pods.get(key.name, key.namespace)
        if pod is None or pod.metadata.uid != uid:
            try:
                pod = await self._calls.get(PODS, key)
            except NotFound:
                return True
        return pod.metadata.uid != uid or is_done(pod)

    async def _workload_is_gone(self, namespace: str, consumer: ConsumerReference) -> bool:
        now_s = asyncio.get_running_loop().time()
        checked_s = self._checked_s.get((namespace, consumer))
        if checked_s is not None and now_s < checked_s + CHECK_S:
            return False
        is_gone = await self._workloads.is_gone(namespace, consumer)
        if not is_gone:
            self._checked_s[namespace, consumer] = now_s
        return is_gone

    async def _owner_is_done(self, claim: ResourceClaim) -> bool:
        """True if the pod that the claim was created for is done, or was replaced by another pod of the same name.

        If no pod has that name, garbage collection deletes the claim.
        """
        owner, namespace = controller_of(claim.metadata), claim.metadata.namespace
        if owner is None or owner.kind != "Pod" or owner.api_version != PODS.api_version:
            return False
        if self._pods.get(owner.name, namespace) is None:
            return False
        return await self._pod_is_done(ObjectKey(namespace, owner.name), owner.uid)

    async def apply(self, action: ClaimAction) -> None:
        match action:
            case RemoveConsumers(claim, kept):
                self._claims.keep(await patch_claim(self._calls, claim, status={"reservedFor": kept or None}))
            case Deallocate(claim):
                claim = await patch_claim(self._calls, claim, status=DEALLOCATED)
                self._claims.keep(claim)
                await self._remove_finalizer(claim)
            case RemoveFinalizer(claim):
                await self._remove_finalizer(claim)
            case DeleteClaim(claim):
                await self._calls.delete_unchanged(CLAIMS, claim)
            case _:
                assert_never(action)

    async def _remove_finalizer(self, claim: ResourceClaim) -> None:
        """Fails with a conflict if the claim was allocated again since the previous write."""
        kept = [finalizer for finalizer in claim.metadata.finalizers if finalizer != CLAIM_FINALIZER]
        try:
            self._claims.keep(await patch_claim(self._calls, claim, finalizers=kept))
        except NotFound:
            return


def _consumers(claim: ResourceClaim | None) -> frozenset[ConsumerReference]:
    return frozenset(claim.status.reserved_for) if claim is not None else frozenset()


# --- Workload lookup ------------------------------------------------------------------------------------------------
# Finds out whether a workload that a claim is reserved for still exists.
#
# A workload can be of any kind, even an unknown one, so it is requested by API group and resource alone. Only a
# NotFound for the object itself proves that it is gone; Forbidden, or a server without that kind, proves nothing.


CORE_VERSION: Final = "v1"


class _GroupVersion(msgspec.Struct):
    version: str = ""


class _ApiGroup(msgspec.Struct, rename="camel"):
    preferred_version: _GroupVersion = msgspec.field(default_factory=_GroupVersion)


class WorkloadLookup:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        # By API group. Groups that are not served are requested again.
        self._versions: dict[str, str] = {"": CORE_VERSION}

    async def is_gone(self, namespace: str, reference: ConsumerReference) -> bool:
        """True if the object with the UID of the reference is known to be gone."""
        version = await self._version(reference.api_group)
        if version is None:
            return False
        prefix = f"/apis/{reference.api_group}/{version}" if reference.api_group else f"/api/{version}"
        path = f"{prefix}/namespaces/{namespace}/{reference.resource}/{reference.name}"
        response = await self._transport.send(ClientRequest(method="GET", path=path))
        if response.status == 200:
            return decode(response.body, ApiObject).metadata.uid != reference.uid
        error = error_of_response(response.status, response.body)
        # An unknown resource is NotFound as well, but then the status names no object.
        return isinstance(error, NotFound) and error.details is not None and error.details.name == reference.name

    async def _version(self, group: str) -> str | None:
        if group not in self._versions:
            response = await self._transport.send(ClientRequest(method="GET", path=f"/apis/{group}"))
            if response.status != 200:
                return None
            self._versions[group] = msgspec.json.decode(response.body, type=_ApiGroup).preferred_version.version
        return self._versions[group]
