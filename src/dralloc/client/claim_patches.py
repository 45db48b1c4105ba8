"""Patches of claims: optimistic, and only of the members that they change.

A patch keeps members that a newer server has and this version does not know.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from dralloc.api.resource_v1 import ResourceClaim
from dralloc.client.api_calls import ApiCalls
from dralloc.client.known_resources import resource_for
from dralloc.client.typed_resource import key_of, version_of

CLAIMS: Final = resource_for(ResourceClaim)


async def patch_claim(calls: ApiCalls, claim: ResourceClaim, patch: Mapping[str, Any]) -> ResourceClaim:
    """Change the claim, unless it is another one or has changed: then a Conflict is raised."""
    write = calls.merge if _has_parameters(claim.spec.devices.config) else calls.patch
    return await write(CLAIMS, key_of(claim), _with_preconditions(claim, patch))


async def patch_claim_status(
    calls: ApiCalls, claim: ResourceClaim, status: Mapping[str, Any], *, finalizers: Sequence[str] | None = None
) -> ResourceClaim:
    """Set these members of the claim's status, or remove those that are None; returns the written claim.

    Only servers with the extension `ALLOCATION_FINALIZER` take the finalizers.
    """
    allocation = claim.status.allocation
    has_parameters = allocation is not None and _has_parameters(allocation.devices.config)
    write = calls.merge if has_parameters else calls.patch
    patch = {"status": status} if finalizers is None else {"status": status, "metadata": {"finalizers": finalizers}}
    return await write(CLAIMS, key_of(claim), _with_preconditions(claim, patch), subresource="status")


def _has_parameters(config: Any) -> bool:
    """True if the immutable part of the claim has the JSON of drivers, whose text a patch can change."""
    return any(each.opaque is not None for each in config or ())


def _with_preconditions(claim: ResourceClaim, patch: Mapping[str, Any]) -> dict[str, Any]:
    return {**patch, "metadata": {**patch.get("metadata", {}), **version_of(claim)}}
