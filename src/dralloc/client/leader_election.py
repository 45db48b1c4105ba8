"""Leader election: of several replicas, the one that keeps renewing a Lease leads."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import msgspec

from dralloc.client.api_calls import ApiCalls
from dralloc.client.lease_terms import DEFAULT, Seen, Timing, claimed, may_take
from dralloc.client.transport import TransportError
from dralloc.client.typed_resource import ObjectKey, TypedResource
from dralloc.kube.coordination_v1 import Lease, LeaseSpec
from dralloc.kube.meta_v1 import ObjectMeta
from dralloc.primitives.clock import Clock
from dralloc.primitives.errors import AlreadyExists, ApiError, Conflict, NotFound

_logger = logging.getLogger(__name__)


class LeaderElection:
    def __init__(
        self,
        calls: ApiCalls,
        leases: TypedResource[Lease],
        key: ObjectKey,
        *,
        identity: str,
        clock: Clock,
        timing: Timing = DEFAULT,
    ) -> None:
        self._calls = calls
        self._leases = leases
        self._key = key
        self._identity = identity
        self._clock = clock
        self._timing = timing
        self._seen: Seen | None = None
        self._problem = ""

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Runs `lead` while we are the leader; cancels it when the lease is lost, and waits again.

        Returns when `lead` does, and releases the lease then and on cancellation.
        """
        while True:
            while not await self._try():
                await asyncio.sleep(self._timing.retry_s)
            leading = asyncio.ensure_future(lead())
            keeping = asyncio.ensure_future(self._keep())
            try:
                await asyncio.wait((leading, keeping), return_when=asyncio.FIRST_COMPLETED)
                if leading.done():
                    return leading.result()
            finally:
                await _cancel(leading, keeping)
                await self._release()

    async def _keep(self) -> None:
        """Renews the lease until that has failed for longer than the deadline."""
        loop = asyncio.get_running_loop()
        renewed_s = loop.time()
        while loop.time() - renewed_s < self._timing.renew_deadline_s:
            await asyncio.sleep(self._timing.retry_s)
            remaining_s = renewed_s + self._timing.renew_deadline_s - loop.time()
            try:
                async with asyncio.timeout(max(remaining_s, 0)):
                    if await self._try():
                        renewed_s = loop.time()
                    elif not self._holds():
                        return
            except TimeoutError:
                return

    async def _try(self) -> bool:
        """Takes or renews the lease; False if another replica holds it or the server cannot be reached."""
        try:
            lease = await self._read()
            now_s = asyncio.get_running_loop().time()
            if self._seen is None or self._seen.lease.spec != lease.spec:
                self._seen = Seen(lease, now_s)
            if not may_take(self._seen, self._identity, now_s):
                return False
            written = await self._calls.replace(
                self._leases, claimed(lease, self._identity, self._clock.now(), self._timing)
            )
        except (Conflict, AlreadyExists):
            # Another replica was faster.
            return False
        except (ApiError, TransportError) as error:
            self._tell(error)
            return False
        self._seen = Seen(written, now_s)
        self._problem = ""
        return True

    def _tell(self, error: Exception) -> None:
        """Logs each distinct error once: retries happen every few seconds."""
        if self._problem != str(error):
            self._problem = str(error)
            _logger.warning("leader election with lease %s: %s", self._key, error)

    async def _read(self) -> Lease:
        try:
            return await self._calls.get(self._leases, self._key)
        except NotFound:
            fresh = Lease(metadata=ObjectMeta(name=self._key.name, namespace=self._key.namespace), spec=LeaseSpec())
        try:
            return await self._calls.create(self._leases, fresh)
        except AlreadyExists:
            return await self._calls.get(self._leases, self._key)

    def _holds(self) -> bool:
        return self._seen is not None and self._seen.lease.spec.holder_identity == self._identity

    async def _release(self) -> None:
        """Releases the lease, so that another replica can start at once. Failure is harmless: the lease expires."""
        self._seen = None
        try:
            # Read the lease again: a renewal may have been cancelled after the server applied it.
            lease = await self._calls.get(self._leases, self._key)
            if lease.spec.holder_identity == self._identity:
                freed = msgspec.structs.replace(lease.spec, holder_identity=None)
                await self._calls.replace(self._leases, msgspec.structs.replace(lease, spec=freed))
        except (ApiError, TransportError):
            return


async def _cancel(*tasks: asyncio.Future[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
