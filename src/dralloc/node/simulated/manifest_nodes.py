"""Nodes from a manifest: a Node with the label `fake.dralloc.io/profile: manifest` is simulated like those of a fleet.

It becomes ready, and pods that are bound to it run and do nothing. Its devices are the ResourceSlices that were applied, so a whole cluster
can be one manifest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from dralloc.client.informer import Informer
from dralloc.client.known_resources import resource_for
from dralloc.client.reflector import Reflector
from dralloc.client.transport import Transport
from dralloc.kube.coordination_v1 import SHARED_LEASE
from dralloc.kube.core_v1 import Node
from dralloc.node.heartbeat import NodeHeartbeat
from dralloc.node.node_object import NodeShape
from dralloc.node.simulated.fleet_calls import FleetCalls, TransportOfNode
from dralloc.node.simulated.profiles import PROFILE_LABEL
from dralloc.node.simulated.shared_heartbeat import SharedHeartbeat
from dralloc.node.simulated.simulated_pods import SimulatedPods
from dralloc.node.timings import DEFAULT_TIMINGS, Timings, retry_until_done
from dralloc.primitives.clock import Clock
from dralloc.primitives.errors import NotFound
from dralloc.primitives.features import FeatureGates

MANIFEST: Final = "manifest"
# The capacity of a node whose manifest states none.
CAPACITY: Final = {"cpu": "64", "memory": "256Gi", "pods": "1k"}


class ManifestNodes:
    """Simulates nodes with the label from their creation on."""

    def __init__(
        self,
        transport: Transport,
        clock: Clock,
        gates: FeatureGates,
        timings: Timings = DEFAULT_TIMINGS,
        *,
        transport_of_node: TransportOfNode | None = None,
    ) -> None:
        self._fleet_calls = FleetCalls(transport, transport_of_node)
        self._calls = self._fleet_calls.shared
        self._clock = clock
        self._timings = timings
        self._nodes: Informer[Node] = Informer()
        self._pods = SimulatedPods(self._fleet_calls, clock, timings, gates)
        self._new: asyncio.Queue[Node] = asyncio.Queue()
        self._beats = SharedHeartbeat(
            self._calls,
            f"simulated-nodes-{MANIFEST}",
            clock,
            timings,
            lambda name: self._heartbeat(NodeShape(name=name)),
        )

    async def run(self, on_ready: Callable[[], None] = lambda: None) -> None:
        """Run until cancelled. Pods are watched from the first such node on."""
        async with asyncio.TaskGroup() as tasks:
            selector = f"{PROFILE_LABEL}={MANIFEST}"
            tasks.create_task(Reflector(self._calls, resource_for(Node), self._nodes, label_selector=selector).run())
            await self._nodes.synced.wait()
            self._nodes.subscribe(self._node_changed)
            on_ready()
            node = await self._new.get()
            tasks.create_task(self._beats.run())
            tasks.create_task(self._beats.contradict())
            await self._pods.start(tasks)
            while True:
                await self._simulate(node)
                node = await self._new.get()

    def _node_changed(self, before: Node | None, after: Node | None) -> None:
        if before is None and after is not None:
            self._new.put_nowait(after)
        elif after is not None:
            self._beats.node_changed(after)

    async def _simulate(self, node: Node) -> None:
        """Make the node ready with its stated capacity, and run its pods."""
        name = node.metadata.name
        annotations = {**node.metadata.annotations, SHARED_LEASE: self._beats.lease}
        capacity, allocatable = _amounts(node)
        shape = NodeShape(
            name=name,
            labels=node.metadata.labels,
            annotations=annotations,
            capacity=capacity,
            allocatable=allocatable,
        )
        register = self._heartbeat(shape).register
        try:
            await retry_until_done(f"cannot register node {name}", register, self._timings.connect_backoff)
        except NotFound:
            return
        self._pods.add_node(name)

    def _heartbeat(self, shape: NodeShape) -> NodeHeartbeat:
        calls = self._fleet_calls.of_node(shape.name)
        return NodeHeartbeat(calls, shape, self._clock, self._timings, registrar=self._calls)


def _amounts(node: Node) -> tuple[dict[str, str], dict[str, str]]:
    """The capacity and what of it pods get; what is stated of one counts for the other, too."""
    capacity = {name: str(amount) for name, amount in node.status.capacity.items()}
    allocatable = {name: str(amount) for name, amount in node.status.allocatable.items()}
    return {**allocatable, **capacity} or CAPACITY, {**capacity, **allocatable} or CAPACITY
