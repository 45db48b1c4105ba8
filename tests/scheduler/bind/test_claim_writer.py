"""Pods that share a claim share its write, and depend on none of each other."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager

import msgspec
import pytest
from msgspec.structs import replace

from dralloc.client.api_calls import ApiCalls
from dralloc.client.transport import ClientRequest, ClientResponse, Stream
from dralloc.devices.identity import ClaimId
from dralloc.kube.codec import encode
from dralloc.kube.pod_claims import CLAIM_FINALIZER
from dralloc.kube.resource_v1 import ResourceClaim
from dralloc.primitives.errors import Forbidden
from dralloc.scheduler.bind.claim_writer import ClaimWriter
from dralloc.scheduler.state.cluster_state import ClusterState
from dralloc.testing.builders import allocation, claim, held, request
from dralloc.testing.virtual_time import run_virtual
from tests.support.workloads import pod, seen

P, Q = seen(pod("p")), seen(pod("q"))
GPU = allocation(held("gpu-0"))


class Server:
    """Has one claim, and takes a second for each write."""

    def __init__(self) -> None:
        made = claim("c", request())
        metadata = replace(made.metadata, resource_version="1", finalizers=(CLAIM_FINALIZER,))
        self.claim = replace(made, metadata=metadata)
        self.writes = 0
        self.refuses = False

    async def send(self, request: ClientRequest) -> ClientResponse:
        await asyncio.sleep(1)
        self.writes += 1
        if self.refuses:
            return ClientResponse(status=403, body=b'{"reason":"Forbidden","message":"no"}')
        status = msgspec.json.decode(request.body)["status"]
        revision = str(int(self.claim.metadata.resource_version) + 1)
        document = msgspec.json.decode(encode(self.claim))
        document["metadata"]["resourceVersion"] = revision
        document["status"] = {**document.get("status", {}), **status}
        self.claim = msgspec.json.decode(encode(document), type=ResourceClaim)
        return ClientResponse(status=200, body=encode(document))

    def stream(self, request: ClientRequest) -> AbstractAsyncContextManager[Stream]:
        raise AssertionError("only writes are sent")

    async def close(self) -> None:
        pass


class Writes:
    """Two pods whose claim is being written."""

    def __init__(self, server: Server) -> None:
        cluster, self.reserved = ClusterState(), set[ClaimId]()
        cluster.claim_changed(None, server.claim)
        claim_id = ClaimId.of(server.claim)
        for each in (P, Q):
            cluster.assume(each, "a", {claim_id: GPU})
        writer = ClaimWriter(ApiCalls(server), cluster, lambda _: None)
        self.first, self.second = (
            asyncio.ensure_future(writer.settle(claim_id, GPU, each.metadata.uid, self.reserved)) for each in (P, Q)
        )


def test_pods_that_share_a_claim_share_its_write() -> None:
    server = Server()

    async def test() -> None:
        writes = Writes(server)
        for written in (await writes.first, await writes.second):
            assert {user.uid for user in written.status.reserved_for} == {P.metadata.uid, Q.metadata.uid}

    run_virtual(test())
    assert server.writes == 1


@pytest.mark.parametrize("is_first", [True, False])
def test_a_pod_that_is_cancelled_takes_no_write_from_the_others(is_first: bool) -> None:
    server = Server()

    async def test() -> None:
        writes = Writes(server)
        await asyncio.sleep(0.5)
        cancelled, other = (writes.first, writes.second) if is_first else (writes.second, writes.first)
        cancelled.cancel()
        assert (await other).status.allocation == GPU
        assert cancelled.cancelled()

    run_virtual(test())
    assert server.writes == 1


def test_each_pod_gets_the_error_of_their_write() -> None:
    server = Server()
    server.refuses = True

    async def test() -> None:
        writes = Writes(server)
        for each in (writes.first, writes.second):
            with pytest.raises(Forbidden):
                await each

    run_virtual(test())
    assert server.writes == 1
