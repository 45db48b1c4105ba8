"""Writes a decision: claims first, then the pod. Undoes what cannot be finished.

1. Each claim gets its finalizer, then its allocation and reservation in one write (`claim_writer`). The claim for extended resources
   is created after the others (`extended_claims`).
2. Collision check: no other scheduler has allocated the same devices at the same time.
3. Binding conditions: drivers make devices ready that need it.
4. Claims to persistent volumes are bound (`volume_writer`).
5. The pod's status names the claim for extended resources, or none.
6. The pod is bound.

A scheduler that stops between two steps leaves no device without an owner: the claim lists the pod, so the next attempt for
the pod continues with the same devices, and the claim controller releases them when the pod goes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine, Iterable
from typing import Any, Final, Protocol

from msgspec import Struct

from dralloc.client.api_calls import ApiCalls
from dralloc.client.known_resources import resource_for
from dralloc.client.transport import TransportError
from dralloc.client.typed_resource import key_of
from dralloc.devices.device_usage import FREE, DeviceUsage, counted_results, devices_used, pools_used
from dralloc.devices.identity import ClaimId, DeviceId, PoolId
from dralloc.devices.overcommit import exceeded_counters, is_overcommitted
from dralloc.devices.published_slice import PublishedDevice, PublishedSlice, draws_together, find_device
from dralloc.devices.snapshot import Snapshot
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import ResourceClaim
from dralloc.primitives.clock import Clock
from dralloc.primitives.errors import ApiError, Conflict, NotFound
from dralloc.scheduler.bind.claim_writer import ClaimLost, ClaimWriter, Collision
from dralloc.scheduler.bind.device_readiness import DeviceReadiness, DevicesNotReady, ReadinessReporter
from dralloc.scheduler.bind.extended_claims import ExtendedClaimWriter
from dralloc.scheduler.bind.volume_writer import VolumesNotBound, VolumeWriter
from dralloc.scheduler.bind.write_slots import WriteSlots
from dralloc.scheduler.contract import CommittedPlacement, ExtendedClaim
from dralloc.scheduler.state.cluster_events import ClusterEvent
from dralloc.scheduler.state.cluster_state import ClusterState
from dralloc.scheduler.state.watch_progress import WatchProgress

PODS: Final = resource_for(Pod)
WATCH_TIMEOUT_S: Final = 60.0


class Bound(Struct, frozen=True, gc=False):
    """The pod has its node."""


class PodGone(Struct, frozen=True, gc=False):
    """The pod was deleted, or another scheduler bound it."""


class BindingFailed(Struct, frozen=True, gc=False):
    """The pod is not bound. `is_collision`: another scheduler won a race, so a retry soon makes sense.

    `reserved` are the claims whose `reservedFor` this attempt added the pod to, and the claim that it made, which must be undone. It is empty once the
    binding was sent: the pod may be bound even if the response is an error, and if it is not, the next attempt continues
    with the same claims.
    """

    message: str
    is_collision: bool = False
    reserved: frozenset[ClaimId] = frozenset()


BindingOutcome = Bound | PodGone | BindingFailed


class BindingReporter(ReadinessReporter, Protocol):
    """Observes the writes of a pod's claims and the wait for binding conditions."""

    def claim_created(self, *, is_done: bool) -> None:
        """A claim for extended resources was created, or could not be."""

    def claims_written(self, status: str, seconds: float) -> None:
        """The claims of a pod are written (`Success`), or cannot be (`Error`)."""


