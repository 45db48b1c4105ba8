"""Thousands of simulated nodes in one process, published from a profile.

A node is an entry in a set; `simulated_pods` runs the pods of all nodes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import msgspec

from dralloc.client.api_calls import ApiCalls
from dralloc.client.known_resources import resource_for
from dralloc.client.transport import Transport
from dralloc.client.typed_resource import key_of
from dralloc.devices.identity import PoolId
from dralloc.kube.coordination_v1 import SHARED_LEASE
from dralloc.kube.core_v1 import Node
from dralloc.kube.meta_v1 import OwnerReference
from dralloc.kube.resource_v1 import DeviceClass, ResourceSlice
from dralloc.kube.timestamps import print_timestamp
from dralloc.node.heartbeat import NodeHeartbeat
from dralloc.node.kubelet.pool_plan import CreateSlice, DeleteSlice, UpdateSlice, WantedPool, plan_pool
from dralloc.node.node_object import NodeShape
from dralloc.node.simulated.fleet_calls import FleetCalls, FleetMetrics, TransportOfNode
from dralloc.node.simulated.profiles import (
    PROFILE_LABEL,
    FleetProfile,
    SimulatedNode,
    classes_of,
    nodes_of,
    shared_slices,
)
from dralloc.node.simulated.shared_heartbeat import SharedHeartbeat, run_concurrently
from dralloc.node.simulated.simulated_pods import SimulatedPods
from dralloc.node.timings import DEFAULT_TIMINGS, Timings, retry_until_done, try_within
from dralloc.primitives.clock import Clock
from dralloc.primitives.errors import AlreadyExists, NotFound
from dralloc.primitives.features import FeatureGates
from dralloc.primitives.metrics import exposition

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSettings:
    """`count` nodes of one profile.

    They share one lease, which our controllers know. With `beats` each also has one of its own, as other controllers require.
    """

    profile: FleetProfile
    profile_name: str
    count: int
    prefix: str = "fake"
    beats: bool = False
    timings: Timings = DEFAULT_TIMINGS
    gates: FeatureGates = field(default_factory=FeatureGates.defaults)


class Fleet:
    """The simulated nodes: `publish` creates their objects, `run` also runs their pods."""

    def __init__(
        self,
        transport: Transport,
        settings: FleetSettings,
        clock: Clock,
        *,
        transport_of_node: TransportOfNode | None = None,
    ) -> None:
        self._fleet_calls = FleetCalls(transport, transport_of_node)
        self._calls = self._fleet_calls.shared
        self._settings = settings
        self._clock = clock
        self._since = clock.now()
        self.names: frozenset[str] = frozenset(f"{settings.prefix}-{number}" for number in range(settings.count))
        lease = f"simulated-nodes-{settings.prefix}"
        self._beats = SharedHeartbeat(
            self._calls, lease, clock, settings.timings, lambda name: self._heartbeat(NodeShape(name=name))
        )
        # The revision before the publication.
        self._published_after = 0
        self._pods = SimulatedPods(self._fleet_calls, clock, settings.timings, settings.gates, self.names)

    @property
    def metrics(self) -> FleetMetrics:
        return self._pods.metrics

    async def metrics_text(self) -> str:
        return exposition(self.metrics.all())

    async def run(self, on_ready: Callable[[], None] = lambda: None) -> None:
        """Publish everything and run pods until cancelled; then mark the nodes not ready."""
        timings = self._settings.timings
        try:
            await self.come_up()
            async with asyncio.TaskGroup() as tasks:
                await self._pods.start(tasks)
                self.start_heartbeats(tasks)
                on_ready()
        finally:
            await try_within("cannot mark all nodes as not ready", self._leave(), timings.leave_s)

    async def come_up(self) -> None:
        """Publish everything, retrying until the API server is reachable."""
        self._since = self._clock.now()
        failure, backoff = f"cannot publish all of {self._settings.count} nodes", self._settings.timings.connect_backoff
        await retry_until_done(failure, self.publish, backoff)

    # --- Publishing -----------------------------------------------------------------------------------------------

    async def publish(self) -> None:
        """Create or update classes, nodes and slices as the profile says. A second call changes nothing."""
        profile, count, prefix = self._settings.profile, self._settings.count, self._settings.prefix
        existing = await self._existing_slices()
        for item in classes_of(profile):
            await _create_unless_there(self._calls, resource_for(DeviceClass), item)
        nodes = nodes_of(profile, count, prefix)
        await run_concurrently(self._publish_node(node, existing) for node in nodes)
        pools = groupby(map(self._marked, shared_slices(profile, count, prefix)), key=PoolId.of_slice)
        await run_concurrently(self._publish_pool(list(slices), existing) for _, slices in pools)

    async def _publish_node(self, node: SimulatedNode, existing: Mapping[PoolId, Sequence[ResourceSlice]]) -> None:
        labels = {**node.shape.labels, PROFILE_LABEL: self._settings.profile_name}
        annotations = {SHARED_LEASE: self._beats.lease}
        shape = NodeShape(name=node.shape.name, labels=labels, annotations=annotations, capacity=node.shape.capacity)
        uid = await self._heartbeat(shape).register()
        owner = OwnerReference(api_version="v1", kind="Node", name=shape.name, uid=uid, controller=True)
        slices = [self._marked(item, owner) for item in node.slices]
        for _, pool in groupby(slices, key=PoolId.of_slice):
            await self._publish_pool(list(pool), existing)

    async def _publish_pool(
        self, slices: Sequence[ResourceSlice], existing: Mapping[PoolId, Sequence[ResourceSlice]]
    ) -> None:
        wanted = WantedPool(
            slices=tuple(item.spec for item in slices), metadata=tuple(item.metadata for item in slices)
        )
        resource = resource_for(ResourceSlice)
        for action in plan_pool(wanted, existing.get(PoolId.of_slice(slices[0]), ())):
            match action:
                case CreateSlice(_, item):
                    await _create_unless_there(self._calls_for(item), resource, item)
                case UpdateSlice(_, item):
                    await self._calls_for(item).replace(resource, item)
                case DeleteSlice(item):
                    with suppress(NotFound):
                        await self._calls_for(item).delete(resource, key_of(item))

    def _calls_for(self, item: ResourceSlice) -> ApiCalls:
        """A node publishes its own slices; those of devices that several nodes reach are the fleet's."""
        node = item.spec.node_name
        return self._fleet_calls.of_node(node) if node else self._calls

    async def _existing_slices(self) -> dict[PoolId, list[ResourceSlice]]:
        """The slices that were published before, by pool."""
        slices, revision = await self._calls.list_all(resource_for(ResourceSlice), label_selector=PROFILE_LABEL)
        self._published_after = int(revision)
        found: dict[PoolId, list[ResourceSlice]] = {}
        for item in slices:
            found.setdefault(PoolId.of_slice(item), []).append(item)
        return found

    def _marked(self, item: ResourceSlice, owner: OwnerReference | None = None) -> ResourceSlice:
        metadata = msgspec.structs.replace(
            item.metadata,
            labels={PROFILE_LABEL: self._settings.profile_name},
            owner_references=(owner,) if owner is not None else (),
        )
        return msgspec.structs.replace(item, metadata=metadata)

    # --- Heartbeats -----------------------------------------------------------------------------------------------

    def start_heartbeats(self, tasks: asyncio.TaskGroup) -> None:
        """Show that the nodes are alive, in tasks of the group."""
        tasks.create_task(self._beats.run())
        selector = f"{PROFILE_LABEL}={self._settings.profile_name}"
        # A restored backup since then may not have what was published.
        tasks.create_task(self._beats.watch_nodes(selector, self.names, since=self._published_after))
        if self._settings.beats:
            tasks.create_task(self._beat_each())

    async def _beat_each(self) -> None:
        """Renew the leases of all nodes at every heartbeat."""
        heartbeats = [self._heartbeat(NodeShape(name=name)) for name in self.names]
        while True:
            started = asyncio.get_running_loop().time()
            await run_concurrently(heartbeat.beat_once() for heartbeat in heartbeats)
            took_s = asyncio.get_running_loop().time() - started
            if took_s > self._settings.timings.lease_s:
                _logger.warning(
                    "renewing %d leases took %.0f s, longer than they last: nodes will become not ready",
                    len(heartbeats),
                    took_s,
                )
            await asyncio.sleep(max(self._settings.timings.heartbeat_s - took_s, 0.0))

    async def _leave(self) -> None:
        """Mark the nodes not ready, except those that another process has taken over; the taints of all come first."""
        nodes, _ = await self._calls.list_all(resource_for(Node), label_selector=PROFILE_LABEL)
        since = print_timestamp(self._since)
        ours = [
            node
            for node in nodes
            if node.metadata.name in self.names
            and any(each.type == "Ready" and each.last_transition_time == since for each in node.status.conditions)
        ]
        await run_concurrently(map(self._keep_pods_away, ours))
        await run_concurrently(map(self._leave_node, ours))

    async def _keep_pods_away(self, node: Node) -> None:
        with suppress(NotFound):
            await self._heartbeat(NodeShape(name=node.metadata.name)).keep_pods_away(node)

    async def _leave_node(self, node: Node) -> None:
        with suppress(NotFound):
            await self._heartbeat(NodeShape(name=node.metadata.name)).leave()

    def _heartbeat(self, shape: NodeShape) -> NodeHeartbeat:
        calls, timings = self._fleet_calls.of_node(shape.name), self._settings.timings
        return NodeHeartbeat(calls, shape, self._clock, timings, since=self._since, registrar=self._calls)


async def _create_unless_there(calls: ApiCalls, resource: Any, item: Any) -> None:
    with suppress(AlreadyExists):
        await calls.create(resource, item)
