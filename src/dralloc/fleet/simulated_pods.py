"""The pods of simulated nodes: they run for as long as their annotations say, and do nothing.

All nodes share one watch of pods and one of claims. A node is an entry in a set, a pod a few small values, a running container at most
a timer, so the cost depends on the number of changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator

from dralloc.api.core_v1 import Event
from dralloc.api.resource_v1 import ResourceClaim
from dralloc.client.event_recorder import EventRecorder
from dralloc.client.informer import Informer
from dralloc.client.known_resources import resource_for
from dralloc.client.reflector import Reflector
from dralloc.fleet.checked_claims import CheckedClaims
from dralloc.fleet.fleet_calls import FIELD_MANAGER, FleetCalls
from dralloc.fleet.metrics import FleetMetrics
from dralloc.fleet.shared_heartbeat import CONCURRENT_REQUESTS
from dralloc.node.pod_sync import PodSync, PodSyncContext
from dralloc.node.pod_view import NODE_PODS, NodePod
from dralloc.node.simulated_runtime import SimulatedRuntime
from dralloc.node.timings import Timings
from dralloc.primitives.clock import Clock
from dralloc.primitives.features import FeatureGates


class SimulatedPods:
    """Runs the pods of these nodes, and of nodes that are added."""

    def __init__(
        self, calls: FleetCalls, clock: Clock, timings: Timings, gates: FeatureGates, nodes: Iterable[str] = ()
    ) -> None:
        self._calls = calls.shared
        self._nodes = set(nodes)
        self._pods: Informer[NodePod] = Informer()
        self._claims: Informer[ResourceClaim] = Informer()
        self.metrics = FleetMetrics(self._nodes.__len__, self._phases)
        checked = CheckedClaims(self._claims, gates)
        self._events = EventRecorder(calls.shared, resource_for(Event), component=FIELD_MANAGER, clock=clock)
        self._sync = PodSync(
            PodSyncContext(
                calls_of_node=calls.of_node,
                claims=checked,
                runtime=SimulatedRuntime(clock),
                events=self._events,
                clock=clock,
                timings=timings,
                shows_health=False,
            )
        )
        checked.wake_on_change(self._sync.requeue_pod)

    async def start(self, tasks: asyncio.TaskGroup) -> None:
        """Run pods in tasks of the group; returns when all existing pods are known."""
        tasks.create_task(self._events.run())
        tasks.create_task(Reflector(self._calls, resource_for(ResourceClaim), self._claims).run())
        await self._claims.synced.wait()
        tasks.create_task(Reflector(self._calls, NODE_PODS, self._pods, field_selector="spec.nodeName!=").run())
        await self._pods.synced.wait()
        self._pods.subscribe(self._changed)
        tasks.create_task(self._sync.run(CONCURRENT_REQUESTS))

    def add_node(self, name: str) -> None:
        """Run the pods of this node, too, including those that are bound to it already."""
        if name not in self._nodes:
            self._nodes.add(name)
            for pod in self._pods.all():
                if pod.spec.node_name == name:
                    self._sync.pod_changed(None, pod)

    def _phases(self) -> Iterator[str]:
        return (pod.status.phase for pod in self._pods.all() if pod.spec.node_name in self._nodes)

    def _changed(self, before: NodePod | None, after: NodePod | None) -> None:
        pod = after or before
        if pod is not None and pod.spec.node_name in self._nodes:
            self._sync.pod_changed(before, after)
