"""Writes the claim that a decision makes for the extended resources of a pod, and the pod's status that names it.

The name of the claim follows from the pod, so a repeated creation never makes a second one. A crash leaves a claim that its pod owns
and the status does not name, or names in vain: the pod's next attempt deletes it first, and the binding waits for the right status.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from dralloc.client.api_calls import ApiCalls
from dralloc.client.claim_patches import CLAIMS, patch_claim
from dralloc.client.known_resources import resource_for
from dralloc.client.transport import TransportError
from dralloc.client.typed_resource import ObjectKey, key_of
from dralloc.devices.deallocation import DEALLOCATED
from dralloc.devices.identity import ClaimId
from dralloc.kube.extended_resources import extended_owner
from dralloc.kube.pod_claims import CLAIM_FINALIZER
from dralloc.kube.pod_v1 import Pod, PodExtendedResourceClaimStatus
from dralloc.kube.resource_v1 import ResourceClaim
from dralloc.primitives.errors import AlreadyExists, ApiError, Conflict, NotFound
from dralloc.scheduler.bind.claim_writer import ATTEMPTS_MAX, ClaimLost, Collision
from dralloc.scheduler.state.cluster_events import ClusterEvent
from dralloc.scheduler.state.cluster_state import ClusterState

PODS: Final = resource_for(Pod)


class ExtendedClaimWriter:
    def __init__(
        self, calls: ApiCalls, cluster: ClusterState, report: Callable[[Collection[ClusterEvent]], None]
    ) -> None:
        self._calls = calls
        self._cluster = cluster
        self._report = report
        # Living pods whose status we have written: the watch may not show it yet.
        self._written: set[str] = set()

    async def create(self, claim: ResourceClaim) -> None:
        """Creates the claim, as the cluster state has assumed it."""
        try:
            created = await self._calls.create(CLAIMS, claim)
        except (AlreadyExists, TransportError) as error:
            created = await self._created_before(claim, error)
        self._report(self._cluster.claims.created(created))

    async def _created_before(self, claim: ResourceClaim, error: Exception) -> ResourceClaim:
        """The claim if the lost response was a success; the claim of an earlier attempt must be deleted first."""
        try:
            found: ResourceClaim = await self._calls.get(CLAIMS, key_of(claim))
        except NotFound:
            raise error from None
        is_ours = found.metadata.owner_references == claim.metadata.owner_references
        is_new = found.status.allocation is None and found.metadata.deletion_timestamp is None
        if is_ours and is_new and found.spec.devices.requests == claim.spec.devices.requests:
            return found
        raise ClaimLost(f"claim {ClaimId.of(claim)} exists already")

    async def write_status(self, pod: Pod, status: PodExtendedResourceClaimStatus | None) -> None:
        """Returns when the pod's status names the claim, or none."""
        uid = pod.metadata.uid
        if pod.status.extended_resource_claim_status == status and uid not in self._written:
            return
        self._written &= self._cluster.living
        self._written.add(uid)
        patch = {"metadata": {"uid": uid}, "status": {"extendedResourceClaimStatus": status}}
        key = ObjectKey(pod.metadata.namespace, pod.metadata.name)
        written = await self._calls.patch(PODS, key, patch, subresource="status")
        if written.status.extended_resource_claim_status != status:
            raise ClaimLost("the API server does not keep status.extendedResourceClaimStatus: its feature gate is off")

    def forget(self, pod_uid: str) -> None:
        """The pod has its node, or is gone."""
        self._written.discard(pod_uid)

    async def delete(self, claim_id: ClaimId, pod_uid: str) -> None:
        """Deletes the claim if it was made for the pod, which has no node; it is gone when the watch says so."""
        key = ObjectKey(claim_id.namespace, claim_id.name)
        for _ in range(ATTEMPTS_MAX):
            try:
                claim = await self._calls.get(CLAIMS, key)
                if extended_owner(claim) != pod_uid:
                    return
                await self._delete(claim)
            except NotFound:
                return
            except Conflict:
                continue
            return
        raise Collision(f"claim {claim_id} changed during each of {ATTEMPTS_MAX} attempts to delete it")

    async def _delete(self, claim: ResourceClaim) -> None:
        if claim.status.allocation is not None or claim.status.reserved_for:
            claim = await patch_claim(self._calls, claim, status=DEALLOCATED)
        if CLAIM_FINALIZER in claim.metadata.finalizers:
            left = tuple(each for each in claim.metadata.finalizers if each != CLAIM_FINALIZER)
            claim = await patch_claim(self._calls, claim, finalizers=left)
        await self._calls.delete_unchanged(CLAIMS, claim)

    async def undo(self, claim_id: ClaimId, pod: Pod) -> None:
        """Removes what this attempt wrote. Best effort: the next attempt does what fails here."""
        try:
            if pod.metadata.uid in self._written:
                await self.write_status(pod, None)
            await self.delete(claim_id, pod.metadata.uid)
        except (ApiError, TransportError, Collision, ClaimLost):
            return
