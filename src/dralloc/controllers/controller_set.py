"""All controllers, or some of them, over one connection: watch, wait until everything is known, work.

A term of being in charge begins with nothing but what the server says and leaves nothing behind but its metrics, so
it does not matter who was in charge before, or how that ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from dralloc.api.coordination_v1 import Lease
from dralloc.client.api_calls import ApiCalls
from dralloc.client.known_resources import resource_for
from dralloc.client.leader_election import LeaderElection
from dralloc.client.transport import Transport
from dralloc.client.typed_resource import ObjectKey
from dralloc.controllers.claim_lifecycle.controller import ClaimLifecycleController
from dralloc.controllers.claim_templates.controller import ClaimTemplatesController
from dralloc.controllers.controller_context import Setup
from dralloc.controllers.controller_loop import Controller
from dralloc.controllers.jobs.controller import JobController
from dralloc.controllers.metrics import ControllerMetrics
from dralloc.controllers.quota.controller import QuotaController
from dralloc.controllers.shared_informers import Copies, Watched
from dralloc.controllers.taint_eviction.controller import TaintEvictionController
from dralloc.primitives.clock import Clock
from dralloc.primitives.features import FeatureGates

LEASE: Final = ObjectKey("kube-system", "dralloc-controllers")
FIELD_MANAGER: Final = "dralloc-controllers"

CONTROLLERS: Final[Mapping[str, Callable[[Setup], Controller[Any, Any]]]] = {
    "claim-templates": ClaimTemplatesController,
    "claim-lifecycle": ClaimLifecycleController,
    "taint-eviction": TaintEvictionController,
    "quota": QuotaController,
    "jobs": JobController,
}

# Without its feature, a controller has nothing to do.
_NEEDS: Final = {"taint-eviction": "DRADeviceTaints"}


class Controllers:
    """The chosen controllers of one process."""

    def __init__(
        self,
        transport: Transport,
        *,
        clock: Clock,
        gates: FeatureGates,
        metrics: ControllerMetrics | None = None,
        only: Sequence[str] = tuple(CONTROLLERS),
    ) -> None:
        self._transport = transport
        self._clock = clock
        self._gates = gates
        self.metrics = metrics or ControllerMetrics()
        self._names = [name for name in only if name not in _NEEDS or _NEEDS[name] in gates]

    async def run(self) -> None:
        """One term: work until cancelled."""
        watched = Watched(ApiCalls(self._transport, field_manager=FIELD_MANAGER))
        controllers = [CONTROLLERS[name](self._setup(watched)) for name in self._names]
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(watched.run())
                for controller in controllers:
                    group.create_task(controller.run())
        finally:
            for controller in controllers:
                controller.queue.close()

    def _setup(self, watched: Watched) -> Setup:
        return Setup(
            transport=self._transport,
            watched=Copies(watched),
            clock=self._clock,
            gates=self._gates,
            metrics=self.metrics,
        )

    async def run_elected(self, identity: str) -> None:
        """Be in charge whenever nobody else is."""
        calls = ApiCalls(self._transport, field_manager=FIELD_MANAGER)
        election = LeaderElection(calls, resource_for(Lease), self.lease, identity=identity, clock=self._clock)
        await election.run(self.run)

    @property
    def lease(self) -> ObjectKey:
        """What processes compete for that run the same controllers; those that run others are no competition."""
        if set(self._names) == set(CONTROLLERS):
            return LEASE
        return ObjectKey(LEASE.namespace, "-".join((LEASE.name, *sorted(self._names))))

    async def close(self) -> None:
        await self._transport.close()
