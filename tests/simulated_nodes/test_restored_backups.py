"""Simulated nodes that a restored backup does not have, in virtual time."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from dralloc.client.transport import ClientRequest, ClientResponse
from dralloc.kube.core_v1 import Node
from dralloc.kube.resource_v1 import DeviceClass, ResourceSlice
from dralloc.node.simulated.fleet import Fleet, FleetSettings
from dralloc.node.simulated.manifest_nodes import MANIFEST, ManifestNodes
from dralloc.node.simulated.profiles import PROFILE_LABEL, load_profile
from dralloc.primitives.features import FeatureGates
from dralloc.server.store.records import Record
from dralloc.testing.virtual_time import run_virtual
from tests.support.relay_transport import RelayTransport
from tests.support.restorable_cluster import RestorableServer, restorable_cluster


def test_a_fleet_that_a_backup_does_not_have_is_published_again() -> None:
    async def main() -> None:
        async with restorable_cluster(only=("quota",)) as (cluster, server):
            backup = await server.back_up()
            settings = FleetSettings(profile=load_profile("gpu"), profile_name="gpu", count=3)
            cluster.components.start("fleet", Fleet(server, settings, cluster.clock).run)
            await cluster.settle()
            await server.restore(backup)
            assert not await cluster.client.list(Node)
            await cluster.settle(60)
            nodes = await cluster.client.list(Node)
            assert [each.status for node in nodes for each in node.status.conditions if each.type == "Ready"] == [
                "True"
            ] * 3
            owners = {item.metadata.owner_references[0].uid for item in await cluster.client.list(ResourceSlice)}
            assert owners == {node.metadata.uid for node in nodes}
            assert await cluster.client.list(DeviceClass)

    run_virtual(main())


class RestoredAtNode(RelayTransport):
    """Restores a backup once, right after this node was created."""

    def __init__(self, server: RestorableServer, backup: Sequence[Record], node: str) -> None:
        super().__init__(server)
        self._restore, self._node = partial(server.restore, backup), node.encode()
        self._is_restored = False

    async def send(self, request: ClientRequest) -> ClientResponse:
        answer = await super().send(request)
        creates_node = request.method == "POST" and request.path.endswith("/nodes")
        if creates_node and self._node in request.body and not self._is_restored:
            self._is_restored = True
            await self._restore()
        return answer


def test_a_restore_while_a_fleet_starts_is_noticed() -> None:
    async def main() -> None:
        async with restorable_cluster(only=("quota",)) as (cluster, server):
            transport = RestoredAtNode(server, await server.back_up(), "fake-99")
            settings = FleetSettings(profile=load_profile("gpu"), profile_name="gpu", count=100)
            cluster.components.start("fleet", Fleet(transport, settings, cluster.clock).run)
            await cluster.settle(60)
            assert len(await cluster.client.list(Node)) == 100

    run_virtual(main())


def test_a_node_of_a_manifest_is_ready_after_a_restore_to_before_it_was_simulated() -> None:
    async def main() -> None:
        async with restorable_cluster(only=("quota",)) as (cluster, server):
            metadata = {"name": "n", "labels": {PROFILE_LABEL: MANIFEST}}
            await cluster.create({"apiVersion": "v1", "kind": "Node", "metadata": metadata})
            backup = await server.back_up()
            simulated = ManifestNodes(server, cluster.clock, FeatureGates.defaults())
            cluster.components.start("nodes", simulated.run)
            await cluster.settle()
            await server.restore(backup)
            assert not (await cluster.client.get(Node, "n")).status.conditions
            await cluster.settle(60)
            conditions = (await cluster.client.get(Node, "n")).status.conditions
            assert [each.status for each in conditions if each.type == "Ready"] == ["True"]

    run_virtual(main())
