"""How controllers write claims: only what they change, and only if nobody wrote since they read.

Patches leave alone what a newer server may hold in a claim and we do not know.
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
    """The claim with these members of its status; None takes one away."""
    patch = {"metadata": _as_read(claim), "status": status}
    return await calls.patch(CLAIMS, key_of(claim), patch, subresource="status")


async def write_finalizers(calls: ApiCalls, claim: ResourceClaim, finalizers: list[str]) -> ResourceClaim:
    patch = {"metadata": {**_as_read(claim), "finalizers": finalizers}}
    return await calls.patch(CLAIMS, key_of(claim), patch)


def _as_read(claim: ResourceClaim) -> dict[str, str]:
    """A server refuses the patch where the claim is another one, or has changed."""
    return {"uid": claim.metadata.uid, "resourceVersion": claim.metadata.resource_version}
