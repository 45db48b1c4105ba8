"""Allocated claims as rows of tables."""

from __future__ import annotations

from collections.abc import Iterator

from dralloc.api.resource_v1 import ResourceClaim
from dralloc.devices.identity import ClaimId, DeviceId


def allocation_rows(claim: ResourceClaim, node: str) -> Iterator[tuple[str, ...]]:
    """Claim, request, node, device, consumed capacity and share ID of each device that the claim has."""
    claim_id = str(ClaimId.of(claim))
    assert claim.status.allocation is not None, "the claim is allocated"
    results = claim.status.allocation.devices.results
    for result in results:
        device = str(DeviceId.of(result))
        consumed = ",".join(f"{name}={amount}" for name, amount in result.consumed_capacity.items())
        share = consumed or ("a share" if result.share_id else "")
        yield claim_id, result.request, node, device, share or "-", result.share_id or "-"
    if not results:
        yield claim_id, "-", node, "-", "-", "-"
