"""The scheduler of a process: a new `Scheduler` for each term as leader, over one connection."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Final

from dralloc.client.api_calls import ApiCalls
from dralloc.client.batch_transport import BatchTransport
from dralloc.client.known_resources import resource_for
from dralloc.client.leader_election import LeaderElection
from dralloc.client.transport import Transport
from dralloc.client.typed_resource import ObjectKey
from dralloc.kube.coordination_v1 import Lease
from dralloc.kube.pod_v1 import DEFAULT_SCHEDULER
from dralloc.primitives.clock import Clock
from dralloc.scheduler.report.metrics import SchedulerMetrics
from dralloc.scheduler.scheduler import Scheduler
from dralloc.scheduler.settings import NAME, SchedulerSettings

# Nodes or pods that metrics take in before other tasks run.
FOLLOWED_AT_ONCE: Final = 20
LEASE: Final = ObjectKey("kube-system", "dralloc-scheduler")


def lease_of(names: Collection[str]) -> ObjectKey:
    """The lease of schedulers for pods with these schedulerNames: those with other pods have a leader of their own."""
    own = sorted(set(names) - {DEFAULT_SCHEDULER})
    if not own or NAME in own:
        return LEASE
    return ObjectKey(LEASE.namespace, "-".join((LEASE.name, *own)))


class SchedulerLoop:
    """Only the metrics outlive a term, so it does not matter which leader came before or how its term ended."""

    def __init__(self, transport: Transport, *, clock: Clock, settings: SchedulerSettings) -> None:
        self._transport = transport
        self._clock = clock
        self._settings = settings
        self.metrics = SchedulerMetrics()

    async def run(self) -> None:
        """Schedules until cancelled, without leader election."""
        batches = BatchTransport(self._transport)
        try:
            await Scheduler(_calls(batches), self._clock, self._settings, self.metrics).run()
        finally:
            await batches.abandon()

    async def run_elected(self, identity: str) -> None:
        """Schedules whenever this process holds the lease."""
        lease = lease_of(self._settings.names)
        election = LeaderElection(
            _calls(self._transport), resource_for(Lease), lease, identity=identity, clock=self._clock
        )
        await election.run(self.run)

    async def metrics_text(self) -> str:
        """The metrics. What they say of devices is computed a few nodes at a time, because there may be tens of thousands."""
        for number, _ in enumerate(self.metrics.follow(), 1):
            if number % FOLLOWED_AT_ONCE == 0:
                await asyncio.sleep(0)
        return self.metrics.text()

    async def close(self) -> None:
        await self._transport.close()


def _calls(transport: Transport) -> ApiCalls:
    return ApiCalls(transport, field_manager="", field_validation="Ignore")
