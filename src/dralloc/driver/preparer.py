"""Prepares and unprepares claims: reads the claim, decides, writes the checkpoint, calls the driver, writes CDI files.

Calls never overlap, neither within a process nor with another instance of the driver on the node. A call that the kubelet cancels
continues to its end, and the next call finds its result.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence, Set
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeVar

from dralloc.atomic_files import remove_file, write_atomically
from dralloc.client.api_calls import ApiCalls
from dralloc.client.known_resources import resource_for
from dralloc.client.transport import TransportError
from dralloc.client.typed_resource import ObjectKey, TypedResource
from dralloc.driver.checkpoint import Checkpoint, PreparationRecord, is_uid
from dralloc.driver.claims import (
    AllocatedClaim,
    ClaimReference,
    PreparedDevice,
    allocated_claim,
    find_prepared_faults,
    with_own_devices,
)
from dralloc.driver.driver import Driver, call
from dralloc.driver.metrics import DriverMetrics
from dralloc.driver.vendor_errors import text_of, told
from dralloc.kube.resource_v1 import DeviceRequestAllocationResult, ResourceClaim
from dralloc.node.kubelet.cdi import encode_spec
from dralloc.node.kubelet.checkpoint_file import BadCheckpoint
from dralloc.primitives.errors import ApiError, NotFound

CLAIMS: Final[TypedResource[ResourceClaim]] = resource_for(ResourceClaim)

_logger = logging.getLogger(__name__)

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class ReadyDevice:
    """A prepared device and all its CDI names."""

    device: PreparedDevice
    cdi_device_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a claim could not be prepared or unprepared."""

    reason: str


class ClaimFailed(Exception):
    """Ends the work on one claim; the message is the answer to the kubelet."""


