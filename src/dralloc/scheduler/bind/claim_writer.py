"""Writes decisions about claims, in an order in which a crash between two writes leaks no device.

First the finalizer, so that the claim cannot be deleted while it is allocated; then allocation and reservation in one
status write. A server with the extension `ALLOCATION_FINALIZER` adds the finalizer in that write. Pods that share a claim do not
conflict: those that arrive during a write are written together by the next.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Any, Final
from weakref import WeakValueDictionary

from dralloc.client.api_calls import ApiCalls
from dralloc.client.claim_patches import CLAIMS, patch_claim
from dralloc.client.transport import TransportError
from dralloc.client.typed_resource import key_of
from dralloc.devices.deallocation import DEALLOCATED
from dralloc.devices.identity import ClaimId
from dralloc.kube.dralloc_v1 import ALLOCATION_FINALIZER
from dralloc.kube.pod_claims import CLAIM_FINALIZER, is_pod
from dralloc.kube.resource_v1 import AllocationResult, ResourceClaim
from dralloc.primitives.errors import Conflict, NotFound
from dralloc.scheduler.state.cluster_events import ClusterEvent
from dralloc.scheduler.state.cluster_state import ClusterState

ATTEMPTS_MAX: Final = 5
RETRY_S: Final = 0.01


class ClaimLost(Exception):
    """The claim is not as it was decided: it was deleted, deallocated or allocated other devices."""


class Collision(Exception):
    """Another claim was allocated the same devices first."""


class ClaimWriter:
    """Writes claims until they are stored as the cluster state has assumed them."""

    def __init__(
        self, calls: ApiCalls, cluster: ClusterState, report: Callable[[Collection[ClusterEvent]], None]
    ) -> None:
        self._calls = calls
        self._cluster = cluster
        self._report = report
        # Done when the write has ended, with the UIDs that it added to `reservedFor`.
        self._writing: dict[ClaimId, asyncio.Future[frozenset[str]]] = {}
        # The consumers that wait for their removal, and what is held while a claim is released. Unused locks are dropped.
        self._leaving: dict[ClaimId, set[str]] = {}
        self._releasing: WeakValueDictionary[ClaimId, asyncio.Lock] = WeakValueDictionary()

    async def settle(
        self, claim_id: ClaimId, allocation: AllocationResult, pod_uid: str, reserved: set[ClaimId]
    ) -> ResourceClaim:
        """Returns when the claim is stored with this allocation and the pod may use it.

        The claim is added to `reserved` if our own write added the pod to `reservedFor`.
        """
        while True:
            stored = self._cluster.claims.stored(claim_id)
            if stored is None:
                raise ClaimLost(f"claim {claim_id} was deleted")
            if not self._cluster.claims.is_unwritten(claim_id, pod_uid):
                if not is_same_allocation(stored.status.allocation, allocation):
                    raise ClaimLost(f"claim {claim_id} was deallocated or allocated other devices")
                return stored
            if pod_uid in await self._write(claim_id):
                reserved.add(claim_id)

    async def release(self, claim_id: ClaimId, consumers: Collection[str]) -> None:
        """Removes the consumers, of which no pod has a node, from `reservedFor`, and deallocates the claim if no other uses it.

        Pods that let go of a claim together do not conflict: the first removes one, the second all that wait by then.
        """
        self._leaving.setdefault(claim_id, set()).update(consumers)
        async with self._releasing.setdefault(claim_id, asyncio.Lock()):
            await self._release_now(claim_id, self._leaving.pop(claim_id, set()).union(consumers))

    async def deallocate(self, claim_id: ClaimId, pod_uid: str) -> bool:
        """Deallocates a claim that only this pod holds, which has no node; returns whether it is deallocated. Retried as `_release_now` is."""
        for _ in range(ATTEMPTS_MAX):
            stored = self._cluster.claims.stored(claim_id)
            if stored is None or self._cluster.is_in_use(claim_id):
                return False
            if any(reference.uid != pod_uid for reference in stored.status.reserved_for):
                return False
            if stored.status.allocation is None:
                return True
            if await self._send(stored, patch_claim(self._calls, stored, status=DEALLOCATED)):
                return True
        return False

    # --- Writing ----------------------------------------------------------------------------------------------------

    async def _release_now(self, claim_id: ClaimId, consumers: Collection[str]) -> None:
        """Retried until the outcome is known: a write that was abandoned may still arrive, and must then fail with a conflict."""
        for _ in range(ATTEMPTS_MAX):
            stored, wanted = self._cluster.claims.stored(claim_id), self._cluster.find_claim(claim_id)
            if stored is None or wanted is None:
                return
            # A group stays while pods with a node use the claim, because they are not listed.
            is_used = self._cluster.is_in_use(claim_id)
            removed = {
                reference.uid
                for reference in stored.status.reserved_for
                if reference.uid in consumers and (is_pod(reference) or not is_used)
            }
            if not removed:
                return
            # Consumers that are assumed and not written yet stay.
            left = tuple(reference for reference in wanted.status.reserved_for if reference.uid not in removed)
            status = {"reservedFor": left or None} if left or is_used else DEALLOCATED
            if await self._send(stored, patch_claim(self._calls, stored, status=status)):
                return
        raise Collision(f"claim {claim_id} was not released in {ATTEMPTS_MAX} attempts")

    async def _write(self, claim_id: ClaimId) -> frozenset[str]:
        """Writes the current decisions, or waits for the write that is running; all waiters share its outcome.

        Returns the UIDs that the write added to `reservedFor`.
        """
        running = self._writing.get(claim_id)
        if running is not None:
            # The cancellation of one waiter must not end the wait of the others. Not `shield`: Python 3.14 logs a failure that a
            # waiter does not see because it was cancelled.
            await asyncio.wait((running,))
            return running.result()
        ended = self._writing[claim_id] = asyncio.get_running_loop().create_future()
        added: frozenset[str] = frozenset()
        try:
            added = await self._write_now(claim_id)
        except Exception as error:
            ended.set_exception(error)
            # Without waiters, it is raised here alone.
            ended.exception()
            raise
        finally:
            # Before the waiters resume: pods that arrive from now on need another write.
            del self._writing[claim_id]
            if not ended.done():
                # Nothing if this was cancelled: the waiters write the claim themselves.
                ended.set_result(added)
        return added

    async def _write_now(self, claim_id: ClaimId) -> frozenset[str]:
        added: set[str] = set()
        for attempt in range(ATTEMPTS_MAX):
            if attempt:
                await asyncio.sleep(RETRY_S)
            stored = self._cluster.claims.stored(claim_id)
            if stored is None:
                return frozenset(added)
            finalizers = _missing_finalizers(stored)
            if finalizers is not None and not await self._protects_with_allocation(stored):
                patch = patch_claim(self._calls, stored, finalizers=finalizers)
                if not await self._send(stored, patch):
                    continue
                stored, finalizers = self._cluster.claims.stored(claim_id), None
            # Read after the first write: more pods may have been assumed since.
            wanted = self._cluster.find_claim(claim_id)
            if stored is None or wanted is None or wanted is stored:
                return frozenset(added)
            status = _status(stored, wanted)
            if await self._send(stored, patch_claim(self._calls, stored, status=status, finalizers=finalizers)):
                added |= _consumers(wanted) - _consumers(stored)
                if finalizers is None or self._is_protected(claim_id):
                    return frozenset(added)
        raise Collision(f"claim {claim_id} changed during each of {ATTEMPTS_MAX} attempts to write it")

    async def _protects_with_allocation(self, stored: ResourceClaim) -> bool:
        """True if the server adds the finalizer in the write that allocates the claim."""
        return stored.status.allocation is None and await self._calls.extensions.has(ALLOCATION_FINALIZER)

    def _is_protected(self, claim_id: ClaimId) -> bool:
        """False if the write was answered by a server that does not have the extension: the finalizer is written next."""
        stored = self._cluster.claims.stored(claim_id)
        return stored is None or stored.status.allocation is None or _missing_finalizers(stored) is None

    async def _send(self, stored: ResourceClaim, patch: Awaitable[ResourceClaim]) -> bool:
        """Writes the claim if its revision is the known one; otherwise reads the claim again and returns False."""
        try:
            written = await patch
        except (Conflict, TransportError) as error:
            await self._read_again(stored, error)
            return False
        except NotFound:
            self._report(self._cluster.claim_changed(stored, None))
            return False
        self._report(self._cluster.claims.written(written))
        return True

    async def _read_again(self, stored: ResourceClaim, error: Exception) -> None:
        try:
            fresh = await self._calls.get(CLAIMS, key_of(stored))
        except NotFound:
            self._report(self._cluster.claim_changed(stored, None))
            return
        if isinstance(error, Conflict) and fresh.metadata.resource_version == stored.metadata.resource_version:
            # The revision is current, so the conflict is the server's guard: the devices are taken.
            raise Collision(error.message) from error
        self._report(self._cluster.claims.written(fresh))


def _missing_finalizers(stored: ResourceClaim) -> tuple[str, ...] | None:
    """The finalizers with the one that the claim lacks; None if it is protected."""
    kept = stored.metadata.finalizers
    return None if CLAIM_FINALIZER in kept else (*kept, CLAIM_FINALIZER)


def _consumers(claim: ResourceClaim) -> set[str]:
    return {reference.uid for reference in claim.status.reserved_for}


def _status(stored: ResourceClaim, wanted: ResourceClaim) -> dict[str, Any]:
    status: dict[str, Any] = {}
    if stored.status.allocation is None:
        status["allocation"] = wanted.status.allocation
    if stored.status.reserved_for != wanted.status.reserved_for:
        status["reservedFor"] = wanted.status.reserved_for
    return status


def is_same_allocation(one: AllocationResult | None, other: AllocationResult | None) -> bool:
    """True if both have the same devices and nodes. Other fields may differ: older servers drop fields they do not know."""
    if one is other:
        return True
    if one is None or other is None:
        return False
    return one.node_selector == other.node_selector and _devices(one) == _devices(other)


def _devices(allocation: AllocationResult) -> list[tuple[str, str, str, str]]:
    return [(result.request, result.driver, result.pool, result.device) for result in allocation.devices.results]
