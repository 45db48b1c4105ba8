"""Slices of drivers that are not there, in virtual time."""

from __future__ import annotations

from dralloc.client.api_calls import ApiCalls
from dralloc.kube.resource_v1 import ResourceSlice
from dralloc.node.agent import Agent, AgentSettings, SliceCleanup
from dralloc.node.node_object import NodeShape
from dralloc.node.timings import DEFAULT_TIMINGS
from dralloc.testing.builders import DRIVER, NODE, device, resource_slice
from dralloc.testing.virtual_time import run_virtual
from tests.support.node_cluster import short_directory
from tests.support.restorable_cluster import restorable_cluster
from tests.support.scripted_transport import LosesFirst, ScriptedTransport


def test_slices_of_a_driver_that_is_gone_are_deleted_again_after_a_restore() -> None:
    async def main() -> None:
        with short_directory() as directory:
            async with restorable_cluster(only=("quota",)) as (cluster, server):
                await cluster.create(
                    resource_slice("mine", device("gpu-0")),
                    resource_slice("elsewhere", device("gpu-0"), pool="p", node_name="node-b"),
                )
                backup = await server.back_up()
                settings = AgentSettings(shape=NodeShape(name=NODE), directory=directory, runs_processes=False)
                cluster.components.start("agent", lambda: Agent(server, settings, cluster.clock).run())
                await cluster.settle(60)
                assert [item.metadata.name for item in await cluster.client.list(ResourceSlice)] == ["elsewhere"]
                await server.restore(backup)
                assert len(await cluster.client.list(ResourceSlice)) == 2
                await cluster.settle(120)
                assert [item.metadata.name for item in await cluster.client.list(ResourceSlice)] == ["elsewhere"]

    run_virtual(main())


def test_a_late_cleanup_spares_the_slices_of_drivers_that_have_connected() -> None:
    async def main() -> None:
        async with restorable_cluster(only=("quota",)) as (cluster, server):
            await cluster.create(resource_slice("old", device("gpu-0"), driver="gone.example.com"))
            calls = ApiCalls(ScriptedTransport(server, LosesFirst("/resourceslices", 2)))
            cleanup = SliceCleanup(calls, NODE, DEFAULT_TIMINGS)
            cleanup.delete_all()
            await cluster.settle(0.1)
            cleanup.connection_changed(DRIVER, connected=True)
            await cluster.create(resource_slice("new", device("gpu-0")))
            await cluster.settle(60)
            assert [item.metadata.name for item in await cluster.client.list(ResourceSlice)] == ["new"]

    run_virtual(main())
