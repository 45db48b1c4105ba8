"""A scheduler crashes before or after each of its writes: its successor finishes the work and no device leaks."""

from __future__ import annotations

import asyncio

import pytest

from dralloc.client.transport import ClientRequest, ClientResponse, Transport
from dralloc.kube.pod_claims import CLAIM_FINALIZER, is_reserved_for
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import ResourceClaim
from dralloc.testing.builders import claim, device, device_class, request, resource_slice
from dralloc.testing.virtual_time import run_virtual
from tests.support.extensions import WithoutExtensions
from tests.support.relay_transport import RelayTransport
from tests.support.scheduled_cluster import ScheduledCluster, node, our_pod, scheduled_cluster

# Two claims: two statuses, a binding; without the server's extension two finalizers, too.
WRITES = [(write, True) for write in range(1, 4)] + [(write, False) for write in range(1, 6)]


class CrashingTransport(RelayTransport):
    """Stops for good at the n-th write of a claim or binding, before or after the server executes it."""

    def __init__(self, write: int, *, is_done: bool, has_extensions: bool) -> None:
        self._left = write
        self._has_extensions = has_extensions
        self._is_done = is_done
        self.has_died = asyncio.Event()

    def around(self, inner: Transport) -> Transport:
        super().__init__(inner if self._has_extensions else WithoutExtensions(inner))
        return self

    async def send(self, request: ClientRequest) -> ClientResponse:
        if request.method != "GET" and ("/resourceclaims/" in request.path or request.path.endswith("/binding")):
            self._left -= 1
            if self._left == 0:
                if self._is_done:
                    await self._inner.send(request)
                self.has_died.set()
        if self.has_died.is_set():
            await asyncio.Event().wait()
        return await self._inner.send(request)


async def assert_all_is_well(cluster: ScheduledCluster) -> None:
    pod = await cluster.client.get(Pod, "p")
    claims = await cluster.client.list(ResourceClaim)
    assert pod.spec.node_name
    for used in claims:
        assert used.status.allocation is not None
        assert [result.pool for result in used.status.allocation.devices.results] == [pod.spec.node_name]
        assert is_reserved_for(used, pod)
        assert CLAIM_FINALIZER in used.metadata.finalizers
    devices = [result.device for used in claims for result in used.status.allocation.devices.results]  # type: ignore[union-attr]
    assert sorted(devices) == ["gpu-0", "gpu-1"]


@pytest.mark.parametrize("is_done", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(("write", "has_extensions"), WRITES)
def test_the_next_scheduler_finishes_what_a_crashed_one_began(write: int, has_extensions: bool, is_done: bool) -> None:
    async def main() -> None:
        dying = CrashingTransport(write, is_done=is_done, has_extensions=has_extensions)
        async with scheduled_cluster(wrap=dying.around) as cluster:
            await cluster.create(device_class())
            for name in ("node-a", "node-b"):
                gpus = [device(f"gpu-{number}") for number in range(2)]
                await cluster.create(node(name), resource_slice(name, *gpus, pool=name, node_name=name))
            await cluster.create(claim("c", request()), claim("d", request()), our_pod("p", "c", "d"))
            await dying.has_died.wait()
            await cluster.kill()
            # The successor has its own transport.
            dying.has_died.clear()
            await cluster.restart()
            await cluster.settle(30)
            await assert_all_is_well(cluster)

    run_virtual(main())
