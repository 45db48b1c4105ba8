"""The node checkpoint: which claims are prepared or being prepared, so that none is forgotten in a crash.

The format is that of a kubelet's `dra_manager_state`: a JSON document inside a JSON document with its checksum.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import msgspec

from dralloc.atomic_files import write_atomically
from dralloc.kube.resource_v1 import DeviceRequestAllocationResult, ResourceClaim
from dralloc.node.kubelet.checkpoint_file import BadCheckpoint, check_checksum, checksum
from dralloc.primitives.decoders import UNREADABLE

KIND: Final = "DRACheckpoint"
API_VERSION: Final = "checkpoint.dra.kubelet.k8s.io/v1"


class DirectoryInUse(Exception):
    """Another agent uses this directory."""


class _File(msgspec.Struct):
    data: str = msgspec.field(name="Data")
    checksum: int = msgspec.field(name="Checksum")


class _Device(msgspec.Struct, rename="pascal", omit_defaults=True):
    pool_name: str = ""
    device_name: str = ""
    share_id: str | None = msgspec.field(default=None, name="ShareID")
    request_names: list[str] | None = None
    cdi_device_ids: list[str] | None = msgspec.field(default=None, name="CDIDeviceIDs")


class _Driver(msgspec.Struct, omit_defaults=True):
    devices: list[_Device] | None = msgspec.field(default=None, name="Devices")
    skip_node_operations: list[str] | None = msgspec.field(default=None, name="skipNodeOperations")


class _Claim(msgspec.Struct):
    claim_uid: str = msgspec.field(name="ClaimUID")
    claim_name: str = msgspec.field(name="ClaimName")
    namespace: str = msgspec.field(name="Namespace")
    pod_uids: dict[str, dict[str, Any]] = msgspec.field(name="PodUIDs")
    driver_state: dict[str, _Driver] | None = msgspec.field(name="DriverState")


class _Document(msgspec.Struct):
    kind: str = ""
    api_version: str = msgspec.field(default="", name="apiVersion")
    claims: list[_Claim] | None = msgspec.field(default=None, name="ClaimInfoStateList")


def encode_checkpoint(records: Iterable[ClaimRecord]) -> bytes:
    claims = [_claim(record) for record in sorted(records, key=lambda record: (record.namespace, record.name))]
    text = msgspec.json.encode(_Document(kind=KIND, api_version=API_VERSION, claims=claims)).decode()
    return msgspec.json.encode(_File(data=text, checksum=checksum(text.encode())))


def decode_checkpoint(content: bytes) -> tuple[ClaimRecord, ...]:
    """The encoded records; ValueError says why the content cannot be used."""
    try:
        file = msgspec.json.decode(content, type=_File)
    except UNREADABLE as error:
        raise ValueError(f"not a checkpoint: {error}") from None
    check_checksum(file.data.encode(), file.checksum)
    try:
        document = msgspec.json.decode(file.data, type=_Document)
    except UNREADABLE as error:
        raise ValueError(f"the data cannot be decoded: {error}") from None
    if (document.kind, document.api_version) != (KIND, API_VERSION):
        found = f"{document.kind or 'no kind'} of {document.api_version or 'no version'}"
        raise ValueError(f"unsupported content: found {found}, expected {KIND} of {API_VERSION}")
    return tuple(map(_record, document.claims or ()))


def read_checkpoint(path: Path) -> tuple[ClaimRecord, ...]:
    """The records in the file; none if there is no file. Raises `BadCheckpoint`."""
    try:
        return decode_checkpoint(path.read_bytes())
    except FileNotFoundError:
        return ()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise BadCheckpoint(
            f"cannot use the checkpoint {path}: {reason}. It is not known which claims are prepared on this node: drain the "
            "node, let the drivers clean up, then remove the file"
        ) from None


class CheckpointWriter:
    """Writes the records to the file. Changes made during a write go into the next one together."""

    def __init__(self, path: Path, records: Callable[[], Iterable[ClaimRecord]]) -> None:
        self._path = path
        self._records = records
        # One thread keeps the writes in order, even if a caller is cancelled while it waits.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self._lock = asyncio.Lock()
        self._asked = 0
        self._written = 0

    async def save(self) -> None:
        """Returns when the present records are on disk."""
        self._asked += 1
        mine = self._asked
        async with self._lock:
            if self._written >= mine:
                return
            included, content = self._asked, encode_checkpoint(self._records())
            await asyncio.get_running_loop().run_in_executor(self._thread, write_atomically, self._path, content)
            self._written = included

    def close(self) -> None:
        self._thread.shutdown()


def lock_directory(directory: Path) -> int:
    """Lock the directory until the process ends: two agents would prepare the same claims concurrently."""
    path = directory / "lock"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise DirectoryInUse(f"another agent uses {directory} ({path} is locked)") from None
    return descriptor


def _claim(record: ClaimRecord) -> _Claim:
    return _Claim(
        claim_uid=record.uid,
        claim_name=record.name,
        namespace=record.namespace,
        pod_uids={uid: {} for uid in sorted(record.pods)},
        driver_state={name: _driver(part) for name, part in record.drivers.items()},
    )


def _driver(part: DriverPart) -> _Driver:
    devices = [
        _Device(
            pool_name=device.pool,
            device_name=device.device,
            share_id=device.share_id,
            request_names=list(device.requests),
            cdi_device_ids=list(device.cdi_ids),
        )
        for device in part.devices
    ]
    return _Driver(devices=devices, skip_node_operations=list(part.skips) or None)


def _record(claim: _Claim) -> ClaimRecord:
    return ClaimRecord(
        namespace=claim.namespace,
        name=claim.claim_name,
        uid=claim.claim_uid,
        pods=frozenset(claim.pod_uids),
        drivers={name: _part(driver) for name, driver in (claim.driver_state or {}).items()},
    )


def _part(driver: _Driver) -> DriverPart:
    devices = tuple(
        ReportedDevice(
            pool=device.pool_name,
            device=device.device_name,
            share_id=device.share_id,
            requests=tuple(device.request_names or ()),
            cdi_ids=tuple(device.cdi_device_ids or ()),
        )
        for device in driver.devices or ()
    )
    return DriverPart(devices=devices, skips=tuple(driver.skip_node_operations or ()))


# --- Claim records --------------------------------------------------------------------------------------------------
# The record of a claim on a node: the pods that use it, its drivers, and the devices that they prepared.


PREPARE: Final = "NodePrepareResources"
UNPREPARE: Final = "NodeUnprepareResources"
EVERYTHING: Final = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedDevice:
    """A device as its driver reported it; without requests it belongs to all requests of the claim."""

    pool: str
    device: str
    share_id: str | None = None
    requests: tuple[str, ...] = ()
    cdi_ids: tuple[str, ...] = ()

    def serves(self, request: str) -> bool:
        return not request or not self.requests or request in self.requests


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverPart:
    """A driver's part in a claim. It is recorded before the driver is called for the first time."""

    devices: tuple[ReportedDevice, ...] = ()
    # Calls that are skipped for this claim.
    skips: tuple[str, ...] = ()

    def needs(self, operation: str) -> bool:
        return operation not in self.skips and EVERYTHING not in self.skips


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRecord:
    """A claim on this node. While a record exists, its drivers may have devices prepared for it."""

    namespace: str
    name: str
    uid: str
    pods: frozenset[str] = frozenset()
    drivers: Mapping[str, DriverPart] = field(default_factory=dict)

    def with_pod(self, pod_uid: str) -> ClaimRecord:
        return replace(self, pods=self.pods | {pod_uid})

    def without_pod(self, pod_uid: str) -> ClaimRecord:
        return replace(self, pods=self.pods - {pod_uid})

    def with_devices(self, driver: str, devices: Iterable[ReportedDevice]) -> ClaimRecord:
        """The record with the devices of the driver replaced."""
        part = replace(self.drivers.get(driver, DriverPart()), devices=tuple(devices))
        return replace(self, drivers={**self.drivers, driver: part})

    def devices(self) -> Iterator[tuple[str, ReportedDevice]]:
        for driver, part in self.drivers.items():
            for device in part.devices:
                yield driver, device


def record_of(claim: ResourceClaim, *, may_skip: bool = False) -> ClaimRecord:
    """The initial record: every driver of the allocation, without devices.

    With `may_skip`, a call is skipped if all devices of the driver in this claim skip it.
    """
    by_driver: dict[str, list[DeviceRequestAllocationResult]] = {}
    assert claim.status.allocation is not None, "only an allocated claim is prepared"
    for result in claim.status.allocation.devices.results:
        by_driver.setdefault(result.driver, []).append(result)
    drivers = {driver: DriverPart(skips=_skipped(results) if may_skip else ()) for driver, results in by_driver.items()}
    return ClaimRecord(
        namespace=claim.metadata.namespace, name=claim.metadata.name, uid=claim.metadata.uid, drivers=drivers
    )


def _skipped(results: Iterable[DeviceRequestAllocationResult]) -> tuple[str, ...]:
    def all_skip(operation: str) -> bool:
        return all({operation, EVERYTHING} & set(result.skip_node_operations) for result in results)

    results = list(results)
    return tuple(operation for operation in (PREPARE, UNPREPARE) if all_skip(operation))
