"""Patches of claims by controllers: optimistic, and only of the members that they change.

A patch keeps members that a newer server has and this version does not know.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dralloc.api.resource_v1 import ResourceClaim
from dralloc.client.api_calls import ApiCalls
from dralloc.client.known_resources import resource_for
from dralloc.client.typed_resource import key_of

CLAIMS: Final = resource_for(ResourceClaim)


async def write_status(calls: ApiCalls, claim: ResourceClaim, status: Mapping[str, Any]) -> ResourceClaim:
    """Set these members of the claim's status, or remove those that are None; returns the written claim."""
    patch = {"metadata": _preconditions(claim), "status": status}
    return await calls.patch(CLAIMS, key_of(claim), patch, subresource="status")


async def write_finalizers(calls: ApiCalls, claim: ResourceClaim, finalizers: list[str]) -> ResourceClaim:
    patch = {"metadata": {**_preconditions(claim), "finalizers": finalizers}}
    return await calls.patch(CLAIMS, key_of(claim), patch)


def _preconditions(claim: ResourceClaim) -> dict[str, str]:
    """Preconditions: the server answers with a conflict if the claim was replaced or changed."""
    return {"uid": claim.metadata.uid, "resourceVersion": claim.metadata.resource_version}
