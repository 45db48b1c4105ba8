"""Holds the leases of drivers: takes, renews and hands them over, and says whose pools may be allocated from.

A driver is *open* while we may allocate from its pools. It opens after we hold its lease and have seen every allocation that was written before; it
closes before another scheduler can hold the lease: when we give it up and our last write is done, or when renewals fail for too long. What a
delayed write of a dead scheduler could still do is found by the collision check (`bind/collisions.py`), or refused by a server that guards devices.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection

from dralloc.api.coordination_v1 import Lease
from dralloc.client.api_calls import ApiCalls
from dralloc.client.known_resources import resource_for
from dralloc.client.lease_terms import Seen
from dralloc.client.transport import TransportError
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
