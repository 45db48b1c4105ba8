"""Stored claims that were made for the extended resources of pods."""

from __future__ import annotations

from dralloc.api.extended_resources import extended_owner
from dralloc.api.resource_v1 import ResourceClaim
from dralloc.devices.identity import ClaimId


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
