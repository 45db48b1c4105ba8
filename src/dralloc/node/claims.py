"""Prepares and unprepares the claims of pods by calls to their drivers.

Crash safety: a record is on disk before a driver is called for the first time, and is removed only after all its drivers have
confirmed. Drivers are called only under the lock of the claim, so no claim is prepared twice concurrently.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import replace
from enum import Enum
from typing import Protocol

from dralloc.client.transport import TransportError
from dralloc.client.typed_resource import ObjectKey, key_of
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import ResourceClaim
from dralloc.node import prepare_plan
from dralloc.node.checkpoint import PREPARE, UNPREPARE, ClaimRecord, record_of
from dralloc.node.claim_cache import ClaimCache, ClaimEntry
from dralloc.node.driver_calls import CallFailed, DriverCalls
from dralloc.node.metrics import PREPARE_RESOURCES, UNPREPARE_RESOURCES, NodeMetrics
from dralloc.primitives.errors import ApiError, NotFound

# Reads the claim from the API server.
FetchClaim = Callable[[ObjectKey], Awaitable[ResourceClaim]]


class ClaimsFailed(Exception):
    """The claims of a pod could not be prepared or unprepared; the message is for the pod's owner."""


class PodStage(Enum):
    """Whether a pod with prepared claims may use them: it does, it is being stopped, or the node is done with it."""

    ACTIVE = "active"
    ENDING = "ending"
    ENDED = "ended"


class PodClaimPreparer(Protocol):
    async def prepare(self, pod: Pod) -> None:
        """Returns when all claims of the pod are prepared; raises ClaimsFailed."""
        ...

    def is_prepared(self, pod: Pod) -> bool:
        """True if all claims of the pod are prepared for it."""
        ...

    async def is_current(self, pod: Pod) -> bool:
        """False if a claim is another one now, or has other devices than those that are prepared for the pod, completely or partly;
        raises ClaimsFailed.
        """
        ...

    async def unprepare(self, pod_uid: str) -> None:
        """Returns when no claim is prepared for the pod any more; raises ClaimsFailed."""
        ...

    def of_pod(self, pod_uid: str) -> Mapping[str, ClaimRecord]:
        """The records of the pod's claims, by claim name."""
        ...


