"""The values of a usage report: a device with its state, holders and amounts; a pool with its counters and hardware."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum

from dralloc.devices.allocator.availability import Block, PoolAvailability
from dralloc.devices.allocator.headroom import CapacityReport
from dralloc.devices.counters import CounterId
from dralloc.devices.identity import ClaimId, DeviceId, PoolId
from dralloc.devices.slices import IndexedSlice
from dralloc.kube.resource_v1 import (
    ConsumerReference,
    Device,
    DeviceRequestAllocationResult,
    DeviceTaint,
    ResourceClaim,
)
from dralloc.primitives.quantity import Quantity, quantity_like


@dataclass(frozen=True, slots=True)
class Holding:
    """A device, or a share of it, that a claim has. Admin access takes nothing away from others."""

    claim_id: ClaimId
    request: str
    share_id: str | None
    consumed: Mapping[str, Quantity]
    is_admin: bool
    consumers: tuple[ConsumerReference, ...] = ()


def holdings(claims: Iterable[ResourceClaim]) -> dict[DeviceId, list[Holding]]:
    """For every device that any of the claims has, who has it, by name."""
    found: dict[DeviceId, list[Holding]] = {}
    for claim in sorted(claims, key=ClaimId.of):
        allocation = claim.status.allocation
        for result in allocation.devices.results if allocation is not None else ():
            found.setdefault(DeviceId.of(result), []).append(_holding(claim, result))
    return found


def _holding(claim: ResourceClaim, result: DeviceRequestAllocationResult) -> Holding:
    return Holding(
        ClaimId.of(claim),
        result.request,
        result.share_id,
        result.consumed_capacity,
        bool(result.admin_access),
        claim.status.reserved_for,
    )


# --- Devices ------------------------------------------------------------------------------------------------------------


class DeviceState(Enum):
    FREE = "free"
    # Some claims have shares, and another share fits.
    SHARED = "shared"
    # Allocated whole, or no further share fits.
    FULL = "full"
    # Not full, but no claim can get it: see `DeviceReport.block`.
    BLOCKED = "blocked"
    # Claims hold it, but no slice publishes it any more.
    GONE = "gone"

    @property
    def is_open(self) -> bool:
        """True if one more claim can get the device or a share of it."""
        return self in (DeviceState.FREE, DeviceState.SHARED)


@dataclass(frozen=True, slots=True)
class DeviceReport:
    device_id: DeviceId
    state: DeviceState
    is_shareable: bool
    capacities: tuple[CapacityReport, ...]
    holdings: tuple[Holding, ...]
    taints: tuple[DeviceTaint, ...]
    device: Device
    # Why it is blocked; None in every other state.
    block: Block | None = None
    # Where it is published. Not compared: a slice that is published again does not change its devices.
    source: tuple[IndexedSlice, int] | None = field(default=None, compare=False, repr=False)


def portion(part: int, whole: int, of: int = 100) -> int:
    """How many of `of` equal pieces the part is: rounded, but all only for the whole, and none only for nothing."""
    if part <= 0 or whole <= 0:
        return 0
    return of if part >= whole else min(max(round(of * part / whole), 1), of - 1)


@dataclass(frozen=True, slots=True)
class CounterReport:
    counter_id: CounterId
    value: Quantity
    left: Quantity


@dataclass(frozen=True, slots=True)
class HardwareAmount:
    """What there is of a counter, or of a capacity, in nanos; `model` has the notation.

    Devices that consume counters overlap, so their hardware is the counter sets; the hardware of all others is their capacity.
    `available` can be claimed: of counters, what free devices draw that can be allocated together.
    """

    name: str
    model: Quantity
    value: int = 0
    used: int = 0
    available: int = 0
    # Of the devices; empty for a sum over several products.
    product: str = ""

    def __add__(self, other: HardwareAmount) -> HardwareAmount:
        sums = (self.value + other.value, self.used + other.used, self.available + other.available)
        return HardwareAmount(self.name, self.model, *sums, self.product if self.product == other.product else "")

    def quantity(self, nanos: int) -> Quantity:
        return quantity_like(self.model, nanos)

    @property
    def fraction(self) -> float:
        """The part that is used, from 0 to 1."""
        return self.used / self.value if self.value > 0 else 0.0


@dataclass(frozen=True, slots=True)
class PoolReport:
    """The devices of a pool that are for one node, or, with no node, for several."""

    pool_id: PoolId
    node: str
    # Why its devices cannot be allocated; empty if they can.
    fault: str
    devices: tuple[DeviceReport, ...]
    counters: tuple[CounterReport, ...]
    # Counters that several reports of a pool share are in the first one only, so that sums count them once.
    hardware: tuple[HardwareAmount, ...] = ()
    # Of a pool that is ready, on the first of its nodes.
    availability: PoolAvailability | None = field(default=None, compare=False, repr=False)


def free_sources(devices: Iterable[DeviceReport]) -> Iterator[tuple[IndexedSlice, int]]:
    """Where free devices are published."""
    for device in devices:
        if device.state is DeviceState.FREE and device.source is not None:
            yield device.source


def hardware_by_driver(reports: Iterable[PoolReport]) -> dict[tuple[str, str], HardwareAmount]:
    """Sums by driver and name."""
    sums: dict[tuple[str, str], HardwareAmount] = {}
    for report in reports:
        for amount in report.hardware:
            key = (report.pool_id.driver, amount.name)
            sums[key] = sums[key] + amount if key in sums else amount
    return sums
