"""Simulated nodes that are not wanted any more are deleted with their pods and devices; all others stay."""

from __future__ import annotations

import asyncio

from dralloc.client.async_client import AsyncClient
from dralloc.kube.core_v1 import Node
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import ResourceSlice
from dralloc.node.simulated.fleet import FleetSettings
from dralloc.server.store.memory import MemoryStore
from dralloc.testing.cluster import ClusterSettings, cluster_in_process, fleet
from dralloc.testing.stale_nodes import delete_stale_nodes
from dralloc.testing.virtual_time import VirtualClock, run_virtual
from tests.support.workloads import pod


async def names(client: AsyncClient, kind: type[Node | Pod | ResourceSlice]) -> list[str]:
    return sorted(item.metadata.name for item in await client.list(kind))


def test_unwanted_nodes_are_deleted() -> None:
    async def main() -> None:
        clock = VirtualClock(asyncio.get_running_loop())
        # Nodes of another process, even with the same label.
        others = FleetSettings(profile=fleet("gpu", 1).profile, profile_name="gpu", count=1, prefix="other")
        earlier = (fleet("gpu", 3), fleet("tpu", 8))
        async with MemoryStore() as store:
            settings = ClusterSettings(clock=clock, fleets=(*earlier, others))
            async with cluster_in_process(settings, store=store) as cluster:
                for node in ("gpu-0", "gpu-2", "tpu-0", "other-0"):
                    await cluster.client.create(pod(f"on-{node}", node=node))
            # Only a server, so that no process simulates the nodes.
            async with cluster_in_process(ClusterSettings(clock=clock), store=store) as cluster:
                counts = {each.prefix: each.count for each in earlier}
                wanted = (fleet("gpu", 2), fleet("nic", 1), fleet("tpu", 4))
                gone = await delete_stale_nodes(cluster.client, counts, wanted)
                assert gone == ["gpu-2", "tpu-4", "tpu-5", "tpu-6", "tpu-7"]
                # The garbage collector deletes what a node owned.
                await asyncio.sleep(60)
                assert await names(cluster.client, Node) == [
                    "gpu-0",
                    "gpu-1",
                    "other-0",
                    "tpu-0",
                    "tpu-1",
                    "tpu-2",
                    "tpu-3",
                ]
                assert await names(cluster.client, Pod) == ["on-gpu-0", "on-other-0", "on-tpu-0"]
                pools = {item.spec.pool.name for item in await cluster.client.list(ResourceSlice)}
                assert pools == {"gpu-0", "gpu-1", "other-0", "tpu-slice-0"}
                assert await delete_stale_nodes(cluster.client, counts, wanted) == []

    run_virtual(main())
