"""Connects the leases of drivers with a scheduler: pools enter and leave its view, and its waiting pods ask for them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable

from dralloc.client.api_calls import ApiCalls
from dralloc.client.known_resources import resource_for
from dralloc.client.lease_terms import Seen
from dralloc.client.transport import TransportError
from dralloc.devices.identity import ClaimId, PoolId
from dralloc.kube.coordination_v1 import Lease
from dralloc.kube.resource_v1 import AllocationResult
from dralloc.primitives.clock import Clock
from dralloc.primitives.errors import AlreadyExists, ApiError, Conflict
from dralloc.scheduler.ownership.lease_rules import (
    DRIVER_LABEL,
    LeaseStep,
    PoolLeaseSettings,
    asked_driver,
    asked_lease,
    given_lease,
    held_lease,
    new_lease,
    next_step,
    released_lease,
)
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


# --- Pool leases ----------------------------------------------------------------------------------------------------
# Holds the leases of drivers: takes, renews and hands them over, and says whose pools may be allocated from.
#
# A driver is *open* while we may allocate from its pools. It opens after we hold its lease and have seen every
# allocation that was written before; it closes before another scheduler can hold the lease: when we give it up and
# our last write is done, or when renewals fail for too long. What a delayed write of a dead scheduler could still
# do is found by the collision check (`bind/binder.py`), or refused by a server that guards devices.


_logger = logging.getLogger(__name__)
_LEASES = resource_for(Lease)


class PoolLeases:
    """`see_allocations` returns when every allocation is known that was stored before the call; `is_writing` is true while an allocation from
    the driver's pools is being written; `changed` is called when a driver opens or closes.
    """

    def __init__(
        self,
        calls: ApiCalls,
        settings: PoolLeaseSettings,
        clock: Clock,
        *,
        see_allocations: Callable[[], Awaitable[None]],
        is_writing: Callable[[str], bool],
        changed: Callable[[str], None],
    ) -> None:
        self._calls = calls
        self._settings = settings
        self._clock = clock
        self._see_allocations = see_allocations
        self._is_writing = is_writing
        self._changed = changed
        self._seen: dict[str, Seen] = {}
        # The leases that we hold, by driver: since when, and the timer that closes the driver when renewals fail.
        self._held_since_s: dict[str, float] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._open: set[str] = set()

    def is_open(self, driver: str) -> bool:
        return driver in self._open

    def closed(self, drivers: Collection[str]) -> list[tuple[str, str]]:
        """The drivers that others allocate from, and by whom."""
        return [(driver, self._holder(driver)) for driver in sorted(drivers) if driver not in self._open]

    def _holder(self, driver: str) -> str:
        seen = self._seen.get(driver)
        return (seen.lease.spec.holder_identity or "") if seen is not None else ""

    async def run(self, drivers: Callable[[], Collection[str]], has_waiting_pods: Callable[[], bool]) -> None:
        """Share the drivers until cancelled; then release them."""
        try:
            while True:
                await asyncio.sleep(self._settings.timing.retry_s)
                await self.update(drivers(), asks=has_waiting_pods())
        finally:
            await self._release_all()

    async def update(self, drivers: Collection[str], *, asks: bool) -> None:
        """Look at the leases of all drivers, and take the next step with each. Failures are logged; the next call tries again."""
        try:
            async with asyncio.timeout(self._settings.timing.renew_deadline_s):
                await self._read(drivers)
                asked = asked_driver(drivers, self._held_since_s) if asks else None
                for driver in sorted(self._seen.keys() & set(drivers)):
                    await self._update(driver, asked)
        except (ApiError, TransportError, TimeoutError) as error:
            _logger.warning("cannot update the leases of drivers: %s", error or "timed out")

    async def _read(self, drivers: Collection[str]) -> None:
        namespace = self._settings.namespace
        leases, _ = await self._calls.list_all(_LEASES, namespace=namespace, label_selector=DRIVER_LABEL)
        now_s, found = _now_s(), {lease.metadata.name: lease for lease in leases}
        for driver in drivers:
            fresh = new_lease(driver, namespace)
            lease = found.get(fresh.metadata.name)
            if lease is None:
                try:
                    lease = await self._calls.create(_LEASES, fresh)
                except AlreadyExists:
                    # Another scheduler was faster; the next look shows the lease.
                    continue
            known = self._seen.get(driver)
            unchanged = known is not None and known.lease.spec == lease.spec
            self._seen[driver] = Seen(lease, known.since_s if known is not None and unchanged else now_s)
            if driver in self._held_since_s and lease.spec.holder_identity != self._settings.identity:
                self._lose(driver)

    async def _update(self, driver: str, asked: str | None) -> None:
        lease, me = self._seen[driver].lease, self._settings.identity
        step = next_step(
            self._seen[driver],
            self._settings,
            _now_s(),
            held_since_s=self._held_since_s.get(driver),
            asks=driver == asked,
            awaits_later=asked is not None and asked > driver,
        )
        if step is LeaseStep.GIVE:
            self._close(driver)
            # Renewed until our last write is done.
            step = LeaseStep.RENEW if self._is_writing(driver) else LeaseStep.GIVE
        try:
            match step:
                case LeaseStep.TAKE | LeaseStep.RENEW:
                    await self._hold(driver, lease)
                case LeaseStep.GIVE:
                    await self._write(driver, given_lease(lease, self._clock.now(), self._settings.timing))
                    self._lose(driver)
                case LeaseStep.ASK:
                    await self._write(driver, asked_lease(lease, me))
                case LeaseStep.NOTHING:
                    pass
        except Conflict:
            # Another scheduler wrote the lease; the next look shows what.
            return

    async def _hold(self, driver: str, lease: Lease) -> None:
        """Take or renew the lease. What we may do is counted from before the request."""
        sent_s = _now_s()
        await self._write(driver, held_lease(lease, self._settings, self._clock.now()))
        is_new = driver not in self._held_since_s
        self._held_since_s.setdefault(driver, sent_s)
        self._close_at(driver, sent_s + self._settings.timing.renew_deadline_s)
        if is_new:
            await self._see_allocations()
            if driver in self._held_since_s:
                self._open.add(driver)
                self._changed(driver)

    async def _write(self, driver: str, lease: Lease) -> None:
        written = await self._calls.replace(_LEASES, lease)
        self._seen[driver] = Seen(written, _now_s())

    def _close_at(self, driver: str, when_s: float) -> None:
        if (timer := self._timers.pop(driver, None)) is not None:
            timer.cancel()
        self._timers[driver] = asyncio.get_running_loop().call_at(when_s, self._lose, driver)

    def _lose(self, driver: str) -> None:
        """The lease is not ours any more, or perhaps not."""
        self._close(driver)
        self._held_since_s.pop(driver, None)
        if (timer := self._timers.pop(driver, None)) is not None:
            timer.cancel()

    def _close(self, driver: str) -> None:
        if driver in self._open:
            self._open.discard(driver)
            self._changed(driver)

    async def _release_all(self) -> None:
        """Release the leases, so that another scheduler can start at once, except where a write may still be on its way."""
        for driver in list(self._held_since_s):
            is_writing = self._is_writing(driver)
            self._lose(driver)
            if not is_writing:
                try:
                    await self._calls.replace(_LEASES, released_lease(self._seen[driver].lease))
                except (ApiError, TransportError):
                    continue


def _now_s() -> float:
    return asyncio.get_running_loop().time()
