"""Watches on API servers that lack newer API versions."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager

import pytest

from dralloc.client.api_calls import ApiCalls
from dralloc.client.transport import ClientRequest, ClientResponse, Stream, Transport
from dralloc.primitives.features import FeatureGates
from dralloc.scheduler.scheduler import Scheduler
from dralloc.scheduler.settings import SchedulerSettings
from dralloc.testing.builders import claim, device, device_class, request, resource_slice, taint, taint_rule
from dralloc.testing.components import Components
from dralloc.testing.virtual_time import VirtualClock, run_virtual
from tests.support.relay_transport import RelayTransport
from tests.support.scheduled_cluster import node, our_pod, scheduled_cluster


class OlderServer(RelayTransport):
    """A server that does not serve some versions of taint rules."""

    def __init__(self, inner: Transport, *, lacks: Sequence[str]) -> None:
        super().__init__(inner)
        self._lacks = tuple(f"/apis/resource.k8s.io/{version}/devicetaintrules" for version in lacks)

    async def send(self, request: ClientRequest) -> ClientResponse:
        if request.path.startswith(self._lacks):
            return ClientResponse(status=404, body=b"404 page not found\n")
        return await self._inner.send(request)

    def stream(self, request: ClientRequest) -> AbstractAsyncContextManager[Stream]:
        assert not request.path.startswith(self._lacks)
        return self._inner.stream(request)


@pytest.mark.parametrize(
    ("lacks", "given"),
    [
        pytest.param((), ["gpu-1"], id="1.37"),
        pytest.param(("v1",), ["gpu-1"], id="1.36, where taint rules are a beta"),
        pytest.param(("v1", "v1beta2"), ["gpu-0"], id="1.35, where there are none"),
    ],
)
def test_taint_rules_are_watched_in_the_newest_served_version(lacks: Sequence[str], given: list[str]) -> None:
    async def scenario() -> None:
        async with scheduled_cluster(gates=FeatureGates.defaults(), schedulers=0) as cluster:
            await cluster.create(
                device_class(), node("node-a"), resource_slice("gpus", device("gpu-0"), device("gpu-1"))
            )
            await cluster.create(taint_rule("broken", taint("broken"), device="gpu-0"))
            await cluster.create(claim("c", request()), our_pod("p", "c"))
            calls = ApiCalls(OlderServer(cluster.network, lacks=lacks))
            scheduler = Scheduler(calls, VirtualClock(asyncio.get_running_loop()), SchedulerSettings())
            async with Components() as components:
                components.start("scheduler", scheduler.run)
                await cluster.settle()
            assert await cluster.devices_of("c") == given

    run_virtual(scenario())
