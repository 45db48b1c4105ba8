"""Patches of claims: with parameters of drivers they are replaced in protobuf, so that no server takes the parameters for changed."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from dralloc.api.protobuf_schema import MAGIC
from dralloc.api.protobuf_writer import to_protobuf
from dralloc.api.resource_v1 import DeviceClaimConfiguration, OpaqueDeviceConfiguration, ResourceClaim
from dralloc.client.claim_patches import patch_claim, patch_claim_status
from dralloc.client.status_errors import error_of_response
from dralloc.primitives.errors import Conflict, Forbidden, NotFound
from dralloc.testing.builders import allocation, claim, request
from tests.support.api_server import api_over_http

PARAMETERS = DeviceClaimConfiguration(
    opaque=OpaqueDeviceConfiguration(driver="d.example.com", parameters=msgspec.Raw(b'{ "b": "<", "a": 1.50 }'))
)


@pytest.mark.parametrize("config", [(), (PARAMETERS,)], ids=["a patch", "a replacement"])
def test_claims_are_changed_and_conflicts_found(config: tuple[DeviceClaimConfiguration, ...]) -> None:
    async def main() -> None:
        async with api_over_http() as client:
            created = await client.create(claim("c", request(), config=config))
            assert isinstance(created, ResourceClaim)
            protected = await patch_claim(client.calls, created, {"metadata": {"finalizers": ["x.io/y"]}})
            assert (protected.metadata.finalizers, protected.spec) == (("x.io/y",), created.spec)
            with pytest.raises(Conflict):
                await patch_claim(client.calls, created, {"metadata": {"finalizers": []}})
            allocated = await patch_claim_status(client.calls, protected, {"allocation": allocation()})
            assert allocated.status.allocation is not None
            freed = await patch_claim(client.calls, allocated, {"metadata": {"finalizers": []}})
            assert freed.metadata.finalizers == ()
            await client.delete(ResourceClaim, "c")
            with pytest.raises(NotFound):
                await patch_claim(client.calls, freed, {"metadata": {"finalizers": ["x.io/y"]}})

    asyncio.run(main())


def test_errors_in_protobuf_and_unreadable_ones_are_read() -> None:
    status = {"apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": "Forbidden", "message": "no"}
    error = error_of_response(403, to_protobuf(status))
    assert (type(error), error.message) == (Forbidden, "no")
    for body in (MAGIC + b"\xff\xff", b"\x95\xff", b""):
        assert isinstance(error_of_response(403, body), Forbidden)
