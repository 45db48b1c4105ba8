"""The claims that the scheduler follows: what watches, lists and the answers to its own writes say of them, in whatever order they arrive."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec.structs import replace

from dralloc.devices.identity import ClaimId
from dralloc.kube.extended_resources import extended_owner
from dralloc.kube.resource_v1 import ResourceClaim
from dralloc.scheduler.state.cluster_events import (
    DEVICES_FREED,
    DEVICES_TAKEN,
    ClusterEvent,
    Events,
    claim_allocated,
    claim_changed,
)
from dralloc.scheduler.state.tracked_claim import TrackedClaim, revision_of


class ClaimTable:
    """`count_devices` is told each claim whose allocation may have changed, with the decisions about it."""

    def __init__(self, count_devices: Callable[[ClaimId, ResourceClaim], None]) -> None:
        self._count_devices = count_devices
        self._claims: dict[ClaimId, TrackedClaim] = {}
        self._extended = ExtendedClaims()
        # The revision of the newest list.
        self._listed_at = 0

    def find(self, claim_id: ClaimId) -> TrackedClaim | None:
        return self._claims.get(claim_id)

    def all(self) -> Iterable[TrackedClaim]:
        return self._claims.values()

    def stored(self, claim_id: ClaimId) -> ResourceClaim | None:
        """The claim as the API shows it."""
        tracked = self._claims.get(claim_id)
        return tracked.stored if tracked is not None else None

    def of_extended_resources(self, pod_uid: str) -> ClaimId | None:
        """A stored claim that was made for the extended resources of the pod."""
        return self._extended.of_pod(pod_uid)

    def is_unwritten(self, claim_id: ClaimId, pod_uid: str) -> bool:
        """True if a decision about the claim that the pod depends on is not stored yet."""
        return self._claims[claim_id].is_unwritten(pod_uid)

    def prove(self, claim_id: ClaimId) -> None:
        """Records that no other claim holds the claim's devices."""
        if (tracked := self._claims.get(claim_id)) is not None:
            tracked.is_proven = True

    # --- Claims that a decision makes -------------------------------------------------------------------------------

    def expect(self, claim: ResourceClaim) -> None:
        """Follows a claim that is not stored yet."""
        self._claims.setdefault(ClaimId.of(claim), TrackedClaim(claim, is_unstored=True))

    def forget(self, claim_id: ClaimId, pod_uid: str) -> Events:
        """Takes back what was decided about the claim for the pod and is not stored."""
        tracked = self._claims.get(claim_id)
        if tracked is None:
            return ()
        freed = (DEVICES_FREED,) if tracked.forget(pod_uid) else ()
        self._count_devices(claim_id, tracked.effective)
        if tracked.is_unstored and tracked.effective is tracked.stored:
            del self._claims[claim_id]
        return (*freed, claim_changed(claim_id))

    # --- What the API shows -----------------------------------------------------------------------------------------

    def changed(self, before: ResourceClaim | None, after: ResourceClaim | None) -> Events:
        """Takes a claim from a watch. A revision that is not newer than the known one is ignored."""
        if after is None:
            assert before is not None
            return self._remove(before)
        claim_id = ClaimId.of(after)
        tracked = self._claims.get(claim_id)
        if tracked is not None and not tracked.is_same(after):
            return (*self._remove(tracked.stored), *self.changed(None, after))
        if tracked is None:
            self._claims[claim_id] = TrackedClaim(after)
            self._extended.add(after)
            if after.status.allocation is None:
                return (claim_changed(claim_id),)
            self._count_devices(claim_id, after)
            return (claim_changed(claim_id), DEVICES_TAKEN, claim_allocated(claim_id))
        return self._take_newer(claim_id, tracked, after)

    def listed(self, claims: Iterable[ResourceClaim], revision: int) -> Events:
        """Takes all claims from a list that is the truth up to the revision: those that are known only from answers to our writes, and
        that it does not have, were deleted since.
        """
        self._listed_at = revision
        listed = {ClaimId.of(claim) for claim in claims}
        events: list[ClusterEvent] = []
        for claim_id, tracked in list(self._claims.items()):
            if claim_id not in listed and not tracked.is_unstored and 0 < revision_of(tracked.stored) <= revision:
                events += self._remove(tracked.stored)
        return tuple(events)

    def created(self, claim: ResourceClaim) -> Events:
        """Takes the response to the creation of a claim; see `written`."""
        return () if self._is_outdated(claim) else self.changed(None, claim)

    def written(self, claim: ResourceClaim) -> Events:
        """Takes the response to a write of ours, which may arrive before or after the watch delivers the same revision."""
        claim_id = ClaimId.of(claim)
        tracked = self._claims.get(claim_id)
        if self._is_outdated(claim) or tracked is None or tracked.stored.metadata.uid != claim.metadata.uid:
            return ()
        return self._take_newer(claim_id, tracked, claim)

    def _is_outdated(self, response: ResourceClaim) -> bool:
        """True for a revision that the newest list has, or whose claim was deleted before the list."""
        return 0 < revision_of(response) <= self._listed_at

    def _take_newer(self, claim_id: ClaimId, tracked: TrackedClaim, after: ResourceClaim) -> Events:
        if after is tracked.stored:
            # The watch and the answer to a write show the same.
            return ()
        return self._update(claim_id, tracked, after) if revision_of(after) > revision_of(tracked.stored) else ()

    def _update(self, claim_id: ClaimId, tracked: TrackedClaim, after: ResourceClaim) -> Events:
        before = tracked.stored
        self._extended.replace(before, after)
        tracked.store(after)
        self._count_devices(claim_id, tracked.effective)
        events: list[ClusterEvent] = []
        if before.status.allocation is not None and after.status.allocation is None:
            events.append(DEVICES_FREED)
        if before.status.allocation is None and after.status.allocation is not None:
            events += (DEVICES_TAKEN, claim_allocated(claim_id))
        if before.status != after.status or before.metadata.deletion_timestamp != after.metadata.deletion_timestamp:
            events.append(claim_changed(claim_id))
        return tuple(events)

    def _remove(self, claim: ResourceClaim) -> Events:
        claim_id = ClaimId.of(claim)
        tracked = self._claims.get(claim_id)
        if tracked is None or tracked.stored.metadata.uid != claim.metadata.uid:
            return ()
        del self._claims[claim_id]
        self._extended.remove(tracked.stored)
        was_allocated = tracked.effective.status.allocation is not None
        self._count_devices(claim_id, unallocated(tracked.stored))
        return (DEVICES_FREED, claim_changed(claim_id)) if was_allocated else (claim_changed(claim_id),)