class NodeClaims:
    """The claims of one node, prepared by drivers and recorded in the checkpoint."""

    def __init__(
        self,
        book: ClaimCache,
        calls: DriverCalls,
        metrics: NodeMetrics,
        *,
        fetch: FetchClaim,
        is_registered: Callable[[str], bool],
        stage_of_pod: Callable[[str], PodStage] = lambda _: PodStage.ACTIVE,
        may_skip: bool = False,
        for_workloads: bool = True,
        for_groups: bool = False,
    ) -> None:
        self._book = book
        self._calls = calls
        self._metrics = metrics
        self._fetch = fetch
        self._is_registered = is_registered
        self._stage_of_pod = stage_of_pod
        self._may_skip = may_skip
        self._for_workloads = for_workloads
        self._for_groups = for_groups

    def of_pod(self, pod_uid: str) -> Mapping[str, ClaimRecord]:
        return {key.name: entry.record for key, entry in self._book.of_pod(pod_uid)}

    def is_prepared(self, pod: Pod) -> bool:
        uses = prepare_plan.resolve_claims(pod)
        prepared = {key.name for key, entry in self._book.of_pod(pod.metadata.uid) if entry.is_prepared}
        return not isinstance(uses, prepare_plan.CannotPrepare) and {use.claim for use in uses} <= prepared

    async def is_current(self, pod: Pod) -> bool:
        for key, entry in self._book.of_pod(pod.metadata.uid):
            try:
                claim = await self._fetch(key)
            except NotFound:
                # Containers keep the devices of a claim that was deleted.
                continue
            except (ApiError, TransportError) as error:
                raise ClaimsFailed(f"fetch ResourceClaim {key.name}: {error}") from None
            if claim.metadata.uid != entry.record.uid or prepare_plan.has_other_devices(claim, entry):
                return False
        return True

    # --- Preparing ------------------------------------------------------------------------------------------------

    async def prepare(self, pod: Pod) -> None:
        if not pod.spec.resource_claims and pod.status.extended_resource_claim_status is None:
            return
        with self._measured(PREPARE_RESOURCES):
            claims = await self._usable_claims(pod)
            await self._finish_unpreparing(pod.metadata.uid)
            try:
                await self._release_devices(claims)
            except ClaimsFailed:
                # An old claim with the same name says more than the failure of its driver.
                self._check_entries(claims)
                raise
            async with AsyncExitStack() as stack:
                await self._book.lock(stack, [key_of(claim) for claim in claims])
                await self._prepare_locked(pod, claims)
            # Without the locks, so that pods with a common claim do not wait for each other's writes.
            await self._save()

    async def _usable_claims(self, pod: Pod) -> tuple[ResourceClaim, ...]:
        """The claims of the pod; raises ClaimsFailed unless the pod may use all of them."""
        uses = prepare_plan.resolve_claims(pod)
        if isinstance(uses, prepare_plan.CannotPrepare):
            raise ClaimsFailed(uses.text)
        claims: dict[str, ResourceClaim] = {}
        for use in uses:
            key = ObjectKey(pod.metadata.namespace, use.claim)
            try:
                claim = claims[use.claim] = await self._fetch(key)
            except (ApiError, TransportError) as error:
                raise ClaimsFailed(f"fetch ResourceClaim {use.claim}: {error}") from None
            refused = prepare_plan.check_claim(
                use,
                claim,
                pod,
                self._is_registered,
                for_workloads=self._for_workloads,
                for_groups=self._for_groups,
            )
            if refused is not None:
                raise ClaimsFailed(refused.text)
        return tuple(claims.values())

    async def _finish_unpreparing(self, pod_uid: str) -> None:
        """Ask the drivers again if the pod ended before they had confirmed, and begins again."""
        if any(entry.is_unpreparing for _, entry in self._book.of_pod(pod_uid)):
            await self.unprepare(pod_uid)

    async def _release_devices(self, claims: Sequence[ResourceClaim]) -> None:
        """Unprepare claims of ended pods that may hold the same devices: they are unprepared before they are prepared again."""
        for pod_uid in self._book.pods():
            stage = self._stage_of_pod(pod_uid)
            if stage is PodStage.ACTIVE:
                continue
            held = (entry for _, entry in self._book.of_pod(pod_uid) if prepare_plan.may_overlap(entry, claims))
            if (entry := next(held, None)) is None:
                continue
            if stage is PodStage.ENDING:
                name = entry.record.name
                raise ClaimsFailed(
                    f"devices of ResourceClaim {name} are still in use by pod {pod_uid}, which is ending"
                )
            await self.unprepare(pod_uid)

    def _check_entries(self, claims: Sequence[ResourceClaim]) -> None:
        for claim in claims:
            if refused := prepare_plan.check_entry(claim, self._book.get(key_of(claim))):
                raise ClaimsFailed(refused.text)

    async def _prepare_locked(self, pod: Pod, claims: Sequence[ResourceClaim]) -> None:
        self._check_entries(claims)
        for claim in claims:
            entry = self._book.get(key_of(claim)) or ClaimEntry(record_of(claim, may_skip=self._may_skip))
            record = entry.record.with_pod(pod.metadata.uid)
            self._book.put(key_of(claim), replace(entry, record=record, allocation=claim.status.allocation))
        open_keys = [key for claim in claims if not self._entry(key := key_of(claim)).is_prepared]
        if open_keys:
            await self._save()
            await self._call_to_prepare(open_keys, claims)

    async def _call_to_prepare(self, keys: Sequence[ObjectKey], claims: Sequence[ResourceClaim]) -> None:
        records = [self._entry(key).record for key in keys]
        shared = prepare_plan.shared_devices(claims)
        for driver in prepare_plan.skipping_drivers(records, PREPARE):
            self._metrics.prepare_skips.add(driver)
        for batch in prepare_plan.prepare_batches(records):
            try:
                prepared = await self._calls.prepare(batch.driver, batch.claims, shared.get(batch.driver, {}))
            except CallFailed as error:
                raise ClaimsFailed(str(error)) from None
            for record in batch.claims:
                key = ObjectKey(record.namespace, record.name)
                entry = self._entry(key)
                devices = prepared[record.uid]
                self._book.put(key, replace(entry, record=entry.record.with_devices(batch.driver, devices)))
        for key in keys:
            self._book.put(key, replace(self._entry(key), is_prepared=True))

    # --- Unpreparing ----------------------------------------------------------------------------------------------

    async def unprepare(self, pod_uid: str) -> None:
        keys = [key for key, _ in self._book.of_pod(pod_uid)]
        if not keys:
            return
        with self._measured(UNPREPARE_RESOURCES):
            async with AsyncExitStack() as stack:
                await self._book.lock(stack, keys)
                await self._unprepare_locked(pod_uid, keys)
            await self._save()

    async def _unprepare_locked(self, pod_uid: str, keys: Sequence[ObjectKey]) -> None:
        last_keys: list[ObjectKey] = []
        for key in keys:
            entry = self._book.get(key)
            if entry is None or pod_uid not in entry.record.pods:
                # Changed while this task waited for the locks.
                continue
            if entry.record.pods == {pod_uid}:
                self._book.put(key, replace(entry, is_prepared=False, is_unpreparing=True))
                last_keys.append(key)
            else:
                self._book.put(key, replace(entry, record=entry.record.without_pod(pod_uid)))
        await self._call_to_unprepare(last_keys)
        for key in last_keys:
            self._book.drop(key)

    async def _call_to_unprepare(self, keys: Sequence[ObjectKey]) -> None:
        records = [self._entry(key).record for key in keys]
        for driver in prepare_plan.skipping_drivers(records, UNPREPARE):
            self._metrics.unprepare_skips.add(driver)
        for batch in prepare_plan.unprepare_batches(records):
            try:
                await self._calls.unprepare(batch.driver, batch.claims)
            except CallFailed as error:
                raise ClaimsFailed(str(error)) from None

    # --- Shared steps ---------------------------------------------------------------------------------------------

    def _entry(self, key: ObjectKey) -> ClaimEntry:
        entry = self._book.get(key)
        assert entry is not None, f"{key} is locked but has no entry"
        return entry

    async def _save(self) -> None:
        try:
            await self._book.save()
        except OSError as error:
            raise ClaimsFailed(f"cannot write the node checkpoint: {error}") from None

    @contextmanager
    def _measured(self, operation: str) -> Iterator[None]:
        started, failed = time.monotonic(), "true"
        try:
            yield
            failed = "false"
        finally:
            self._metrics.operations.observe(operation, failed, value=time.monotonic() - started)
