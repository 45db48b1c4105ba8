"""Nodes that somebody wrote down: any node with the label `fake.dralloc.io/profile: manifest` is played like those of a fleet.

It becomes ready, and pods that are bound to it run and do nothing. Its devices are those of ResourceSlices that somebody wrote, too. So
a whole cluster can be a file that is applied.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from dralloc.api.core_v1 import Node
from dralloc.client.api_calls import ApiCalls
from dralloc.client.informer import Informer
from dralloc.client.known_resources import resource_for
from dralloc.client.reflector import Reflector
from dralloc.client.transport import Transport
from dralloc.fleet.profiles import PROFILE_LABEL
from dralloc.fleet.simulated_pods import FIELD_MANAGER, SimulatedPods
from dralloc.node.heartbeat import NodeHeartbeat
from dralloc.node.node_object import NodeShape
from dralloc.node.retry import until_done
from dralloc.node.timings import DEFAULT_TIMINGS, Timings
from dralloc.primitives.clock import Clock
from dralloc.primitives.errors import NotFound

MANIFEST: Final = "manifest"
# What a node has that does not say. One that is applied cannot: servers keep what `apply` says about status to themselves.
CAPACITY: Final = {"cpu": "64", "memory": "256Gi", "pods": "1k"}


class ManifestNodes:
    """Plays nodes from the moment they are there."""

    def __init__(self, transport: Transport, clock: Clock, timings: Timings = DEFAULT_TIMINGS) -> None:
        self._calls = ApiCalls(transport, field_manager=FIELD_MANAGER)
        self._clock = clock
        self._timings = timings
        self._nodes: Informer[Node] = Informer()
        self._pods = SimulatedPods(self._calls, clock, timings)
        self._new: asyncio.Queue[Node] = asyncio.Queue()

    async def run(self, on_ready: Callable[[], None] = lambda: None) -> None:
        """Until cancelled. As long as there are no such nodes, no pods are watched."""
        async with asyncio.TaskGroup() as tasks:
            selector = f"{PROFILE_LABEL}={MANIFEST}"
            tasks.create_task(Reflector(self._calls, resource_for(Node), self._nodes, label_selector=selector).run())
            await self._nodes.synced.wait()
            self._nodes.subscribe(self._node_changed)
            on_ready()
            node = await self._new.get()
            await self._pods.start(tasks)
            while True:
                await self._play(node)
                node = await self._new.get()

    def _node_changed(self, before: Node | None, after: Node | None) -> None:
        if before is None and after is not None:
            self._new.put_nowait(after)

    async def _play(self, node: Node) -> None:
        """Make the node ready, with what it says that it has, and let pods live there."""
        name = node.metadata.name
        shape = NodeShape(name=name, labels=node.metadata.labels, capacity=_capacity(node))
        heartbeat = NodeHeartbeat(self._calls, shape, self._clock, self._timings)
        try:
            await until_done(f"node {name} is not ready yet", heartbeat.register, self._timings.reach_again)
        except NotFound:
            return
        self._pods.add_node(name)


def _capacity(node: Node) -> dict[str, str]:
    stated = {**node.status.capacity, **node.status.allocatable}
    return {name: str(amount) for name, amount in stated.items()} or CAPACITY
