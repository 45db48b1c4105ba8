"""Nodes from manifests become ready, and pods run on them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager

from dralloc.client.async_client import AsyncClient
from dralloc.client.in_process_transport import InProcessTransport
from dralloc.kube.core_v1 import Node
from dralloc.kube.pod_v1 import Pod
from dralloc.node.simulated.manifest_nodes import CAPACITY, ManifestNodes
from dralloc.node.simulated.profiles import PROFILE_LABEL
from dralloc.primitives.features import FeatureGates
from dralloc.primitives.quantity import Quantity
from dralloc.testing.virtual_time import VirtualClock, run_virtual
from tests.support.api_server import TOKEN, api_application
from tests.support.workloads import Document, pod

SOON_S = 2.0


def node(name: str, *, label: str = "manifest", **amounts: str) -> Document:
    document: Document = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {PROFILE_LABEL: label}},
    }
    if amounts:
        document["status"] = {"capacity": amounts, "allocatable": amounts}
    return document


@asynccontextmanager
async def playing() -> AsyncIterator[AsyncClient]:
    clock = VirtualClock(asyncio.get_running_loop())
    async with api_application(clock=clock) as application:
        transport = InProcessTransport(application, token=TOKEN)
        ready = asyncio.Event()
        running = asyncio.create_task(ManifestNodes(transport, clock, FeatureGates.defaults()).run(ready.set))
        await ready.wait()
        try:
            yield AsyncClient(transport)
            assert not running.done(), "it plays until it is told to end"
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


def play(scenario: Callable[[AsyncClient], Awaitable[None]]) -> None:
    async def run() -> None:
        async with playing() as client:
            await scenario(client)

    run_virtual(run())


async def phase(client: AsyncClient, name: str) -> str:
    await asyncio.sleep(SOON_S)
    return (await client.get(Pod, name)).status.phase


def test_a_node_becomes_ready_with_its_stated_capacity() -> None:
    async def scenario(client: AsyncClient) -> None:
        await client.apply(node("plain"))
        await client.create(node("large", cpu="1000", pods="5000"))
        await asyncio.sleep(SOON_S)
        plain, large = await client.get(Node, "plain"), await client.get(Node, "large")
        assert [(each.type, each.status) for each in plain.status.conditions] == [("Ready", "True")]
        assert {name: str(amount) for name, amount in plain.status.allocatable.items()} == CAPACITY
        assert {name: str(amount) for name, amount in large.status.allocatable.items()} == {"cpu": "1k", "pods": "5k"}
        assert plain.metadata.labels[PROFILE_LABEL] == "manifest"
        assert plain.metadata.labels["kubernetes.io/hostname"] == "plain"

    play(scenario)


def test_an_applied_node_keeps_what_its_manifest_states() -> None:
    async def scenario(client: AsyncClient) -> None:
        await client.apply(node("lab", cpu="8", memory="32Gi", pods="110"))
        stated = {"capacity": {"cpu": "8", "pods": "110"}, "allocatable": {"cpu": "7", "example.com/tile": "2"}}
        await client.apply({**node("reserved"), "status": stated})
        await asyncio.sleep(SOON_S)
        lab, reserved = await client.get(Node, "lab"), await client.get(Node, "reserved")
        assert [(each.type, each.status) for each in lab.status.conditions] == [("Ready", "True")]
        assert amounts(lab.status.capacity) == amounts(lab.status.allocatable)
        assert amounts(lab.status.capacity) == {"cpu": "8", "memory": "32Gi", "pods": "110"}
        assert amounts(reserved.status.capacity) == {"cpu": "8", "pods": "110", "example.com/tile": "2"}
        assert amounts(reserved.status.allocatable) == {"cpu": "7", "pods": "110", "example.com/tile": "2"}

    play(scenario)


def amounts(stated: Mapping[str, Quantity]) -> dict[str, str]:
    return {name: str(amount) for name, amount in stated.items()}


def test_pods_run_on_nodes_with_the_label_only() -> None:
    async def scenario(client: AsyncClient) -> None:
        await client.apply(node("first"))
        await client.create(pod("a", node="first"))
        # This pod exists before its node.
        await client.create(pod("b", node="second"))
        await client.create(node("foreign", label="gpu"))
        await client.create(pod("c", node="foreign"))
        assert await phase(client, "a") == "Running"
        assert await phase(client, "b") == "Pending"
        await client.apply(node("second"))
        assert await phase(client, "b") == "Running"
        assert await phase(client, "c") == "Pending"

    play(scenario)


def test_a_recreated_node_becomes_ready() -> None:
    async def scenario(client: AsyncClient) -> None:
        await client.apply(node("first"))
        await client.delete(Node, "first")
        await client.apply(node("first"))
        await asyncio.sleep(SOON_S)
        assert (await client.get(Node, "first")).status.conditions
        await client.create(pod("a", node="first"))
        assert await phase(client, "a") == "Running"

    play(scenario)
