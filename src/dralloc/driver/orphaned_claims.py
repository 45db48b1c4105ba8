"""Releases prepared claims that no longer exist, even if the kubelet does not unprepare them.

A kubelet that lost its checkpoint does not unprepare the claims in it, so their devices would stay prepared forever. The delay lets
containers of a deleted claim end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from dralloc.api.resource_v1 import ResourceClaim
from dralloc.client.api_calls import ApiCalls
from dralloc.client.known_resources import resource_for
from dralloc.client.transport import TransportError
from dralloc.client.typed_resource import ObjectKey, TypedResource
from dralloc.driver.checkpoint import Checkpoint
from dralloc.driver.claims import ClaimReference
from dralloc.driver.preparer import Preparer
from dralloc.primitives.errors import ApiError, NotFound

CLAIMS: Final[TypedResource[ResourceClaim]] = resource_for(ResourceClaim)


def gone_since(
    gone: Iterable[ClaimReference], before: Mapping[ClaimReference, float], now_s: float
) -> dict[ClaimReference, float]:
    """Since when each of these claims has been missing continuously."""
    return {reference: before.get(reference, now_s) for reference in gone}


class OrphanedClaims:
    """Periodically compares the checkpoint with the API server."""

    def __init__(
        self,
        calls: ApiCalls,
        checkpoint: Checkpoint,
        preparer: Preparer,
        *,
        after_s: float,
        on_problem: Callable[[Exception], None],
    ) -> None:
        self._calls = calls
        self._checkpoint = checkpoint
        self._preparer = preparer
        self._after_s = after_s
        self._on_problem = on_problem

    async def run(self) -> None:
        """Release orphaned claims until cancelled."""
        missing: dict[ClaimReference, float] = {}
        while True:
            try:
                missing = await self.check(missing)
            except (ApiError, TransportError, OSError) as error:
                self._on_problem(error)
            await asyncio.sleep(self._after_s / 4)

    async def check(self, missing: Mapping[ClaimReference, float]) -> dict[ClaimReference, float]:
        """Check once and release overdue claims; returns since when each claim has been missing."""
        records = await asyncio.to_thread(self._checkpoint.all)
        gone = [record.reference for record in records if await self._is_gone(record.reference)]
        now_s = asyncio.get_running_loop().time()
        missing = gone_since(gone, missing, now_s)
        if overdue := [reference for reference, since in missing.items() if now_s - since >= self._after_s]:
            await self._preparer.unprepare(overdue)
        return missing

    async def _is_gone(self, reference: ClaimReference) -> bool:
        try:
            claim = await self._calls.get(CLAIMS, ObjectKey(reference.namespace, reference.name))
        except NotFound:
            return True
        return claim.metadata.uid != reference.uid
