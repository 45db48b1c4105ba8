"""The pods of simulated nodes: they run for as long as their annotations say, and do nothing.

All nodes share one watch of pods and one of claims. A node is an entry in a set, a pod a few small values, a running container at most
a timer, so the cost depends on the number of changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping

from dralloc.client.event_recorder import EventRecorder
from dralloc.client.informer import Informer
from dralloc.client.known_resources import resource_for
from dralloc.client.reflector import Reflector
from dralloc.client.typed_resource import ObjectKey, key_of
from dralloc.kube.core_v1 import Event
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import ResourceClaim
from dralloc.node.checkpoint import ClaimRecord
from dralloc.node.claims import ClaimsFailed
from dralloc.node.pod_sync import PodSync, PodSyncContext
from dralloc.node.pod_view import NODE_PODS, NodePod
from dralloc.node.prepare_plan import CannotPrepare, check_claim, resolve_claims
from dralloc.node.simulated.fleet_calls import FIELD_MANAGER, FleetCalls, FleetMetrics
from dralloc.node.simulated.shared_heartbeat import CONCURRENT_REQUESTS
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


# --- Checked claims -------------------------------------------------------------------------------------------------
# Claims on nodes without drivers: they pass the checks of every node, and count as prepared then.


class CheckedClaims:
    """Reads claims from an informer, so that thousands of pods cost no requests. A change of a claim wakes pods that failed on it."""

    def __init__(self, claims: Informer[ResourceClaim], gates: FeatureGates) -> None:
        self._claims = claims
        self._for_workloads = "DRAReservedForWorkloads" in gates
        self._for_groups = "DRAWorkloadResourceClaims" in gates
        self._refused: dict[ObjectKey, set[str]] = {}

    def wake_on_change(self, look_at: Callable[[str], None]) -> None:
        """Call `look_at` with the UIDs of pods whose preparation may succeed now."""

        def changed(before: ResourceClaim | None, after: ResourceClaim | None) -> None:
            item = after or before
            assert item is not None
            for pod_uid in self._refused.pop(key_of(item), ()):
                look_at(pod_uid)

        self._claims.subscribe(changed)

    async def prepare(self, pod: Pod) -> None:
        uses = resolve_claims(pod)
        if isinstance(uses, CannotPrepare):
            raise ClaimsFailed(uses.text)
        for use in uses:
            key = ObjectKey(pod.metadata.namespace, use.claim)
            claim = self._claims.get(use.claim, pod.metadata.namespace)
            refused: CannotPrepare | None = CannotPrepare(f"fetch ResourceClaim {use.claim}: not found")
            if claim is not None:
                gates = {"for_workloads": self._for_workloads, "for_groups": self._for_groups}
                refused = check_claim(use, claim, pod, lambda _: True, **gates)
            if refused is not None:
                self._refused.setdefault(key, set()).add(pod.metadata.uid)
                raise ClaimsFailed(refused.text)

    def is_prepared(self, pod: Pod) -> bool:  # noqa: ARG002 - nothing is prepared
        return True

    async def is_current(self, pod: Pod) -> bool:  # noqa: ARG002 - nothing is prepared
        return True

    async def unprepare(self, pod_uid: str) -> None:
        """A no-op: nothing is prepared."""

    def of_pod(self, pod_uid: str) -> Mapping[str, ClaimRecord]:  # noqa: ARG002 - nothing is prepared
        return {}
