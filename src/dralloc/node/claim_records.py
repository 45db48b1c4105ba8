"""The record of a claim on a node: the pods that use it, its drivers, and the devices that they prepared."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from dralloc.kube.resource_v1 import DeviceRequestAllocationResult, ResourceClaim

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