class Binder:
    def __init__(
        self,
        calls: ApiCalls,
        cluster: ClusterState,
        *,
        slots: WriteSlots,
        writer: ClaimWriter,
        extended_writer: ExtendedClaimWriter,
        volume_writer: VolumeWriter,
        progress: WatchProgress,
        clock: Clock,
        reporter: BindingReporter,
    ) -> None:
        self._calls = calls
        self._cluster = cluster
        self._writer = writer
        self._extended_writer = extended_writer
        self._volume_writer = volume_writer
        self._progress = progress
        self._reporter = reporter
        self._readiness = DeviceReadiness(cluster, slots, clock, reporter)

    def notify(self, events: Iterable[ClusterEvent]) -> None:
        """Wakes the pods that wait for binding conditions of the claims that the events are about, or for volumes."""
        for event in events:
            if self._volume_writer.waiting:
                self._volume_writer.notify(event)
            if self._readiness.awaited:
                self._readiness.notify(event)

    async def bind(self, pod: Pod, place: CommittedPlacement) -> BindingOutcome:
        """Writes a decision that the cluster state has assumed."""
        prepared = await self.prepare(pod, place)
        return prepared if isinstance(prepared, BindingFailed) else await self.bind_pod(pod, place.node)

    async def prepare(self, pod: Pod, place: CommittedPlacement) -> BindingFailed | frozenset[ClaimId]:
        """Writes everything but the binding; returns the claims whose `reservedFor` the pod was added to."""
        reserved: set[ClaimId] = set()
        try:
            if place.allocations:
                await self._settle_claims(pod, place, reserved)
            if place.volumes:
                await self._volume_writer.settle(pod, place.node, place.volumes)
            await self._extended_writer.write_status(pod, place.extended.status if place.extended else None)
        except Collision as error:
            return BindingFailed(str(error), is_collision=True, reserved=frozenset(reserved))
        except (ClaimLost, VolumesNotBound, DevicesNotReady, ApiError, TransportError, TimeoutError) as error:
            return BindingFailed(str(error) or type(error).__name__, reserved=frozenset(reserved))
        return frozenset(reserved)

    async def bind_pod(self, pod: Pod, node: str) -> BindingOutcome:
        """Writes the binding of a pod whose claims are written."""
        try:
            outcome = await self._bind_pod(pod, node)
        except (ApiError, TransportError) as error:
            return BindingFailed(str(error))
        if not isinstance(outcome, BindingFailed):
            self._extended_writer.forget(pod.metadata.uid)
        return outcome

    async def undo(self, pod: Pod, place: CommittedPlacement, reserved: Iterable[ClaimId]) -> None:
        """Removes the pod from the claims' `reservedFor`, and deletes the claim that was made for it.

        Best effort: what fails here is used by the pod's next attempt, or released when the pod goes.
        """
        for claim_id in sorted(reserved):
            try:
                if not await self._is_unbound(pod):
                    return
                if place.extended is not None and claim_id == place.extended.claim_id:
                    await self._extended_writer.undo(claim_id, pod)
                else:
                    await self._writer.release(claim_id, {pod.metadata.uid})
            except (ApiError, TransportError, Collision):
                continue

    async def deallocate(self, claim_id: ClaimId, pod: Pod) -> BindingFailed | None:
        """Deallocates a claim that keeps the pod from its nodes and that no other pod uses; None if that succeeded."""
        try:
            is_done = await self._is_unbound(pod) and await self._writer.deallocate(claim_id, pod.metadata.uid)
        except (ApiError, TransportError, Collision) as error:
            return BindingFailed(
                f"cannot deallocate claim {claim_id}, which keeps the pod from all fitting nodes: {error}"
            )
        return None if is_done else BindingFailed(f"claim {claim_id} is now in use or deleted")

    async def delete(self, claim_id: ClaimId, pod: Pod) -> BindingFailed | None:
        """Deletes a claim that an earlier attempt made for the pod; None if that succeeded."""
        try:
            if await self._is_unbound(pod):
                await self._extended_writer.delete(claim_id, pod.metadata.uid)
        except (ApiError, TransportError, Collision) as error:
            return BindingFailed(f"cannot delete claim {claim_id} of an earlier attempt: {error}")
        return None

    async def release(self, claim_id: ClaimId, pods: Iterable[Pod], consumers: Collection[str]) -> BindingFailed | None:
        """Removes consumers from a claim that these pods, none of which has a node, are or belong to; None if that succeeded."""
        try:
            for pod in pods:
                if not await self._is_unbound(pod):
                    return BindingFailed(f"pod {pod.metadata.name} has a node now")
            await self._writer.release(claim_id, consumers)
        except (ApiError, TransportError, Collision) as error:
            return BindingFailed(f"cannot release claim {claim_id}: {error}")
        return None

    async def _is_unbound(self, pod: Pod) -> bool:
        """False if the pod got a node in the meantime: an earlier leader's binding may arrive late."""
        try:
            found = await self._calls.get(PODS, key_of(pod))
        except NotFound:
            return True
        return found.metadata.uid != pod.metadata.uid or not found.spec.node_name

    # --- Claims -----------------------------------------------------------------------------------------------------

    async def _settle_claims(self, pod: Pod, place: CommittedPlacement, reserved: set[ClaimId]) -> None:
        """Returns when the claims are stored as decided and their devices are ready.

        Claims whose `reservedFor` our own write added the pod to are added to `reserved`, and those that have lost their devices.
        """
        claims = await self._write_claims(pod.metadata.uid, place, reserved)
        if place.extended is not None:
            claims.append(await self._make_extended_claim(pod.metadata.uid, place, place.extended, reserved))
        for claim_id, claim in zip(place.allocations, claims, strict=True):
            await self._check_collision(claim_id, claim, reserved)
            await self._readiness.settle(pod, claim_id, claim)

    async def _write_claims(self, uid: str, place: CommittedPlacement, reserved: set[ClaimId]) -> list[ResourceClaim]:
        loop, status = asyncio.get_running_loop(), "Error"
        started_s = loop.time()
        try:
            own = place.extended.claim_id if place.extended is not None else None
            claims = await _all_of(
                [
                    self._writer.settle(claim_id, wanted, uid, reserved)
                    for claim_id, wanted in place.allocations.items()
                    if claim_id != own
                ]
            )
            status = "Success"
        finally:
            self._reporter.claims_written(status, loop.time() - started_s)
        return claims

    async def _make_extended_claim(
        self, uid: str, place: CommittedPlacement, extended: ExtendedClaim, reserved: set[ClaimId]
    ) -> ResourceClaim:
        # Before the creation, whose outcome may remain unknown.
        reserved.add(extended.claim_id)
        is_done = False
        try:
            await self._extended_writer.create(extended.claim)
            is_done = True
        finally:
            self._reporter.claim_created(is_done=is_done)
        return await self._writer.settle(extended.claim_id, place.allocations[extended.claim_id], uid, reserved)

    async def _check_collision(self, claim_id: ClaimId, claim: ResourceClaim, reserved: set[ClaimId]) -> None:
        """Raises `Collision` if another claim was allocated the same devices before this one. Then no pod may use it: it is to be
        released, even if an earlier attempt wrote it, or a write whose answer was lost.

        Needed for API servers that do not guard devices. Once the watch has delivered our own write, it has delivered every
        earlier write, so the check sees all earlier allocations.
        """
        if self._cluster.is_proven(claim_id):
            return
        revision = int(claim.metadata.resource_version)
        if not self._progress.has_reached(revision):
            async with asyncio.timeout(WATCH_TIMEOUT_S):
                await self._progress.reach(revision)
        if (holder := self._earlier_holder(claim_id)) is not None:
            reserved.add(claim_id)
            raise Collision(f"claim {holder} was allocated devices of claim {claim_id} first")
        self._cluster.claims.prove(claim_id)

    def _earlier_holder(self, claim_id: ClaimId) -> ClaimId | None:
        mine = self._cluster.claims.find(claim_id)
        if mine is None:
            return None
        # Lazy: nearly always, the claim's own devices show that there is no collision.
        others = (
            Holder(other.stored, other.allocated_revision) for other in self._cluster.claims.all() if other is not mine
        )
        return beaten_by(self._cluster.snapshot, Holder(mine.stored, mine.allocated_revision), others)

    # --- The pod ----------------------------------------------------------------------------------------------------

    async def _bind_pod(self, pod: Pod, node: str) -> BindingOutcome:
        try:
            await self._calls.post(PODS, key_of(pod), "binding", _binding(pod, node))
        except (Conflict, NotFound, TransportError) as error:
            return await self._read_outcome(pod, node, error)
        return Bound()

    async def _read_outcome(self, pod: Pod, node: str, error: Exception) -> BindingOutcome:
        """Reads the pod: the response may have been lost, or another client bound or deleted the pod."""
        try:
            found = await self._calls.get(PODS, key_of(pod))
        except NotFound:
            return PodGone()
        if found.metadata.uid != pod.metadata.uid:
            return PodGone()
        if found.spec.node_name == node:
            # Even if it is being deleted: it takes its room until the watch shows its end.
            return Bound()
        return PodGone() if found.spec.node_name or found.is_terminating else BindingFailed(str(error))


