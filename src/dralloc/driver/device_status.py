"""Writes `status.devices` of claims: conditions, addresses and data of prepared devices.

This is information only: pods start before it is written, and a failed write is retried.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from msgspec.structs import replace

from dralloc.client.api_calls import ApiCalls
from dralloc.client.known_resources import resource_for
from dralloc.client.typed_resource import ObjectKey, TypedResource, key_of, version_of
from dralloc.client.work_queue import Backoff, WorkQueue, work
from dralloc.devices.identity import ResultId
from dralloc.driver.checkpoint import Checkpoint
from dralloc.kube.meta_v1 import Condition
from dralloc.kube.resource_v1 import AllocatedDeviceStatus, ResourceClaim
from dralloc.kube.timestamps import print_timestamp
from dralloc.primitives.clock import Clock
from dralloc.primitives.errors import Conflict, Forbidden, Invalid, NotFound

CLAIMS: Final[TypedResource[ResourceClaim]] = resource_for(ResourceClaim)
RETRY: Final = Backoff(first_s=0.05, most_s=60.0)
# When a claim is looked at again that does not have the devices that were prepared for it.
LOOK_AGAIN_S: Final = 60.0


def plan_device_status(
    claim: ResourceClaim, said: Iterable[AllocatedDeviceStatus], now: str
) -> tuple[AllocatedDeviceStatus, ...] | None:
    """The new `status.devices` with these entries; None if nothing changes.

    Entries of other drivers are kept. Entries for devices that are not allocated to the claim are ignored.
    """
    allocated = _results(claim)
    entries = {ResultId.of(entry): entry for entry in claim.status.devices}
    for entry in said:
        if ResultId.of(entry) in allocated:
            entries[ResultId.of(entry)] = _with_times(entry, entries.get(ResultId.of(entry)), now)
    devices = tuple(entries.values())
    return None if devices == claim.status.devices else devices


def _results(claim: ResourceClaim) -> frozenset[ResultId]:
    allocation = claim.status.allocation
    return frozenset(map(ResultId.of, allocation.devices.results if allocation is not None else ()))


def _with_times(entry: AllocatedDeviceStatus, before: AllocatedDeviceStatus | None, now: str) -> AllocatedDeviceStatus:
    """A condition keeps its transition time while its status does not change."""
    known = {condition.type: condition for condition in (before.conditions or () if before is not None else ())}
    conditions = tuple(_timed(condition, known.get(condition.type), now) for condition in entry.conditions or ())
    return replace(entry, conditions=conditions or None)


def _timed(condition: Condition, before: Condition | None, now: str) -> Condition:
    if condition.last_transition_time is not None:
        return condition
    is_same = before is not None and before.status == condition.status
    return replace(condition, last_transition_time=before.last_transition_time if before and is_same else now)


class StatusWriter:
    """Writes the device status of claims from the checkpoint, with retries."""

    def __init__(
        self,
        calls: ApiCalls,
        driver: str,
        checkpoint: Checkpoint,
        *,
        clock: Clock,
        on_problem: Callable[[Exception], None],
    ) -> None:
        self._calls = calls
        self._driver = driver
        self._checkpoint = checkpoint
        self._clock = clock
        self._on_problem = on_problem
        self._queue: WorkQueue[str] = WorkQueue(RETRY)

    def add(self, claim_uid: str) -> None:
        self._queue.add(claim_uid)

    async def run(self) -> None:
        """Write until cancelled, beginning with all claims of the checkpoint."""
        async with asyncio.TaskGroup() as group:
            group.create_task(work(self._queue, self._write, self._fail))
            for record in await asyncio.to_thread(self._checkpoint.all):
                self.add(record.reference.uid)

    async def _write(self, uid: str) -> None:
        record = await asyncio.to_thread(self._checkpoint.read, uid)
        said = [device.status(self._driver) for device in record.devices if device.has_status] if record else []
        if record is None or not record.is_prepared or not said:
            return
        try:
            await self._write_claim(key_of(record.claim), uid, said)
        except NotFound:
            return
        except (Forbidden, Invalid) as error:
            # A retry would not change the answer.
            self._on_problem(error)

    async def _write_claim(self, key: ObjectKey, uid: str, said: list[AllocatedDeviceStatus]) -> None:
        claim = await self._calls.get(CLAIMS, key)
        if claim.metadata.uid != uid:
            return
        if not _results(claim).issuperset(map(ResultId.of, said)):
            # A restored backup has undone the allocation. A scheduler may make the same again, and what is prepared stays so.
            self._queue.add_after(uid, LOOK_AGAIN_S)
        devices = plan_device_status(claim, said, print_timestamp(self._clock.now()))
        if devices is None:
            return
        # Patch only the list, and only if the claim has not changed, so that unknown fields are kept.
        patch = {"metadata": version_of(claim), "status": {"devices": devices}}
        await self._calls.patch(CLAIMS, key, patch, subresource="status")

    def _fail(self, _uid: str, error: Exception) -> None:
        if not isinstance(error, Conflict):
            self._on_problem(error)