class Preparer:
    """The claims of one driver on one node."""

    def __init__(
        self,
        driver: Driver,
        *,
        calls: ApiCalls,
        checkpoint: Checkpoint,
        cdi: ClaimCdiFiles,
        lock: Callable[[], AbstractAsyncContextManager[None]],
        boot_id: str,
        metrics: DriverMetrics,
        published: Callable[[], Set[tuple[str, str]]],
        on_prepared: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._driver = driver
        self._calls = calls
        self._checkpoint = checkpoint
        self._cdi = cdi
        self._lock = lock
        self._boot_id = boot_id
        self._metrics = metrics
        self._published = published
        self._on_prepared = on_prepared
        self._running: set[asyncio.Task[Any]] = set()
        # For each prepare call, the claims that were not unprepared since it began.
        self._wanted: list[set[str]] = []

    async def prepare(self, references: Sequence[ClaimReference]) -> Mapping[str, tuple[ReadyDevice, ...] | Failure]:
        """By claim UID, the devices or the failure."""
        wanted = {reference.uid for reference in references}
        self._wanted.append(wanted)
        try:
            # Without the lock, because the API server may be slow.
            fetched = await asyncio.gather(*map(self._fetch, references))
        except BaseException:
            self._forget(wanted)
            raise
        return await self._run_to_completion(self._prepare_wanted(references, fetched, wanted))

    async def unprepare(self, references: Sequence[ClaimReference]) -> Mapping[str, Failure | None]:
        """By claim UID, the failure, if any. Prepare calls that began before do not prepare these claims any more."""
        for wanted in self._wanted:
            wanted.difference_update(reference.uid for reference in references)
        return await self._run_to_completion(self._unprepare_all(references))

    async def settle(self) -> None:
        """Wait for cancelled calls that still run."""
        await asyncio.gather(*self._running, return_exceptions=True)

    def _forget(self, wanted: set[str]) -> None:
        self._wanted = [other for other in self._wanted if other is not wanted]

    async def _run_to_completion(self, work: Coroutine[Any, Any, Result]) -> Result:
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return await asyncio.shield(task)

    async def _fetch(self, reference: ClaimReference) -> FetchedClaim:
        try:
            return await self._calls.get(CLAIMS, ObjectKey(reference.namespace, reference.name))
        except NotFound:
            return Missing()
        except (ApiError, TransportError) as error:
            return Unreachable(str(error))

    # --- Preparing ------------------------------------------------------------------------------------------------

    async def _prepare_wanted(
        self, references: Sequence[ClaimReference], fetched: Sequence[FetchedClaim], wanted: set[str]
    ) -> Mapping[str, tuple[ReadyDevice, ...] | Failure]:
        try:
            return await self._prepare_all(references, fetched, wanted)
        finally:
            self._forget(wanted)

    async def _prepare_all(
        self, references: Sequence[ClaimReference], fetched: Sequence[FetchedClaim], wanted: set[str]
    ) -> Mapping[str, tuple[ReadyDevice, ...] | Failure]:
        answers: dict[str, tuple[ReadyDevice, ...] | Failure] = {}
        async with self._lock():
            for reference, claim in zip(references, fetched, strict=True):
                try:
                    if reference.uid not in wanted:
                        raise ClaimFailed("the claim was unprepared before this call could prepare it")
                    devices = await self._prepare_one(reference, claim)
                    answers[reference.uid] = tuple(map(ReadyDevice, devices, self._cdi.ids(reference.uid, devices)))
                except Exception as error:  # noqa: BLE001 - an exception of the driver fails one claim only
                    answers[reference.uid] = self._failure("prepare", reference, error)
                else:
                    self._count("prepare", "success")
        return answers

    async def _prepare_one(self, reference: ClaimReference, fetched: FetchedClaim) -> tuple[PreparedDevice, ...]:
        record = await asyncio.to_thread(self._checkpoint.read, reference.uid)
        known = await asyncio.to_thread(self._checkpoint.all)
        others = tuple(other for other in known if other.reference.uid != reference.uid)
        situation = PrepareContext(
            driver=self._driver.name, boot_id=self._boot_id, published=self._published(), record=record, others=others
        )
        match decide_prepare(reference, fetched, situation):
            case Refuse(reason):
                raise ClaimFailed(reason)
            case Ignore():
                return ()
            case Repeat(record):
                # The CDI directory may have been emptied since.
                if not self._cdi.exists(reference.uid):
                    await _change_file(self._cdi.write, reference.uid, record.devices)
                return record.devices
            case Prepare(claim, before, release):
                if before is not None and release:
                    await self._release(before, others)
                    before = None
                return await self._call_prepare(claim, before, others)

    async def _call_prepare(
        self, claim: ResourceClaim, before: PreparationRecord | None, others: tuple[PreparationRecord, ...]
    ) -> tuple[PreparedDevice, ...]:
        allocated = allocated_claim(claim, self._driver.name)
        if not allocated.devices:
            return ()
        remembered = before.devices if before is not None else ()
        own = with_own_devices(claim, self._driver.name)
        begun = PreparationRecord(claim=own, boot_id=self._boot_id, devices=remembered)
        await _change_file(self._checkpoint.write, begun)
        told = replace(allocated, prepared=remembered, others=self._allocated(others))
        devices = _prepared_devices(await call(self._driver.prepare, told))
        if faults := tuple(find_prepared_faults(allocated, devices)):
            raise ClaimFailed(f"driver {self._driver.name} returned invalid devices: {'; '.join(faults)}")
        await _change_file(self._cdi.write, allocated.uid, devices)
        done = replace(begun, is_prepared=True, devices=devices)
        await _change_file(self._checkpoint.write, done)
        self._on_prepared(allocated.uid)
        return devices

    # --- Unpreparing ----------------------------------------------------------------------------------------------

    async def _unprepare_all(self, references: Sequence[ClaimReference]) -> Mapping[str, Failure | None]:
        answers: dict[str, Failure | None] = {}
        async with self._lock():
            for reference in references:
                try:
                    record = await asyncio.to_thread(self._checkpoint.read, reference.uid)
                    if record is not None:
                        known = await asyncio.to_thread(self._checkpoint.all)
                        await self._release(
                            record, tuple(other for other in known if other.reference.uid != reference.uid)
                        )
                except Exception as error:  # noqa: BLE001 - an exception of the driver fails one claim only
                    answers[reference.uid] = self._failure("unprepare", reference, error)
                else:
                    answers[reference.uid] = None
                    self._count("unprepare", "success")
        return answers

    async def _release(self, record: PreparationRecord, others: tuple[PreparationRecord, ...]) -> None:
        uid = record.reference.uid
        told = replace(record.allocated(self._driver.name), others=self._allocated(others))
        await call(self._driver.unprepare, told)
        await _change_file(self._cdi.remove, uid)
        await _change_file(self._checkpoint.remove, uid)

    def _allocated(self, records: Sequence[PreparationRecord]) -> tuple[AllocatedClaim, ...]:
        return tuple(record.allocated(self._driver.name) for record in records)

    def _failure(self, operation: str, reference: ClaimReference, error: Exception) -> Failure:
        self._count(operation, "failure")
        if isinstance(error, ClaimFailed | BadCheckpoint):
            _logger.warning("%s %s: %s", operation, reference, error)
            return Failure(str(error))
        _logger.error("%s %s: %s", operation, reference, text_of(error), exc_info=error)
        return Failure(told(error))

    def _count(self, operation: str, outcome: str) -> None:
        self._metrics.claims.add(self._driver.name, operation, outcome)


async def _change_file(change: Callable[..., None], *arguments: object) -> None:
    """Write or remove a file in a thread. A full disk is no fault of the driver: it is told in one line."""
    try:
        await asyncio.to_thread(change, *arguments)
    except OSError as error:
        raise ClaimFailed(f"cannot write {error.filename}: {error.strerror}") from None


def _prepared_devices(returned: Any) -> tuple[PreparedDevice, ...]:
    """What `prepare` of a driver has returned; drivers need not have types."""
    devices = tuple(returned) if isinstance(returned, Iterable) else (returned,)
    for each in devices:
        if not isinstance(each, PreparedDevice):
            raise ClaimFailed(f"prepare has to return a list of what share.prepared(...) returns, not of {each!r}")
    return devices


# --- Cdi files ------------------------------------------------------------------------------------------------------
# The CDI files of a driver: one for each claim, with one CDI device for each prepared device that has edits.


class ClaimCdiFiles:
    def __init__(self, directory: Path, driver: str) -> None:
        self._directory = directory
        # A CDI vendor must begin with a letter; the name of a driver need not.
        self._vendor = f"k8s.{driver}"
        self._kind = f"{self._vendor}/claim"

    def ids(self, claim_uid: str, devices: Sequence[PreparedDevice]) -> list[tuple[str, ...]]:
        """The CDI names of each device."""
        return [
            (*([] if device.edits.is_empty else [f"{self._kind}={_name(claim_uid, index)}"]), *device.cdi_device_ids)
            for index, device in enumerate(devices)
        ]

    def write(self, claim_uid: str, devices: Sequence[PreparedDevice]) -> None:
        """Write the file of the claim; without edits the file is removed."""
        edits = {
            _name(claim_uid, index): device.edits for index, device in enumerate(devices) if not device.edits.is_empty
        }
        if not edits:
            self.remove(claim_uid)
            return
        self._directory.mkdir(parents=True, exist_ok=True)
        # Container runtimes may run as another user, and the content is not secret.
        write_atomically(self._path(claim_uid), encode_spec(self._kind, edits), mode=0o644)

    def exists(self, claim_uid: str) -> bool:
        return self._path(claim_uid).exists()

    def remove(self, claim_uid: str) -> None:
        remove_file(self._path(claim_uid))

    def _path(self, claim_uid: str) -> Path:
        return self._directory / f"{self._vendor}-claim_{claim_uid}.json"


def _name(claim_uid: str, index: int) -> str:
    return f"{claim_uid}-{index}"


# --- Prepare plan ---------------------------------------------------------------------------------------------------
# Decides how to handle a NodePrepareResources call for one claim, from the API server's claim and the checkpoint.
#
# A kubelet repeats calls after a lost answer, a restart or a failure, and must get the same answer.


@dataclass(frozen=True, slots=True)
class Unreachable:
    """The claim could not be read from the API server."""

    reason: str


@dataclass(frozen=True, slots=True)
class Missing:
    """The claim does not exist."""


FetchedClaim = ResourceClaim | Missing | Unreachable


@dataclass(frozen=True, slots=True)
class Refuse:
    """Answer with an error."""

    reason: str


@dataclass(frozen=True, slots=True)
class Repeat:
    """The claim is already prepared: give the same answer."""

    record: PreparationRecord


@dataclass(frozen=True, slots=True)
class Ignore:
    """The claim has no devices of this driver."""


@dataclass(frozen=True, slots=True)
class Prepare:
    """Let the driver prepare the claim; with `release`, unprepare an earlier allocation first."""

    claim: ResourceClaim
    before: PreparationRecord | None = None
    release: bool = False


PrepareDecision = Refuse | Repeat | Ignore | Prepare


@dataclass(frozen=True, slots=True, kw_only=True)
class PrepareContext:
    """The state of the driver at the time of the call."""

    driver: str
    boot_id: str
    # Pool and name of the devices that the driver has.
    published: Set[tuple[str, str]]
    record: PreparationRecord | None = None
    # The records of other claims.
    others: tuple[PreparationRecord, ...] = ()


def decide_prepare(reference: ClaimReference, fetched: FetchedClaim, situation: PrepareContext) -> PrepareDecision:
    """How to handle one claim of a NodePrepareResources call."""
    record = situation.record
    is_ready = record is not None and record.is_prepared and record.boot_id == situation.boot_id
    match fetched:
        case Unreachable(reason):
            # A prepared claim stays prepared without the API server.
            return Repeat(record) if record is not None and is_ready else Refuse(f"claim {reference}: {reason}")
        case Missing():
            return Refuse(f"claim {reference} does not exist")
    if fetched.metadata.uid != reference.uid or not is_uid(reference.uid):
        return Refuse(f"claim {reference} was replaced: its UID is {fetched.metadata.uid}, not {reference.uid}")
    if fetched.status.allocation is None:
        return Refuse(f"claim {reference} is not allocated")
    results = own_results(fetched, situation.driver)
    is_same = record is not None and own_results(record.claim, situation.driver) == results
    if record is not None and is_ready and is_same:
        return Repeat(record)
    if not results and record is None:
        return Ignore()
    # Pools of devices that all nodes reach are published elsewhere.
    pools = {pool for pool, _ in situation.published}
    own = [result for result in results if result.pool in pools]
    if missing := [result for result in own if (result.pool, result.device) not in situation.published]:
        return Refuse(f"claim {reference}: device {missing[0].pool}/{missing[0].device} is not on this node (any more)")
    if conflict := _find_conflict(results, situation):
        return Refuse(f"claim {reference}: {conflict}")
    return Prepare(fetched, before=record, release=record is not None and not is_same)


def own_results(claim: ResourceClaim, driver: str) -> tuple[DeviceRequestAllocationResult, ...]:
    allocation = claim.status.allocation
    if allocation is None:
        return ()
    return tuple(result for result in allocation.devices.results if result.driver == driver)


def _find_conflict(results: Iterable[DeviceRequestAllocationResult], situation: PrepareContext) -> str | None:
    """Detects an over-allocation: a device without shares belongs to one claim, except for admin access."""
    for result in results:
        if result.admin_access:
            continue
        for other in situation.others:
            for held in own_results(other.claim, situation.driver):
                is_same_device = (held.pool, held.device) == (result.pool, result.device)
                is_shared = held.share_id is not None and result.share_id is not None
                if is_same_device and not is_shared and not held.admin_access:
                    return f"device {result.pool}/{result.device} is in use by claim {other.reference}"
    return None