def _binding(pod: Pod, node: str) -> dict[str, Any]:
    metadata = pod.metadata
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"namespace": metadata.namespace, "name": metadata.name, "uid": metadata.uid},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }


async def _all_of(writes: list[Coroutine[Any, Any, ResourceClaim]]) -> list[ResourceClaim]:
    """Returns the written claims, or raises the first failure after all writes have ended.

    A write that ended after the failure was handled would never be undone.
    """
    if len(writes) == 1:
        return [await writes[0]]
    ended = await asyncio.gather(*writes, return_exceptions=True)
    failures = (outcome for outcome in ended if isinstance(outcome, BaseException))
    for failure in failures:
        raise failure
    return [outcome for outcome in ended if isinstance(outcome, ResourceClaim)]


# --- Collisions -----------------------------------------------------------------------------------------------------
# Detects over-allocation by concurrent schedulers; the later allocation loses.
#
# Servers that do not guard devices (`server/write/device_guard.py`) store whatever two schedulers decide. All
# schedulers see all writes in the same order, so they agree on which claims came first and keep their devices.


class Holder(Struct, frozen=True, gc=False):
    """An allocated claim and the revision of its allocation; 0 if that is unknown, which counts as earliest."""

    claim: ResourceClaim
    since: int


def beaten_by(snapshot: Snapshot, mine: Holder, others: Iterable[Holder]) -> ClaimId | None:
    """An earlier claim on devices or counters of this one, if the earlier claims leave too little for it."""
    devices = [device for device in devices_used(mine.claim) if _is_overcommitted(snapshot, device)]
    pools = [pool_id for pool_id in pools_used(mine.claim) if _is_overdrawn(snapshot, pool_id, mine.claim)]
    if not devices and not pools:
        return None
    earlier = [holder for holder in others if holder.since <= mine.since]
    for device in devices:
        holders = [holder for holder in earlier if device in devices_used(holder.claim)]
        usage, published = _usage_by((*holders, mine), device), _published(snapshot, device)
        if _has_old_shares(mine, usage, published):
            continue
        if holders and is_overcommitted(usage, published):
            return ClaimId.of(holders[0].claim)
    for pool_id in pools:
        if (first := _first_on_exceeded_counter(snapshot, pool_id, mine, earlier)) is not None:
            return ClaimId.of(first.claim)
    return None


