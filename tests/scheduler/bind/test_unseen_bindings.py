"""A binding that was answered, and that a restored backup undid before the watch showed it."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager

import pytest
from msgspec.structs import replace

from dralloc.api.pod_v1 import Pod
from dralloc.client.reflector import WATCH_TIMEOUT_S
from dralloc.client.transport import ClientRequest, ClientResponse, Stream, Transport
from dralloc.primitives.features import FeatureGates
from dralloc.scheduler.bind.unseen_bindings import UnseenBindings
from dralloc.scheduler.state.placed_pods import PlacedPod, PlacedPods, pod_key
from dralloc.scheduler.state.pod_resources import PodResources
from dralloc.testing.builders import claim, device_class, request
from dralloc.testing.virtual_time import run_virtual
from tests.support.api_server import api_in_process
from tests.support.relay_transport import RelayTransport
from tests.support.scheduled_cluster import gpus, node, our_pod, scheduled_cluster
from tests.support.workloads import pod_group

SUCCESS = ClientResponse(status=201, body=b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success"}')


class RestoringNetwork(RelayTransport):
    """The first bindings are answered and gone. Then the server no longer has the revision of the watch, so that pods are listed again."""

    def __init__(self, sound: Transport, bindings: int = 1) -> None:
        super().__init__(sound)
        self._undone = bindings
        self._is_restored = False

    async def send(self, sent: ClientRequest) -> ClientResponse:
        if sent.path.endswith("/binding") and self._undone:
            self._undone -= 1
            return SUCCESS
        return await self._inner.send(sent)

    def stream(self, sent: ClientRequest) -> AbstractAsyncContextManager[Stream]:
        if sent.path == "/api/v1/pods" and not self._undone and not self._is_restored:
            self._is_restored = True
            sent = replace(sent, query={**sent.query, "resourceVersion": "1000000000"})
        return self._inner.stream(sent)


@pytest.mark.parametrize("is_changed", [False, True], ids=["as it was", "changed"])
def test_a_pod_whose_answered_binding_a_backup_has_undone_is_placed_again(is_changed: bool) -> None:
    async def main() -> None:
        async with scheduled_cluster(wrap=RestoringNetwork) as cluster:
            # The pod fits only if it is not counted on the node already.
            await cluster.create(
                node("node-a", cpu="4"),
                device_class(),
                gpus("node-a"),
                claim("gpu", request()),
                our_pod("p", "gpu", requests={"cpu": "3"}),
            )
            await cluster.settle()
            assert not await cluster.node_of("p")
            if is_changed:
                await cluster.client.patch(Pod, "p", {"metadata": {"labels": {"changed": "yes"}}})
            await cluster.settle(2 * WATCH_TIMEOUT_S)
            assert await cluster.node_of("p") == "node-a"

    run_virtual(main())


def test_a_gang_whose_answered_bindings_a_backup_has_undone_is_placed_again() -> None:
    async def main() -> None:
        gates = FeatureGates.parse("GenericWorkload=true")
        async with scheduled_cluster(gates=gates, wrap=lambda sound: RestoringNetwork(sound, bindings=2)) as cluster:
            members = [our_pod(name, requests={"cpu": "2"}, group="g") for name in ("p", "q")]
            await cluster.create(node("node-a", cpu="4"), pod_group("g", min_count=2), *members)
            await cluster.settle(2 * WATCH_TIMEOUT_S)
            assert [await cluster.node_of(name) for name in ("p", "q")] == ["node-a", "node-a"]

    run_virtual(main())


def test_a_pod_that_waits_for_its_devices_does_not_keep_others_from_being_looked_at() -> None:
    """Binding conditions may take ten minutes, and backups may be restored several times meanwhile."""

    async def main() -> None:
        async with api_in_process() as client:
            for name in ("first", "second"):
                await client.create(our_pod(name))
            first, second = await client.list(Pod)
            placed, undone = PlacedPods(), list[str]()
            unseen = UnseenBindings(
                client.calls,
                placed,
                is_writing=lambda pod: pod is first,
                undone=lambda found: undone.append(found.pod.metadata.name),
            )
            checking = asyncio.ensure_future(unseen.run())
            placed.put(pod_key(first), PlacedPod(first, "node-a", PodResources({}, {}), (), is_assumed=True))
            unseen.listed()
            await asyncio.sleep(10)
            placed.put(pod_key(second), PlacedPod(second, "node-a", PodResources({}, {}), (), is_assumed=True))
            unseen.listed()
            await asyncio.sleep(10)
            assert undone == ["second"]
            checking.cancel()

    run_virtual(main())
