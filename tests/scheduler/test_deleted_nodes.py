"""Nodes come and go, as an autoscaler adds and removes them. The scheduler does not remember all that there ever were."""

from __future__ import annotations

from dralloc.kube.core_v1 import Node
from tests.support.object_graph import held_by_tasks
from tests.support.scheduled_cluster import ScheduledCluster, in_cluster, node, our_pod

AT_ONCE = 25
NODES = 500
# More than are remembered, and fewer than there were.
HELD_MAX = 300


@in_cluster()
async def test_the_scheduler_does_not_grow_with_the_nodes_that_are_gone(cluster: ScheduledCluster) -> None:
    await cluster.create(node("node"))
    for first in range(0, NODES, AT_ONCE):
        names = [f"node-{number}" for number in range(first, first + AT_ONCE)]
        await cluster.create(*map(node, names), our_pod(f"pod-{first}"))
        await cluster.settle()
        assert await cluster.node_of(f"pod-{first}")
        await cluster.remove_pod(f"pod-{first}")
        for name in names:
            await cluster.client.delete(Node, name)
        await cluster.settle()
    held = held_by_tasks({"ChangeLog._entries", "LastChanges._last", "OfferJudge._known"})
    parts = ("NodeRooms.", "NodeReasons.", "FittingNodes.", "VerdictTable.", "ClusterState.", "PlacedPods.")
    of_nodes = {name: count for name, count in held.items() if name.startswith(parts)}
    assert {"NodeRooms.names", "NodeReasons.pending"} <= of_nodes.keys()
    assert {name: count for name, count in of_nodes.items() if count > HELD_MAX} == {}
