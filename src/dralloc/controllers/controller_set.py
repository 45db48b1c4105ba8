"""The controllers of one process, all or some of them, with shared informers and leader election.

A leader starts from what the server has and keeps nothing but metrics when its term ends, so it does not matter
which process was the leader before, or how its term ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from dralloc.client.api_calls import ApiCalls
from dralloc.client.batch_transport import BatchTransport
from dralloc.client.known_resources import resource_for
from dralloc.client.leader_election import LeaderElection
from dralloc.client.transport import Transport
from dralloc.client.typed_resource import ObjectKey
from dralloc.controllers.claim_lifecycle.controller import ClaimLifecycleController
from dralloc.controllers.claim_templates.controller import ClaimTemplatesController
from dralloc.controllers.controller_context import ControllerContext
from dralloc.controllers.controller_loop import Controller
from dralloc.controllers.ephemeral_volumes import EphemeralVolumesController
from dralloc.controllers.jobs.controller import JobController
from dralloc.controllers.metrics import ControllerMetrics
from dralloc.controllers.node_lifecycle.controller import NodeLifecycleController
from dralloc.controllers.node_lifecycle.plan import DEFAULT_SETTINGS, NodeLifecycleSettings
from dralloc.controllers.node_taint_eviction import NodeTaintEvictionController
from dralloc.controllers.persistent_volumes import PersistentVolumesController
from dralloc.controllers.pod_garbage_collector import PodGarbageCollector
from dralloc.controllers.pod_group_protection import PodGroupProtectionController
from dralloc.controllers.pool_status import PoolStatusController
from dralloc.controllers.quota import QuotaController
from dralloc.controllers.shared_informers import ControllerInformers, SharedInformers
from dralloc.controllers.taint_eviction.controller import TaintEvictionController
from dralloc.kube.coordination_v1 import Lease
from dralloc.primitives.clock import Clock
from dralloc.primitives.features import FeatureGates

LEASE: Final = ObjectKey("kube-system", "dralloc-controllers")
FIELD_MANAGER: Final = "dralloc-controllers"

CONTROLLERS: Final[Mapping[str, Callable[[ControllerContext], Controller[Any, Any]]]] = {
    "claim-templates": ClaimTemplatesController,
    "claim-lifecycle": ClaimLifecycleController,
    "taint-eviction": TaintEvictionController,
    "pod-group-protection": PodGroupProtectionController,
    "quota": QuotaController,
    "pool-status": PoolStatusController,
    "jobs": JobController,
    "persistent-volumes": PersistentVolumesController,
    "ephemeral-volumes": EphemeralVolumesController,
    "node-lifecycle": NodeLifecycleController,
    "node-taint-eviction": NodeTaintEvictionController,
    "pod-garbage-collector": PodGarbageCollector,
}

# The controllers for clusters whose nodes are objects that no agent keeps alive, as in benchmarks and simulations.
WITHOUT_NODES: Final = tuple(
    name for name in CONTROLLERS if name not in ("node-lifecycle", "node-taint-eviction", "pod-garbage-collector")
)

# Controllers that run only if a feature gate is on.
_NEEDS: Final = {
    "taint-eviction": "DRADeviceTaints",
    "pool-status": "DRAResourcePoolStatus",
    "pod-group-protection": "GenericWorkload",
}


class ControllerSet:
    def __init__(
        self,
        transport: Transport,
        *,
        clock: Clock,
        gates: FeatureGates,
        metrics: ControllerMetrics | None = None,
        only: Sequence[str] = tuple(CONTROLLERS),
        nodes: NodeLifecycleSettings = DEFAULT_SETTINGS,
    ) -> None:
        self._transport = transport
        self._clock = clock
        self._gates = gates
        self._nodes = nodes
        self.metrics = metrics or ControllerMetrics()
        # Gates do not count for the lease: processes with other gates must not lead at the same time.
        self._wanted = tuple(only)
        self._names = [name for name in only if name not in _NEEDS or _NEEDS[name] in gates]

    async def run(self) -> None:
        """Run for one term of leadership, until cancelled. Raises HistoryChanged in a group."""
        batches = BatchTransport(self._transport)
        informers = SharedInformers(ApiCalls(batches, field_manager=FIELD_MANAGER))
        controllers = [CONTROLLERS[name](self._context(batches, informers)) for name in self._names]
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(informers.run())
                for controller in controllers:
                    group.create_task(controller.run())
        finally:
            for controller in controllers:
                controller.queue.close()
            await batches.abandon()

    def _context(self, transport: Transport, informers: SharedInformers) -> ControllerContext:
        return ControllerContext(
            transport=transport,
            informers=ControllerInformers(informers),
            clock=self._clock,
            gates=self._gates,
            metrics=self.metrics,
            nodes=self._nodes,
        )

    async def run_elected(self, identity: str) -> None:
        """Run whenever this process is the leader."""
        calls = ApiCalls(self._transport, field_manager=FIELD_MANAGER)
        election = LeaderElection(calls, resource_for(Lease), self.lease, identity=identity, clock=self._clock)
        await election.run(self.run)

    @property
    def lease(self) -> ObjectKey:
        """The lease of this set of controllers. Processes that run other controllers use other leases."""
        if set(self._wanted) == set(CONTROLLERS):
            return LEASE
        return ObjectKey(LEASE.namespace, "-".join((LEASE.name, *sorted(self._wanted))))

    async def metrics_text(self) -> str:
        return self.metrics.text()

    async def close(self) -> None:
        await self._transport.close()
