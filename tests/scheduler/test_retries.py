"""Attempts that end in an error: the pod has a condition and is retried after a back-off, without any event."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable

import pytest

from dralloc.client.known_resources import resource_for
from dralloc.client.transport import ClientRequest, ClientResponse, Transport
from dralloc.client.typed_resource import ObjectKey
from dralloc.kube.core_v1 import Node
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import ResourceClaim, ResourceSlice
from dralloc.testing.builders import DRIVER, claim, device, device_class, request, resource_slice
from dralloc.testing.virtual_time import run_virtual
from tests.support.scheduled_cluster import ScheduledCluster, node, our_pod, scheduled_cluster
from tests.support.scripted_transport import Loss, ScriptedTransport

# The longest back-off after an error.
HELD_BACK_S = 10.0

# A device without the attribute that the selector reads is the error on node-b.
SELECTIVE = claim("c", request(where=f'device.attributes["{DRIVER}"].mem == 1'))
FITTING = resource_slice("a", device("gpu-0", attributes={"mem": 1}), pool="a", node_name="node-a")
FAULTY = resource_slice("b", device("gpu-0"), pool="b", node_name="node-b")

# Of the two slices of its second generation, one is missing.
ALL = claim("c", request(everything=True))
COMPLETE = resource_slice("a", device("gpu-0"), pool="a", node_name="node-a")
INCOMPLETE = resource_slice("b", device("gpu-1"), pool="a", node_name="node-a", generation=2, of=2)


@pytest.mark.parametrize(
    ("asked", "slices", "kind", "name"),
    [
        pytest.param(SELECTIVE, (FITTING, FAULTY), ResourceSlice, "b", id="the slice with a faulty device"),
        pytest.param(SELECTIVE, (FITTING, FAULTY), Node, "node-b", id="the node that sees a faulty device"),
        pytest.param(ALL, (COMPLETE, INCOMPLETE), ResourceSlice, "b", id="the slice of a pool that is incomplete"),
    ],
)
def test_a_pod_is_retried_soon_after_an_error(
    asked: ResourceClaim, slices: tuple[ResourceSlice, ...], kind: type[Node | ResourceSlice], name: str
) -> None:
    async def main() -> None:
        async with scheduled_cluster() as cluster:
            await cluster.create(device_class(), node("node-a"), node("node-b"), *slices)
            await cluster.create(asked, our_pod("p", "c"))
            await cluster.settle(60)
            assert (await cluster.condition("p")).reason == "SchedulerError"
            assert len(await cluster.events_of("p")) == 1
            await cluster.client.calls.delete(resource_for(kind), ObjectKey("", name))
            await cluster.settle(HELD_BACK_S)
            assert await cluster.node_of("p") == "node-a"

    run_virtual(main())


def refusal(status: int, reason: str, message: str) -> ClientResponse:
    said = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": status}
    return ClientResponse(status=status, body=json.dumps({**said, "reason": reason, "message": message}).encode())


def run_with(
    script: Callable[[ClientRequest], Loss | ClientResponse], test: Callable[[ScheduledCluster], Awaitable[None]]
) -> None:
    async def main() -> None:
        async with scheduled_cluster(wrap=lambda sound: ScriptedTransport(sound, script)) as cluster:
            await test(cluster)

    run_virtual(main())


def test_a_failed_deallocation_is_retried() -> None:
    """The claim's devices are on an unschedulable node, and the server rejects the first deallocation."""
    refused = iter([refusal(503, "ServiceUnavailable", "not now")])

    def script(sent: ClientRequest) -> Loss | ClientResponse:
        is_deallocation = sent.path.endswith("/c/status") and b'"allocation":null' in sent.body
        return next(refused, Loss.NOTHING) if is_deallocation else Loss.NOTHING

    async def test(cluster: ScheduledCluster) -> None:
        slices = [resource_slice(name, device("gpu-0"), pool=name, node_name=name) for name in ("node-a", "node-b")]
        await cluster.create(device_class(), node("node-a"), node("node-b"), *slices, claim("c", request()))
        await cluster.create(our_pod("first", "c"))
        await cluster.settle()
        left = await cluster.node_of("first")
        await cluster.remove_pod("first")
        await cluster.client.patch(ResourceClaim, "c", {"status": {"reservedFor": None}}, subresource="status")
        await cluster.client.patch(Node, left, {"spec": {"unschedulable": True}})
        await cluster.settle()
        await cluster.create(our_pod("second", "c"))
        await cluster.settle(0.01)
        condition = await cluster.condition("second")
        assert (condition.reason, "not now" in condition.message) == ("SchedulerError", True)
        await cluster.settle(HELD_BACK_S)
        assert await cluster.node_of("second") == {"node-a": "node-b", "node-b": "node-a"}[left]

    run_with(script, test)


def test_a_pod_that_keeps_losing_races_gets_one_condition() -> None:
    """The server reports a collision on each attempt, although no other claim is visible."""
    taken = refusal(409, "Conflict", "the device is given to another claim")

    async def test(cluster: ScheduledCluster) -> None:
        devices = resource_slice("s", device("gpu-0"), pool="node-a", node_name="node-a")
        await cluster.create(device_class(), node("node-a"), devices, claim("c", request()), our_pod("p", "c"))
        await cluster.settle(2)
        assert await cluster.events_of("p") == []
        await cluster.settle(600)
        condition = await cluster.condition("p")
        assert condition.reason == "SchedulerError"
        assert condition.message == (
            "repeatedly lost a race for devices with another scheduler: the device is given to another claim"
        )
        assert [event.count for event in await cluster.events_of("p")] == [1]

    run_with(lambda sent: taken if sent.path.endswith("/c/status") else Loss.NOTHING, test)


def test_resources_assumed_for_a_pod_that_another_scheduler_bound_elsewhere_are_freed() -> None:
    """The other scheduler's binding is written and seen first; ours arrives much later."""

    async def main() -> None:
        def delayed(sound: Transport) -> Transport:
            return ScriptedTransport(
                sound, lambda _: Loss.NOTHING, lambda sent: 100.0 * sent.path.endswith("/p/binding")
            )

        async with scheduled_cluster(wrap=delayed) as cluster:
            await cluster.create(node("node-a", cpu="1"), our_pod("p", requests={"cpu": "1"}))
            await cluster.settle()
            await cluster.create(our_pod("q", requests={"cpu": "1"}), node("node-b", cpu="0"))
            await cluster.settle(HELD_BACK_S)
            binding = {"target": {"apiVersion": "v1", "kind": "Node", "name": "node-b"}}
            await cluster.client.calls.post(resource_for(Pod), ObjectKey("default", "p"), "binding", binding)
            await cluster.settle(HELD_BACK_S)
            assert [await cluster.node_of(name) for name in ("p", "q")] == ["node-b", "node-a"]

    run_virtual(main())
