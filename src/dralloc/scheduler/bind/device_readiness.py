"""The wait for binding conditions: drivers make devices ready before the pod that uses them is bound."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Final, Protocol

from dralloc.devices.identity import ClaimId
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import ResourceClaim
from dralloc.primitives.clock import Clock
from dralloc.scheduler.bind.claim_writer import ClaimLost
from dralloc.scheduler.bind.write_slots import WriteSlots
from dralloc.scheduler.state.binding_conditions import (
    BINDING_TIMEOUT_S,
    DevicesFailed,
    DevicesReady,
    binding_deadline,
    readiness,
    results_with_conditions,
)
from dralloc.scheduler.state.cluster_events import ClusterEvent, claim_changed
from dralloc.scheduler.state.cluster_state import ClusterState

# Binding conditions are read again after this time even without a claim event.
RECHECK_S: Final = 60.0


class DevicesNotReady(Exception):
    """The binding conditions of a device failed or timed out; `status` is the metrics label."""

    def __init__(self, message: str, status: str) -> None:
        super().__init__(message)
        self.status = status


class ReadinessReporter(Protocol):
    """Observes the wait for binding conditions."""

    def devices_pending(self, pod: Pod, claim: ResourceClaim) -> None:
        """The wait for the claim's binding conditions begins."""

    def devices_settled(self, pod: Pod, claim: ResourceClaim, status: str, seconds: float) -> None:
        """The wait has ended with `success`, `failure`, `timeout` or `error`."""


class DeviceReadiness:
    def __init__(self, cluster: ClusterState, slots: WriteSlots, clock: Clock, reporter: ReadinessReporter) -> None:
        self._cluster = cluster
        self._slots = slots
        self._clock = clock
        self._reporter = reporter
        # By the event of a claim whose binding conditions are awaited.
        self.awaited: dict[ClusterEvent, asyncio.Event] = {}

    def notify(self, event: ClusterEvent) -> None:
        """Wakes the pods that wait for binding conditions of the claim that the event is about."""
        if (awaited := self.awaited.pop(event, None)) is not None:
            awaited.set()

    async def settle(self, pod: Pod, claim_id: ClaimId, claim: ResourceClaim) -> None:
        """Returns when the claim's devices are ready; raises `DevicesNotReady`, or `ClaimLost` if it was deallocated."""
        if not any(results_with_conditions(claim)):
            return
        self._reporter.devices_pending(pod, claim)
        started = self._clock.now()
        status = "error"
        try:
            async with self._slots.lent():
                await self._devices_ready(claim_id)
            status = "success"
        except DevicesNotReady as error:
            status = error.status
            raise
        finally:
            self._reporter.devices_settled(pod, claim, status, (self._clock.now() - started).total_seconds())

    async def _devices_ready(self, claim_id: ClaimId) -> None:
        while True:
            claim = self._cluster.claims.stored(claim_id)
            if claim is None or claim.status.allocation is None:
                raise ClaimLost(f"claim {claim_id} was deallocated while its binding conditions were pending")
            match readiness(claim):
                case DevicesReady():
                    return
                case DevicesFailed(message):
                    raise DevicesNotReady(f"claim {claim_id}: {message}", "failure")
            deadline = binding_deadline(claim)
            if deadline is not None and self._clock.now() >= deadline:
                message = f"claim {claim_id}: binding conditions were not met within {BINDING_TIMEOUT_S:g} s"
                raise DevicesNotReady(message, "timeout")
            await self._next_change(claim_id, deadline)

    async def _next_change(self, claim_id: ClaimId, deadline: datetime | None) -> None:
        """Returns when the claim has changed, at the deadline, or after `RECHECK_S`."""
        # Pods that share the claim share the event.
        awaited = self.awaited.setdefault(claim_changed(claim_id), asyncio.Event())
        left_s = (deadline - self._clock.now()).total_seconds() if deadline is not None else RECHECK_S
        try:
            async with asyncio.timeout(min(left_s, RECHECK_S)):
                await awaited.wait()
        except TimeoutError:
            return
