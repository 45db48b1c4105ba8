"""A server of ours gets the claims of a pod and its binding in one request: nothing that happens to it leaves a pod without devices."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from dralloc.api.dralloc_v1 import BATCH_PATH, BatchedWrite, WriteBatch
from dralloc.api.pod_claims import is_reserved_for
from dralloc.api.pod_v1 import Pod
from dralloc.api.resource_v1 import ResourceClaim
from dralloc.client.async_client import AsyncClient
from dralloc.client.transport import ClientRequest, ClientResponse, Transport, TransportError
from dralloc.testing.builders import claim, device, device_class, request, resource_slice
from dralloc.testing.virtual_time import run_virtual
from tests.support.scheduled_cluster import ScheduledCluster, node, our_pod, scheduled_cluster

Fault = Callable[["Network", ClientRequest], Awaitable[ClientResponse]]


class Network:
    """Something happens to the first request that carries a binding after claims. All writes are recorded."""

    def __init__(self, sound: Transport, fault: Fault) -> None:
        self.sound = sound
        self.user = AsyncClient(sound)
        self._fault: Fault | None = fault
        # What is lost besides.
        self.is_lost: Callable[[ClientRequest], bool] = lambda _: False
        self.groups = 0
        self.sent: list[ClientRequest] = []
        self.late: asyncio.Future[None] | None = None

    async def send(self, sent: ClientRequest) -> ClientResponse:
        if sent.method != "GET":
            self.sent.append(sent)
        if is_group(sent):
            self.groups += 1
            if self._fault is not None:
                fault, self._fault = self._fault, None
                return await fault(self, sent)
        if self.is_lost(sent):
            raise TransportError("lost")
        return await self.sound.send(sent)

    def stream(self, sent: ClientRequest) -> Any:
        return self.sound.stream(sent)

    async def close(self) -> None:
        await self.sound.close()

    @property
    def releases(self) -> int:
        return sum(b'"allocation":null' in each.body for each in self.sent)


def writes_of(sent: ClientRequest) -> tuple[BatchedWrite, ...]:
    return msgspec.json.decode(sent.body, type=WriteBatch).requests if sent.path == BATCH_PATH else ()


def is_group(sent: ClientRequest) -> bool:
    return any(each.after for each in writes_of(sent))


Check = Callable[[ScheduledCluster, Network], Awaitable[None]]


def run_with(fault: Fault, check: Check, schedulers: int = 1) -> None:
    """A pod with two claims that fits on either of two nodes."""

    async def main() -> None:
        networks: list[Network] = []

        def wrap(sound: Transport) -> Transport:
            networks.append(Network(sound, fault))
            return networks[0]

        async with scheduled_cluster(schedulers=schedulers, is_batched=True, wrap=wrap) as cluster:
            slices = [
                resource_slice(name, device("nic-0"), device("nic-1"), node_name=name, pool=name) for name in ("a", "b")
            ]
            await cluster.create(node("a"), node("b"), device_class(), *slices)
            await cluster.create(claim("x", request()), claim("y", request()), our_pod("p", "x", "y"))
            await cluster.settle(90)
            await check(cluster, networks[0])

    run_virtual(main())


async def runs_with_devices(cluster: ScheduledCluster) -> None:
    pod = await cluster.pod("p")
    assert pod.spec.node_name
    for name in ("x", "y"):
        used = await cluster.claim(name)
        assert used.status.allocation is not None, name
        assert [result.pool for result in used.status.allocation.devices.results] == [pod.spec.node_name]
        assert is_reserved_for(used, pod)


# --- What can happen to the request -------------------------------------------------------------------------------


async def nothing(network: Network, sent: ClientRequest) -> ClientResponse:
    return await network.sound.send(sent)


async def answer_lost(network: Network, sent: ClientRequest) -> ClientResponse:
    await network.sound.send(sent)
    raise TransportError("the answer was lost")


async def request_lost(network: Network, sent: ClientRequest) -> ClientResponse:
    raise TransportError("the request was lost")


async def late(network: Network, sent: ClientRequest) -> ClientResponse:
    async def arrive() -> None:
        await asyncio.sleep(5)
        await network.sound.send(sent)

    network.late = asyncio.ensure_future(arrive())
    raise TransportError("no answer in time")


async def arrived_twice(network: Network, sent: ClientRequest) -> ClientResponse:
    await network.sound.send(sent)
    return await network.sound.send(sent)


async def ended_after_a_claim(network: Network, sent: ClientRequest) -> ClientResponse:
    return await ended_after(1, network, sent)


async def ended_after_the_claims(network: Network, sent: ClientRequest) -> ClientResponse:
    return await ended_after(2, network, sent)


async def ended_after(count: int, network: Network, sent: ClientRequest) -> ClientResponse:
    """The server ended after so many of the writes."""
    done = msgspec.json.encode(WriteBatch(writes_of(sent)[:count]))
    await network.sound.send(msgspec.structs.replace(sent, body=done))
    raise TransportError("the server closed the connection")


async def older_server(network: Network, sent: ClientRequest) -> ClientResponse:
    return ClientResponse(status=404, body=b"{}")


async def claim_changed(network: Network, sent: ClientRequest) -> ClientResponse:
    await network.user.patch(ResourceClaim, "y", {"metadata": {"labels": {"a": "b"}}})
    return await network.sound.send(sent)


UNDONE = [answer_lost, request_lost, late, ended_after_a_claim, ended_after_the_claims]


@pytest.mark.parametrize("schedulers", [1, 2])
@pytest.mark.parametrize(
    "fault", [nothing, *UNDONE, arrived_twice, older_server, claim_changed], ids=lambda fault: fault.__name__
)
def test_the_pod_is_bound_with_its_devices(fault: Fault, schedulers: int) -> None:
    async def check(cluster: ScheduledCluster, network: Network) -> None:
        await runs_with_devices(cluster)
        assert network.groups
        assert not network.releases

    run_with(fault, check, schedulers)


def test_a_pod_that_waits_for_nothing_takes_one_request() -> None:
    async def check(cluster: ScheduledCluster, network: Network) -> None:
        await runs_with_devices(cluster)
        (group,) = filter(is_group, network.sent)
        assert [each.path.rpartition("/")[2] for each in writes_of(group)] == ["status", "status", "binding"]
        assert b"binding" not in b"".join(each.path.encode() for each in network.sent[network.sent.index(group) + 1 :])

    run_with(nothing, check)


def test_a_pod_that_was_deleted_is_not_bound() -> None:
    async def deleted(network: Network, sent: ClientRequest) -> ClientResponse:
        await network.user.delete(Pod, "p")
        return await network.sound.send(sent)

    async def check(cluster: ScheduledCluster, network: Network) -> None:
        assert not await cluster.exists(Pod, "p")
        assert network.groups == 1
        # The controller of claims releases them.
        assert not network.releases

    run_with(deleted, check)


def taken(then: Fault) -> Fault:
    """Another scheduler allocates one of the devices first."""

    async def fault(network: Network, sent: ClientRequest) -> ClientResponse:
        body = msgspec.json.decode(writes_of(sent)[1].body)
        await network.user.create(claim("other", request()))
        status = {"allocation": body["status"]["allocation"]}
        await network.user.patch(ResourceClaim, "other", {"status": status}, subresource="status")
        return await then(network, sent)

    return fault


@pytest.mark.parametrize("then", [nothing, *UNDONE], ids=lambda fault: fault.__name__)
def test_a_pod_whose_device_is_taken_gets_others(then: Fault) -> None:
    async def check(cluster: ScheduledCluster, network: Network) -> None:
        await runs_with_devices(cluster)
        assert network.releases

    run_with(taken(then), check)


def test_nothing_is_undone_while_the_binding_may_arrive() -> None:
    """One claim is written by itself; what became of the other cannot be read. The request with the binding arrives later."""
    seen: list[int] = []

    async def fault(network: Network, sent: ClientRequest) -> ClientResponse:
        network.is_lost = lambda each: each.method == "GET" and each.path.endswith("/resourceclaims/y")
        asyncio.get_running_loop().call_later(1, lambda: seen.append(network.releases))
        asyncio.get_running_loop().call_later(4, setattr, network, "is_lost", lambda _: False)
        return await late(network, sent)

    async def check(cluster: ScheduledCluster, network: Network) -> None:
        await runs_with_devices(cluster)
        assert seen == [0]
        assert not network.releases

    run_with(fault, check)


def test_claims_are_released_at_once_if_the_server_did_not_try_the_binding() -> None:
    """At the same time, not by the pod's next attempt."""
    times: list[float] = []

    def note_release(sent: ClientRequest) -> bool:
        if b'"allocation":null' in sent.body:
            times.append(asyncio.get_running_loop().time())
        return False

    async def fault(network: Network, sent: ClientRequest) -> ClientResponse:
        times.append(asyncio.get_running_loop().time())
        network.is_lost = note_release
        return await nothing(network, sent)

    async def check(cluster: ScheduledCluster, network: Network) -> None:
        await runs_with_devices(cluster)
        assert times[1] - times[0] < 0.01

    run_with(taken(fault), check)
