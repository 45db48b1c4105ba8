"""A cluster in virtual time whose nodes are nothing but heartbeats: a test can silence them as kill -9 would."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from dralloc.client.api_calls import PatchType
from dralloc.client.known_resources import resource_for
from dralloc.client.typed_resource import ObjectKey
from dralloc.kube.core_v1 import Node
from dralloc.kube.pod_v1 import Pod
from dralloc.node.heartbeat import NodeHeartbeat
from dralloc.node.node_object import NodeShape
from dralloc.node.timings import DEFAULT_TIMINGS
from dralloc.primitives.features import FeatureGates
from tests.support.cluster import cluster_on
from tests.support.controlled_cluster import ControlledCluster

NODE_CONTROLLERS = ("node-lifecycle", "node-taint-eviction", "pod-garbage-collector")


class BeatingCluster(ControlledCluster):
    async def add_node(self, name: str, **labels: str) -> None:
        """A node that is ready and renews its lease. Labels have `_` for `/`."""
        shape = NodeShape(name=name, labels={key.replace("_", "/"): value for key, value in labels.items()})
        heartbeat = NodeHeartbeat(self.calls(), shape, self.clock, DEFAULT_TIMINGS)
        await heartbeat.register()
        self.components.start(name, heartbeat.beat)

    async def silence(self, *names: str) -> None:
        for name in names:
            await self.components.end(name)

    async def node(self, name: str) -> Node:
        return await self.client.get(Node, name)

    async def ready(self, name: str) -> str:
        return next(each.status for each in (await self.node(name)).status.conditions if each.type == "Ready")

    async def taints(self, name: str) -> set[str]:
        """The taints as `KEY:EFFECT`, without the domain of Kubernetes."""
        taints = (await self.node(name)).spec.taints
        return {f"{taint.key.removeprefix('node.kubernetes.io/')}:{taint.effect}" for taint in taints}

    async def evicting(self) -> list[str]:
        """The names of nodes that evict pods."""
        nodes = await self.client.list(Node)
        return sorted(
            node.metadata.name for node in nodes if any(each.effect == "NoExecute" for each in node.spec.taints)
        )

    async def running_pod(self, document: dict[str, object], node: str) -> None:
        """A pod that runs on the node and is ready."""
        await self.create(document)
        name = str(document["metadata"]["name"])  # type: ignore[index]
        await self.bind(name, node)
        await self.show_ready(name)

    async def show_ready(self, name: str) -> None:
        status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        key, strategic = ObjectKey("default", name), PatchType.STRATEGIC
        await self.client.calls.patch(resource_for(Pod), key, {"status": status}, type=strategic, subresource="status")

    async def is_pod_ready(self, name: str) -> str:
        return next(each.status for each in (await self.pod(name)).status.conditions if each.type == "Ready")


@asynccontextmanager
async def beating_cluster(*names: str) -> AsyncIterator[BeatingCluster]:
    """A cluster with the controllers of nodes, and these nodes."""
    gates = FeatureGates.defaults()
    async with cluster_on(partial(BeatingCluster, only=NODE_CONTROLLERS, gates=gates), gates=gates) as cluster:
        cluster.start()
        for name in names:
            await cluster.add_node(name)
        await cluster.settle()
        yield cluster
