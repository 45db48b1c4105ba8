"""Lost responses and interference at the worst moments: no pod runs without its devices."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from dralloc.client.async_client import AsyncClient
from dralloc.client.transport import ClientRequest, ClientResponse, Stream, Transport, TransportError
from dralloc.kube.core_v1 import Node
from dralloc.kube.pod_claims import is_reserved_for, pod_reference
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import ResourceClaim
from dralloc.testing.builders import claim, device, device_class, request, resource_slice
from dralloc.testing.virtual_time import run_virtual
from tests.support.relay_transport import RelayTransport
from tests.support.scheduled_cluster import ScheduledCluster, in_cluster, node, our_pod, scheduled_cluster
from tests.support.scripted_transport import Loss, ScriptedTransport

Script = Callable[[ClientRequest], Loss]


async def create_pod(cluster: ScheduledCluster) -> None:
    """One pod with one claim, which fits on either of two nodes."""
    slices = [resource_slice(name, device("nic-0"), node_name=name, pool=name) for name in ("node-a", "node-b")]
    await cluster.create(
        node("node-a"), node("node-b"), device_class(), *slices, claim("nic", request()), our_pod("p", "nic")
    )


async def assert_runs_with_devices(cluster: ScheduledCluster) -> None:
    pod, used = await cluster.client.get(Pod, "p"), await cluster.claim("nic")
    assert pod.spec.node_name
    assert used.status.allocation is not None
    assert [result.pool for result in used.status.allocation.devices.results] == [pod.spec.node_name]
    assert is_reserved_for(used, pod)


def run_with(script: Script) -> None:
    async def main() -> None:
        async with scheduled_cluster(wrap=lambda sound: ScriptedTransport(sound, script)) as cluster:
            await create_pod(cluster)
            await cluster.settle(30)
            await assert_runs_with_devices(cluster)

    run_virtual(main())


def test_a_scheduler_starts_even_if_its_first_requests_are_lost() -> None:
    asked = iter(range(10_000))
    run_with(lambda _: Loss.REQUEST if next(asked) < 10 else Loss.NOTHING)


def test_a_bound_pod_keeps_its_devices_if_the_responses_to_binding_and_read_are_lost() -> None:
    bindings = 0

    def script(sent: ClientRequest) -> Loss:
        nonlocal bindings
        if sent.path.endswith("/binding"):
            bindings += 1
            return Loss.ANSWER
        looks_again = bindings == 1 and sent.method == "GET" and sent.path.endswith("/pods/p")
        return Loss.REQUEST if looks_again else Loss.NOTHING

    run_with(script)
    assert bindings >= 1


def test_an_allocation_is_kept_if_the_response_to_its_write_is_lost() -> None:
    lost = iter((Loss.ANSWER, Loss.REQUEST))
    run_with(lambda sent: next(lost, Loss.NOTHING) if sent.path.endswith("/nic/status") else Loss.NOTHING)


@in_cluster(schedulers=2)
async def test_the_slower_of_two_schedulers_leaves_the_claims_of_a_bound_pod_alone(
    cluster: ScheduledCluster,
) -> None:
    await create_pod(cluster)
    await cluster.settle(30)
    await assert_runs_with_devices(cluster)


async def create_pod_with_two_claims(cluster: ScheduledCluster) -> None:
    devices = resource_slice("s", device("nic-0"), device("nic-1"), node_name="node-a", pool="node-a")
    claims = [claim(name, request()) for name in ("first", "second")]
    await cluster.create(node("node-a"), device_class(), devices, *claims, our_pod("p", "first", "second"))


def is_release(sent: ClientRequest) -> bool:
    return sent.method == "PATCH" and b'"allocation":null' in sent.body


def test_a_pod_is_not_retried_while_its_claims_are_being_released() -> None:
    lost = iter([Loss.REQUEST] * 5)

    def script(sent: ClientRequest) -> Loss:
        return next(lost, Loss.NOTHING) if sent.path.endswith("/second/status") else Loss.NOTHING

    def delay_s(sent: ClientRequest) -> float:
        return 20.0 if is_release(sent) else 0.0

    async def main() -> None:
        async with scheduled_cluster(wrap=lambda sound: ScriptedTransport(sound, script, delay_s)) as cluster:
            await create_pod_with_two_claims(cluster)
            await cluster.settle(60)
            assert await cluster.node_of("p") == "node-a"
            for name in ("first", "second"):
                assert await cluster.devices_of(name), name

    run_virtual(main())


def test_a_pod_does_not_use_a_claim_that_is_being_deallocated_for_it() -> None:
    """The claim's node is full, and gets room again while the slow deallocation is running."""

    def delay_s(sent: ClientRequest) -> float:
        return 20.0 if is_release(sent) else 0.0

    async def main() -> None:
        async with scheduled_cluster(
            wrap=lambda sound: ScriptedTransport(sound, lambda _: Loss.NOTHING, delay_s)
        ) as cluster:
            slices = [resource_slice(name, device("nic-0"), node_name=name, pool=name) for name in ("node-a", "node-b")]
            await cluster.create(
                node("node-a"), device_class(), *slices, claim("nic", request()), our_pod("before", "nic")
            )
            await cluster.settle()
            await cluster.remove_pod("before")
            waiting = our_pod("p", "nic")
            waiting["spec"]["schedulingGates"] = [{"name": "example.com/wait"}]
            await cluster.create(node("node-b"), waiting)
            # Left by a scheduler that crashed during an attempt.
            listed = {"reservedFor": [pod_reference(await cluster.client.get(Pod, "p"))]}
            await cluster.client.patch(ResourceClaim, "nic", {"status": listed}, subresource="status")
            await cluster.client.patch(Node, "node-a", {"spec": {"unschedulable": True}})
            await cluster.client.patch(Pod, "p", {"spec": {"schedulingGates": None}})
            await cluster.settle(5)
            await cluster.client.patch(Node, "node-a", {"spec": {"unschedulable": None}})
            await cluster.settle(60)
            assert await cluster.node_of("p")
            assert await cluster.devices_of("nic")

    run_virtual(main())