def _is_overcommitted(snapshot: Snapshot, device: DeviceId) -> bool:
    pool = snapshot.usage.get(device.pool_id)
    usage = pool.of(device.device) if pool is not None else FREE
    return is_overcommitted(usage, _published(snapshot, device) if usage.shares else None)


def _usage_by(holders: Iterable[Holder], device: DeviceId) -> DeviceUsage:
    usage = FREE
    for holder in holders:
        for result in counted_results(holder.claim):
            usage = usage.changed_by(result, 1) if DeviceId.of(result) == device else usage
    return usage


def _has_old_shares(mine: Holder, usage: DeviceUsage, published: PublishedDevice | None) -> bool:
    """True if a device that can no longer be shared was shareable when its shares were allocated. They stay valid (KEP-5075)."""
    return not mine.since and not usage.dedicated and published is not None and not published.is_shareable


def _published(snapshot: Snapshot, device: DeviceId) -> PublishedDevice | None:
    pool = snapshot.pools.get(device.pool_id)
    naming = (indexed for indexed in pool.slices if device.device in indexed.bit_of) if pool is not None else ()
    return find_device((indexed.published for indexed in naming), device.device)


def _is_overdrawn(snapshot: Snapshot, pool_id: PoolId, claim: ResourceClaim) -> bool:
    """True if devices in use overdraw a counter that the claim's devices draw from."""
    usage, current = snapshot.usage.get(pool_id), _current_with_counters(snapshot, pool_id)
    if usage is None or not current:
        return False
    return bool(exceeded_counters(current, _names_in(pool_id, claim), frozenset(usage.devices)))


def _first_on_exceeded_counter(
    snapshot: Snapshot, pool_id: PoolId, mine: Holder, earlier: Iterable[Holder]
) -> Holder | None:
    """The first earlier claim on a counter that has too little for the earlier claims and this one together."""
    current = _current_with_counters(snapshot, pool_id)
    ours = _names_in(pool_id, mine.claim)
    theirs = [(holder, _names_in(pool_id, holder.claim)) for holder in earlier]
    exceeded = exceeded_counters(current, ours, ours.union(*(names for _, names in theirs)))
    return next((holder for holder, names in theirs if exceeded.keys() & draws_together(current, names).keys()), None)


def _current_with_counters(snapshot: Snapshot, pool_id: PoolId) -> Collection[PublishedSlice]:
    pool = snapshot.pools.get(pool_id)
    return pool.current_with_counters if pool is not None else ()


def _names_in(pool_id: PoolId, claim: ResourceClaim) -> frozenset[str]:
    return frozenset(device.device for device in devices_used(claim) if device.pool_id == pool_id)
