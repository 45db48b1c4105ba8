"""Changes of claims: as a patch, as a whole, and in protobuf, so that no server takes the parameters of drivers for changed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest
from msgspec.structs import replace

from dralloc.client.api_calls import ApiCalls
from dralloc.client.claim_patches import CLAIMS, patch_claim
from dralloc.client.in_process_transport import InProcessTransport
from dralloc.client.status_errors import error_of_response
from dralloc.client.transport import ClientRequest, ClientResponse, Transport
from dralloc.client.typed_resource import key_of
from dralloc.devices.deallocation import DEALLOCATED
from dralloc.kube.dralloc_v1 import ALLOCATION_FINALIZER
from dralloc.kube.protobuf_schema import MAGIC
from dralloc.kube.protobuf_writer import to_protobuf
from dralloc.kube.resource_v1 import (
    AllocatedDeviceStatus,
    ConsumerReference,
    DeviceClaimConfiguration,
    OpaqueDeviceConfiguration,
    ResourceClaim,
    ResourceClaimStatus,
)
from dralloc.primitives.errors import Conflict, Forbidden, NotFound
from dralloc.testing.builders import allocation, claim, request
from dralloc.testing.virtual_time import run_virtual
from tests.support.api_server import TOKEN, api_application, api_over_http
from tests.support.extensions import WithoutExtensions

PARAMETERS = DeviceClaimConfiguration(
    opaque=OpaqueDeviceConfiguration(driver="d.example.com", parameters=msgspec.Raw(b'{ "b": "<", "a": 1.50 }'))
)


class StockServer(WithoutExtensions):
    """A server of a release of Kubernetes, without our extensions. It records how claims are written."""

    def __init__(self, inner: Transport, minor: str = "37") -> None:
        super().__init__(inner)
        self.writes: list[str] = []
        self._minor = minor

    async def send(self, request: ClientRequest) -> ClientResponse:
        if request.path == "/version":
            return ClientResponse(status=200, body=b'{"major":"1","minor":"%b"}' % self._minor.encode())
        if "/resourceclaims/" in request.path and request.method != "GET":
            self.writes.append(request.method)
        return await super().send(request)


async def change_a_claim(calls: ApiCalls, created: ResourceClaim) -> None:
    """All changes that components make of claims, and each is refused if it comes too late."""
    protected = await patch_claim(calls, created, finalizers=["x.io/y"])
    assert (protected.metadata.finalizers, protected.spec) == (("x.io/y",), created.spec)
    with pytest.raises(Conflict):
        await patch_claim(calls, created, finalizers=[])
    user = ConsumerReference(resource="pods", name="p", uid="u")
    allocated = await patch_claim(calls, protected, status={"allocation": allocation(), "reservedFor": (user,)})
    assert allocated.status.allocation is not None
    assert (allocated.status.reserved_for, allocated.metadata.finalizers) == ((user,), ("x.io/y",))
    with pytest.raises(Conflict):
        await patch_claim(calls, protected, status=DEALLOCATED)
    released = await patch_claim(calls, allocated, status={"reservedFor": None})
    assert (released.status.allocation, released.status.reserved_for) == (allocated.status.allocation, ())
    deallocated = await patch_claim(calls, released, status=DEALLOCATED)
    assert deallocated.status == ResourceClaimStatus()
    freed = await patch_claim(calls, deallocated, finalizers=[])
    assert (freed.metadata.finalizers, freed.spec, freed.metadata.labels) == ((), created.spec, {"kept": "yes"})
    await calls.delete(CLAIMS, key_of(created))
    with pytest.raises(NotFound):
        await patch_claim(calls, freed, finalizers=["x.io/y"])


def labelled(*config: DeviceClaimConfiguration) -> ResourceClaim:
    plain = claim("c", request(), config=config)
    return replace(plain, metadata=replace(plain.metadata, labels={"kept": "yes"}))


@pytest.mark.parametrize("config", [(), (PARAMETERS,)], ids=["a patch", "a replacement in protobuf"])
def test_claims_are_changed_and_conflicts_found(config: tuple[DeviceClaimConfiguration, ...]) -> None:
    async def main() -> None:
        async with api_over_http() as client:
            await change_a_claim(client.calls, await client.calls.create(CLAIMS, labelled(*config)))

    asyncio.run(main())


@asynccontextmanager
async def stock_server(minor: str = "37") -> AsyncIterator[tuple[StockServer, ApiCalls]]:
    async with api_application() as application:
        server = StockServer(InProcessTransport(application, token=TOKEN), minor)
        calls = ApiCalls(server)
        assert not await calls.extensions.has(ALLOCATION_FINALIZER)
        yield server, calls


@pytest.mark.parametrize(("minor", "method"), [("37", "PUT"), ("34+", "PUT"), ("38", "PATCH"), ("", "PATCH")])
def test_a_stock_server_gets_whole_claims_if_all_their_members_are_known(minor: str, method: str) -> None:
    async def main() -> None:
        async with stock_server(minor) as (server, calls):
            await change_a_claim(calls, await calls.create(CLAIMS, labelled()))
            assert set(server.writes) == {method, "DELETE"}

    run_virtual(main())


def test_a_claim_with_reports_of_drivers_is_patched() -> None:
    """Their JSON may be printed in another way than it is stored, which a server takes for a change of the report."""

    async def main() -> None:
        async with stock_server() as (server, calls):
            created = await calls.create(CLAIMS, labelled())
            report = AllocatedDeviceStatus(driver="d.example.com", pool="p", device="gpu-0", data=msgspec.Raw(b"{ }"))
            reported = replace(created, status=replace(created.status, devices=(report,)))
            await patch_claim(calls, reported, status={"reservedFor": None})
            assert server.writes == ["PATCH"]

    run_virtual(main())


def test_errors_in_protobuf_and_unreadable_ones_are_read() -> None:
    status = {"apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": "Forbidden", "message": "no"}
    error = error_of_response(403, to_protobuf(status))
    assert (type(error), error.message) == (Forbidden, "no")
    for body in (MAGIC + b"\xff\xff", b"\x95\xff", b""):
        assert isinstance(error_of_response(403, body), Forbidden)
