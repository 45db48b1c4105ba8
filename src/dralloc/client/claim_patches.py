"""Changes of claims, only of the members that the patch names, and only of the version of the claim that was read.

A patch keeps members that a newer server has and this version does not know. Kubernetes' server reads, prints and reads the claim for each
patch: where it has no member that is not known here, it gets the whole claim, which costs it a tenth less for a pod.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace

from dralloc.client.api_calls import ApiCalls
from dralloc.client.known_resources import resource_for
from dralloc.client.typed_resource import key_of, version_of
from dralloc.kube.dralloc_v1 import ALLOCATION_FINALIZER
from dralloc.kube.resource_v1 import ResourceClaim, ResourceClaimStatus

CLAIMS: Final = resource_for(ResourceClaim)

# Members of the status by their names in patches.
_ATTRIBUTES: Final = {"allocation": "allocation", "reservedFor": "reserved_for", "devices": "devices"}
_UNSET: Final = ResourceClaimStatus()


async def patch_claim(
    calls: ApiCalls,
    claim: ResourceClaim,
    *,
    finalizers: Sequence[str] | None = None,
    status: Mapping[str, Any] | None = None,
) -> ResourceClaim:
    """Set the claim's finalizers, or these members of its status, of which None removes one; returns the written claim.

    Raises Conflict if the claim is another one or has changed. Only servers with the extension `ALLOCATION_FINALIZER` take both at once.
    """
    key, subresource = key_of(claim), None if status is None else "status"
    allocation = claim.status.allocation
    immutable = claim.spec.devices.config if status is None else allocation.devices.config if allocation else ()
    if _has_parameters(immutable):
        return await calls.merge(CLAIMS, key, _patch(claim, finalizers, status), subresource=subresource)
    if await _takes_whole_claims(calls) and not _has_parameters(claim.spec.devices.config) and not claim.status.devices:
        return await calls.replace(CLAIMS, _changed(claim, finalizers, status), subresource=subresource)
    return await calls.patch(CLAIMS, key, _patch(claim, finalizers, status), subresource=subresource)


async def _takes_whole_claims(calls: ApiCalls) -> bool:
    """True if all members of the server's claims are known here. A server with our extension is faster with patches."""
    return calls.extensions.is_known_to_lack(ALLOCATION_FINALIZER) and await calls.release.is_known()


def _patch(claim: ResourceClaim, finalizers: Sequence[str] | None, status: Mapping[str, Any] | None) -> dict[str, Any]:
    metadata: dict[str, Any] = version_of(claim)
    if finalizers is not None:
        metadata["finalizers"] = finalizers
    return {"metadata": metadata} if status is None else {"metadata": metadata, "status": status}


def _changed(claim: ResourceClaim, finalizers: Sequence[str] | None, status: Mapping[str, Any] | None) -> ResourceClaim:
    if finalizers is not None:
        claim = replace(claim, metadata=replace(claim.metadata, finalizers=tuple(finalizers)))
    changes = {
        attribute: status[name] if status[name] is not None else getattr(_UNSET, attribute)
        for name, attribute in _ATTRIBUTES.items()
        if status is not None and name in status
    }
    return replace(claim, status=replace(claim.status, **changes))


def _has_parameters(config: Any) -> bool:
    """True if the immutable part of the claim has the JSON of drivers, whose text a patch can change."""
    return any(each.opaque is not None for each in config or ())