class DeletedWhileBound(RelayTransport):
    """The pod is deleted right after its binding, whose response is lost, and the watch of pods shows both late."""

    def __init__(self, sound: Transport) -> None:
        super().__init__(sound)
        self._delay_s = 0.0

    async def send(self, sent: ClientRequest) -> ClientResponse:
        if not sent.path.endswith("/p/binding"):
            return await self._inner.send(sent)
        self._delay_s = 10.0
        await self._inner.send(sent)
        await AsyncClient(self._inner).delete(Pod, "p")
        raise TransportError("lost")

    @asynccontextmanager
    async def stream(self, sent: ClientRequest) -> AsyncIterator[Stream]:
        async with self._inner.stream(sent) as stream:
            yield LateStream(stream, lambda: self._delay_s) if sent.path == "/api/v1/pods" else stream


class LateStream:
    def __init__(self, stream: Stream, delay_s: Callable[[], float]) -> None:
        self._stream = stream
        self._delay_s = delay_s
        self.status = stream.status

    async def pieces(self) -> AsyncIterator[bytes]:
        async for piece in self._stream.pieces():
            await asyncio.sleep(self._delay_s())
            yield piece


def test_the_room_of_a_pod_that_was_deleted_while_it_was_bound_is_not_given_away() -> None:
    async def main() -> None:
        async with scheduled_cluster(wrap=DeletedWhileBound) as cluster:
            await cluster.create(our_pod("p", requests={"cpu": "3"}), our_pod("q", requests={"cpu": "3"}))
            await cluster.create(node("node-a", cpu="4"))
            await cluster.settle(30)
            pod = await cluster.pod("p")
            assert (pod.spec.node_name, pod.is_terminating) == ("node-a", True)
            assert not await cluster.node_of("q")

    run_virtual(main())