def unallocated(claim: ResourceClaim) -> ResourceClaim:
    return replace(claim, status=replace(claim.status, allocation=None))


# --- Extended claims ------------------------------------------------------------------------------------------------
# Stored claims that were made for the extended resources of pods.


class ExtendedClaims:
    """By the UID of their pod, in the order in which they were seen."""

    def __init__(self) -> None:
        self._by_pod: dict[str, dict[ClaimId, None]] = {}

    def of_pod(self, pod_uid: str) -> ClaimId | None:
        """The first claim that was made for the pod."""
        return next(iter(self._by_pod[pod_uid])) if pod_uid in self._by_pod else None

    def add(self, claim: ResourceClaim) -> None:
        """Adds a claim; no-op for other claims than those of extended resources."""
        if (owner := extended_owner(claim)) is not None:
            self._by_pod.setdefault(owner, {})[ClaimId.of(claim)] = None

    def replace(self, before: ResourceClaim, after: ResourceClaim) -> None:
        if extended_owner(before) != extended_owner(after):
            self.remove(before)
        self.add(after)

    def remove(self, claim: ResourceClaim) -> None:
        owner = extended_owner(claim)
        if owner is not None and (made := self._by_pod.get(owner)) is not None:
            made.pop(ClaimId.of(claim), None)
            if not made:
                del self._by_pod[owner]
