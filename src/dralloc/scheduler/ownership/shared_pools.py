"""Connects the leases of drivers with a scheduler: pools enter and leave its view, and its waiting pods ask for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Hashable, Iterable

from dralloc.api.resource_v1 import AllocationResult
from dralloc.client.api_calls import ApiCalls
from dralloc.devices.identity import ClaimId, PoolId
from dralloc.primitives.clock import Clock
from dralloc.scheduler.ownership.lease_rules import PoolLeaseSettings
from dralloc.scheduler.ownership.pool_leases import PoolLeases
from dralloc.scheduler.state.cluster_events import ClusterEvent
from dralloc.scheduler.state.cluster_state import ClusterState
from dralloc.scheduler.state.watches import Watches


class SharedPools:
    """`selects_pool` is true for the pools that this scheduler is configured for; `wake` wakes waiting pods."""

    def __init__(
        self,
        calls: ApiCalls,
        settings: PoolLeaseSettings,
        clock: Clock,
        *,
        cluster: ClusterState,
        watches: Watches,
        selects_pool: Callable[[PoolId], bool],
        wake: Callable[[Collection[ClusterEvent]], None],
    ) -> None:
        self._cluster = cluster
        self._watches = watches
        self._selects_pool = selects_pool
        self._wake = wake
        self._leases = PoolLeases(
            calls,
            settings,
            clock,
            see_allocations=watches.see_claims,
            is_writing=self._is_writing,
            changed=self._driver_changed,
        )
        # New allocations that are being written, by pod.
        self._writing: dict[Hashable, dict[ClaimId, AllocationResult]] = {}
        # Pods that were rejected without a look at all drivers.
        self._short: set[Hashable] = set()

    def may_allocate_from(self, pool_id: PoolId) -> bool:
        return self._leases.is_open(pool_id.driver)

    async def start(self, tasks: asyncio.TaskGroup) -> None:
        """Share drivers in a task of the group; returns after the first try to get them all."""
        await self._leases.update(self._drivers(), asks=False)
        tasks.create_task(self._leases.run(self._drivers, lambda: bool(self._short)))

    def begin_write(self, pod: Hashable, allocations: Iterable[tuple[ClaimId, AllocationResult]]) -> None:
        self._short.discard(pod)
        self._writing[pod] = dict(allocations)

    def end_write(self, pod: Hashable) -> None:
        self._writing.pop(pod, None)

    def forget(self, pod: Hashable) -> None:
        self._short.discard(pod)

    def rejected(self, pod: Hashable) -> str:
        """Records that the pod got no devices; returns why it may get some later, or an empty text if it saw all devices."""
        closed = self._leases.closed(self._drivers())
        if not closed:
            self._short.discard(pod)
            return ""
        self._short.add(pod)
        owners = ", ".join(f"{driver} by {holder or 'no scheduler yet'}" for driver, holder in closed)
        return f"devices of these drivers are allocated by another scheduler at the moment: {owners}"

    def _drivers(self) -> Collection[str]:
        named = map(str, self._watches.slices.values("driver"))
        return [driver for driver in named if self._is_selected(driver)]

    def _is_selected(self, driver: str) -> bool:
        slices = self._watches.slices.by("driver", driver)
        return any(self._selects_pool(PoolId.of_slice(item)) for item in slices)

    def _is_writing(self, driver: str) -> bool:
        for allocations in self._writing.values():
            for claim_id, allocation in allocations.items():
                stored = self._cluster.claims.stored(claim_id)
                is_stored = stored is None or stored.status.allocation is not None
                if not is_stored and any(result.driver == driver for result in allocation.devices.results):
                    return True
        return False

    def _driver_changed(self, driver: str) -> None:
        """The driver's slices enter the view or leave it. Only devices that come can help a waiting pod."""
        events: list[ClusterEvent] = []
        for item in self._watches.slices.by("driver", driver):
            events += self._cluster.slice_changed(item, item)
        if self._leases.is_open(driver):
            self._wake(tuple(dict.fromkeys(events)))
