"""A node whose registration a restored backup has undone, or that others believe to be gone, in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from dralloc.client.api_calls import ApiCalls
from dralloc.client.informer import HistoryChanged
from dralloc.client.transport import ClientRequest, ClientResponse, Transport
from dralloc.kube.core_v1 import Node
from dralloc.node.heartbeat import NodeHeartbeat
from dralloc.node.node_object import NodeShape
from dralloc.node.timings import DEFAULT_TIMINGS
from dralloc.testing.virtual_time import run_virtual
from tests.support.controlled_cluster import ControlledCluster
from tests.support.relay_transport import RelayTransport
from tests.support.restorable_cluster import RestorableServer, restorable_cluster
from tests.support.scripted_transport import LosesFirst, ScriptedTransport


def start_node(cluster: ControlledCluster, transport: Transport, shape: NodeShape) -> None:
    """What an agent does for its node, as a component that is started again with new objects."""

    async def run() -> None:
        heartbeat = NodeHeartbeat(ApiCalls(transport), shape, cluster.clock, DEFAULT_TIMINGS)
        await heartbeat.register()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(heartbeat.beat())
            tasks.create_task(heartbeat.watch())

    cluster.components.start("node", run)


@pytest.mark.parametrize("is_known", [False, True], ids=["new", "with other labels"])
def test_a_node_that_a_backup_does_not_have_registers_again(is_known: bool) -> None:
    async def main() -> None:
        async with restorable_cluster(only=("quota",)) as (cluster, server):
            if is_known:
                await cluster.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}})
            backup = await server.back_up()
            start_node(cluster, cluster.network, NodeShape(name="n", labels={"zone": "a"}))
            await cluster.settle()
            await server.restore(backup)
            await cluster.settle(60)
            node = await cluster.client.get(Node, "n")
            assert node.metadata.labels["zone"] == "a"
            assert [each.status for each in node.status.conditions if each.type == "Ready"] == ["True"]

    run_virtual(main())


def test_a_restore_before_the_node_was_listed_is_noticed() -> None:
    async def main() -> None:
        async with restorable_cluster(only=("quota",)) as (cluster, server):
            backup = await server.back_up()
            heartbeat = NodeHeartbeat(cluster.calls(), NodeShape(name="n"), cluster.clock, DEFAULT_TIMINGS)
            await heartbeat.register()
            await server.restore(backup)
            with pytest.raises(HistoryChanged):
                await heartbeat.watch()

    run_virtual(main())


@pytest.mark.parametrize("has_expired", [False, True], ids=["watched", "after its watch has expired"])
def test_a_node_that_was_deleted_does_not_register_again(has_expired: bool) -> None:
    async def main() -> None:
        async with restorable_cluster(only=("quota",)) as (cluster, server):
            start_node(cluster, cluster.network, NodeShape(name="n"))
            await cluster.settle()
            await cluster.client.delete(Node, "n")
            if has_expired:
                await server.expire_watches()
            await cluster.settle(600)
            assert not await cluster.client.list(Node)

    run_virtual(main())


class RestoredWhileRegistering(RelayTransport):
    """Undoes the second creation of a node by a restore, and answers after that was listed."""

    def __init__(self, server: RestorableServer) -> None:
        super().__init__(server)
        self._server = server
        self._created = 0

    async def send(self, request: ClientRequest) -> ClientResponse:
        backup = await self._server.back_up()
        answer = await super().send(request)
        self._created += request.method == "POST" and request.path.endswith("/nodes")
        if self._created != 2:
            return answer
        self._created += 1
        await self._server.restore(backup)
        await asyncio.sleep(1)
        return answer


def test_a_restore_while_a_node_registers_again_is_noticed() -> None:
    async def main() -> None:
        async with restorable_cluster(only=("quota",)) as (cluster, server):
            backup = await server.back_up()
            start_node(cluster, RestoredWhileRegistering(server), NodeShape(name="n"))
            await cluster.settle()
            await server.restore(backup)
            await cluster.settle(120)
            assert await cluster.client.list(Node)

    run_virtual(main())


def test_a_contradiction_that_was_lost_is_repeated_soon() -> None:
    async def main() -> None:
        async with restorable_cluster(only=("quota",)) as (cluster, server):
            start_node(cluster, ScriptedTransport(server, LosesFirst("/nodes/n/status", 2)), NodeShape(name="n"))
            await cluster.settle()
            unknown = {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}
            await cluster.client.patch(Node, "n", unknown, subresource="status")
            await cluster.settle(60)
            conditions = (await cluster.client.get(Node, "n")).status.conditions
            assert [each.status for each in conditions if each.type == "Ready"] == ["True"]

    run_virtual(main())
