"""Writes what was decided about claims, in an order in which dying between any two writes leaks nothing.

First the finalizer, so that the claim cannot go while it has devices; then the allocation and whom it is reserved for, in one
write of the status. Pods that share a claim do not contend for it: whoever comes while a write is under way is written
with the next one, all together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Any, Final

from dralloc.api.pod_claims import CLAIM_FINALIZER
from dralloc.api.resource_v1 import AllocationResult, ResourceClaim
from dralloc.client.api_calls import ApiCalls
from dralloc.client.known_resources import resource_for
from dralloc.client.transport import TransportError
from dralloc.client.typed_resource import ObjectKey
from dralloc.devices.deallocation import DEALLOCATED
from dralloc.devices.identity import ClaimId
from dralloc.primitives.errors import Conflict, NotFound
from dralloc.scheduler.state.cluster_events import ClusterEvent
from dralloc.scheduler.state.cluster_state import ClusterState

ATTEMPTS_MAX: Final = 5
RETRY_S: Final = 0.01

CLAIMS: Final = resource_for(ResourceClaim)


class ClaimLost(Exception):
    """The claim is not what the decision was made for: it is gone, or has other devices, or none."""


class Collision(Exception):
    """Devices that were decided on have been given to another claim meanwhile."""


class ClaimWriter:
    """Makes stored claims what the cluster says they are to be."""

    def __init__(
        self, calls: ApiCalls, cluster: ClusterState, report: Callable[[Collection[ClusterEvent]], None]
    ) -> None:
        self._calls = calls
        self._cluster = cluster
        self._report = report
        self._writing: dict[ClaimId, asyncio.Task[frozenset[str]]] = {}

    async def settle(
        self, claim_id: ClaimId, allocation: AllocationResult, pod_uid: str, listed: set[ClaimId]
    ) -> ResourceClaim:
        """Return when the claim is stored with this allocation and the pod may use it.

        The claim is added to `listed` where a write of ours has put the pod on its list: not what another scheduler wrote.
        """
        while True:
            stored = self._cluster.stored_claim(claim_id)
            if stored is None:
                raise ClaimLost(f"claim {claim_id} is gone")
            if not self._cluster.is_unwritten(claim_id, pod_uid):
                if not is_same_allocation(stored.status.allocation, allocation):
                    raise ClaimLost(f"claim {claim_id} does not have the devices any more that were decided on")
                return stored
            if pod_uid in await self._write(claim_id):
                listed.add(claim_id)

    async def release(self, claim_id: ClaimId, pod_uid: str) -> None:
        """Take the pod off the stored claim's list; where nobody else is on it or uses the claim, the devices are given back too."""
        for _ in range(ATTEMPTS_MAX):
            stored, wanted = self._cluster.stored_claim(claim_id), self._cluster.find_claim(claim_id)
            if stored is None or wanted is None:
                return
            if all(reference.uid != pod_uid for reference in stored.status.reserved_for):
                return
            # Others that are yet to be written stay.
            left = tuple(reference for reference in wanted.status.reserved_for if reference.uid != pod_uid)
            is_free = not left and not self._cluster.is_in_use(claim_id)
            status = DEALLOCATED if is_free else {"reservedFor": left or None}
            if await self._patch(stored, {"status": status}, "status"):
                return

    async def deallocate(self, claim_id: ClaimId, pod_uid: str) -> bool:
        """Give back the devices of a claim that nobody uses, or only this pod, which has no node; whether that was done.

        Tried until it is known to be done or refused: a write that was given up may still arrive, and must find another revision.
        """
        for _ in range(ATTEMPTS_MAX):
            stored = self._cluster.stored_claim(claim_id)
            if stored is None or self._cluster.is_in_use(claim_id):
                return False
            if any(reference.uid != pod_uid for reference in stored.status.reserved_for):
                return False
            if stored.status.allocation is None or await self._patch(stored, {"status": DEALLOCATED}, "status"):
                return True
        return False

    async def close(self) -> None:
        """Give up writes that nobody waits for any more."""
        tasks = tuple(self._writing.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- Writing ----------------------------------------------------------------------------------------------------

    async def _write(self, claim_id: ClaimId) -> frozenset[str]:
        """Write what is decided by now, or wait for the write that is under way. All who wait share its outcome.

        Returns the UIDs that the write has added to the claim's list.
        """
        task = self._writing.get(claim_id)
        if task is None:
            task = self._writing[claim_id] = asyncio.ensure_future(self._write_alone(claim_id))
        # One pod that gives up must not take the write away from the others.
        return await asyncio.shield(task)

    async def _write_alone(self, claim_id: ClaimId) -> frozenset[str]:
        try:
            return await self._write_now(claim_id)
        finally:
            # Before anybody hears of the end: who comes from now on needs another write.
            del self._writing[claim_id]

    async def _write_now(self, claim_id: ClaimId) -> frozenset[str]:
        for attempt in range(ATTEMPTS_MAX):
            if attempt:
                await asyncio.sleep(RETRY_S)
            stored = self._cluster.stored_claim(claim_id)
            if stored is None:
                return frozenset()
            if CLAIM_FINALIZER not in stored.metadata.finalizers:
                finalizers = (*stored.metadata.finalizers, CLAIM_FINALIZER)
                if not await self._patch(stored, {"metadata": {"finalizers": finalizers}}):
                    continue
                stored = self._cluster.stored_claim(claim_id)
            # Looked at after the first write: more pods may have joined.
            wanted = self._cluster.find_claim(claim_id)
            if stored is None or wanted is None or wanted is stored:
                return frozenset()
            if await self._patch(stored, {"status": _status(stored, wanted)}, "status"):
                return frozenset(
                    {
                        reference.uid
                        for reference in wanted.status.reserved_for
                        if reference not in stored.status.reserved_for
                    }
                )
        raise Collision(f"claim {claim_id} is changed by others all the time")

    async def _patch(self, stored: ResourceClaim, patch: dict[str, Any], subresource: str | None = None) -> bool:
        """Change the claim if it is as we know it; otherwise learn how it is, and say that nothing was done."""
        metadata = {
            **patch.get("metadata", {}),
            "uid": stored.metadata.uid,
            "resourceVersion": stored.metadata.resource_version,
        }
        key = ObjectKey(stored.metadata.namespace, stored.metadata.name)
        try:
            written = await self._calls.patch(CLAIMS, key, {**patch, "metadata": metadata}, subresource=subresource)
        except (Conflict, TransportError) as error:
            await self._read_again(stored, key, error)
            return False
        except NotFound:
            self._report(self._cluster.claim_changed(stored, None))
            return False
        self._report(self._cluster.claim_written(written))
        return True

    async def _read_again(self, stored: ResourceClaim, key: ObjectKey, error: Exception) -> None:
        try:
            fresh = await self._calls.get(CLAIMS, key)
        except NotFound:
            self._report(self._cluster.claim_changed(stored, None))
            return
        if isinstance(error, Conflict) and fresh.metadata.resource_version == stored.metadata.resource_version:
            # The claim is as we know it, so the server refuses what we want: the devices are taken.
            raise Collision(error.message) from error
        self._report(self._cluster.claim_written(fresh))


def _status(stored: ResourceClaim, wanted: ResourceClaim) -> dict[str, Any]:
    status: dict[str, Any] = {}
    if stored.status.allocation is None:
        status["allocation"] = wanted.status.allocation
    if stored.status.reserved_for != wanted.status.reserved_for:
        status["reservedFor"] = wanted.status.reserved_for
    return status


def is_same_allocation(one: AllocationResult | None, other: AllocationResult | None) -> bool:
    """Whether they hold the same devices for the same nodes. Servers may leave out what they do not know of the rest."""
    if one is other:
        return True
    if one is None or other is None:
        return False
    return one.node_selector == other.node_selector and _devices(one) == _devices(other)


def _devices(allocation: AllocationResult) -> list[tuple[str, str, str, str]]:
    return [(result.request, result.driver, result.pool, result.device) for result in allocation.devices.results]
