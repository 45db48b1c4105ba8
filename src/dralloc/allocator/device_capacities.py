"""What is used and left of the capacities of a device, and the most that one more request can get of each."""

from __future__ import annotations

from dataclasses import dataclass

from dralloc.allocator.features import Features
from dralloc.allocator.headroom import Room
from dralloc.api.resource_v1 import Device
from dralloc.devices.device_usage import DeviceUsage
from dralloc.primitives.quantity import Quantity, quantity_like


@dataclass(frozen=True, slots=True)
class CapacityReport:
    """`free` is what claims can get, nothing of a device that is blocked. `largest` is the most that one more request can get,
    after rounding; None if none fits."""

    name: str
    value: Quantity
    used: Quantity
    free: Quantity
    largest: Quantity | None

    @property
    def is_exhausted(self) -> bool:
        """True if nothing is left; a request for nothing may still fit."""
        return not self.free and bool(self.value)


def capacities_left(
    device: Device, usage: DeviceUsage, features: Features, *, is_open: bool
) -> tuple[tuple[CapacityReport, ...], bool]:
    """The capacities, and whether they have room for a request. Of a device that is not open, nothing can be claimed."""
    room = Room.of(device, usage, features)
    has_room = _has_room(room, usage, features)
    reports: list[CapacityReport] = []
    for (name, capacity), nanos in zip(device.capacity.items(), room.state, strict=False):
        used = capacity.value if usage.dedicated else quantity_like(capacity.value, capacity.value.nanos - nanos)
        free, largest = quantity_like(capacity.value, 0), None
        if is_open and has_room:
            largest = room.largest_request(name)
            # No request gets any of a capacity that is not consumable.
            is_available = largest is not None or room.terms is None
            free = quantity_like(capacity.value, nanos if is_available else 0)
        reports.append(CapacityReport(name, capacity.value, used, free, largest))
    return tuple(reports), has_room


def _has_room(room: Room, usage: DeviceUsage, features: Features) -> bool:
    """True if a request for something fits, or one that names no amounts, or one for nothing where a policy names zero."""
    if not features.consumable_capacity:
        return True
    if not room.accepts_something():
        return False
    pairs = list(zip(room.capacities.values(), room.state, strict=False))
    is_exhausted = bool(pairs) and all(not nanos and capacity.value for capacity, nanos in pairs)
    return not (usage.shares and is_exhausted) or room.fits_unasked() or room.accepts_nothing()
