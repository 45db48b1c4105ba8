"""The funnel of a request on a node: how many devices there are, at which hurdle each is lost, and how many are left.

Every device is lost at exactly one hurdle, the first in an order that people can follow: what a device is (class,
selectors, size) comes before what has become of it (use, capacity left, counters, taints). The allocator checks the same
things in another order, so a funnel tells why a device is not taken, and never whether claims fit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from dralloc.devices.allocator.requests import Alternative
from dralloc.devices.identity import DeviceId, PoolId
from dralloc.devices.slices import IndexedSlice, bits_of
from dralloc.kube.resource_v1 import Device


class Hurdle(Enum):
    """What keeps a device from a request, in the order of the funnel."""

    POOL = "pool"
    BINDING_CONDITIONS = "binding conditions"
    CLASS_SELECTOR = "class selector"
    CLAIM_SELECTOR = "claim selector"
    # A selector, or the calculation of an amount, that fails on the device.
    FAULT = "fault"
    # What the device has, were it empty, is not what is asked.
    SIZE = "size"
    # It needs a feature that is off.
    FEATURE = "feature"
    IN_USE = "in use"
    # It is allocated more or less often than the request wants.
    ALLOCATIONS = "allocations"
    # What is left of it is not enough.
    CAPACITY = "capacity"
    COUNTERS = "counters"
    TAINT = "taint"
    NODE_OPERATIONS = "node operations"
    # It lacks an attribute that a constraint asks for.
    CONSTRAINT = "constraint"


ORDER = {hurdle: number for number, hurdle in enumerate(Hurdle)}


def is_selection(hurdle: Hurdle) -> bool:
    """Whether it is about what a device is, which does not change: those that pass are the ones that match."""
    return ORDER[hurdle] <= ORDER[Hurdle.SIZE]


class Devices(NamedTuple):
    """Some devices of a slice, as a mask."""

    slice: IndexedSlice
    mask: int


class Spot(NamedTuple):
    """One device of a slice."""

    slice: IndexedSlice
    bit: int

    @property
    def device(self) -> Device:
        return self.slice.devices[self.bit]

    @property
    def device_id(self) -> DeviceId:
        return self.slice.device_id(self.bit)


def spots(devices: Iterable[Devices]) -> Iterator[Spot]:
    return (Spot(indexed, bit) for indexed, mask in devices for bit in bits_of(mask))


def count_of(devices: Iterable[Devices]) -> int:
    return sum(mask.bit_count() for _, mask in devices)


@dataclass(frozen=True, slots=True, eq=False)
class Drop:
    """Devices lost at one hurdle; `position` tells which of several selectors or constraints it was."""

    hurdle: Hurdle
    position: int
    devices: tuple[Devices, ...]

    @property
    def count(self) -> int:
        return count_of(self.devices)


@dataclass(frozen=True, slots=True)
class UnreadyPool:
    """A pool that is there for a node, and why none of its devices can be used."""

    pool_id: PoolId
    fault: str


@dataclass(frozen=True, slots=True, eq=False)
class Funnel:
    """What a node has for one alternative of a request."""

    alternative: Alternative
    drops: tuple[Drop, ...]
    left: tuple[Devices, ...]

    @property
    def seen_count(self) -> int:
        return sum(drop.count for drop in self.drops) + self.left_count

    @property
    def left_count(self) -> int:
        return count_of(self.left)

    @property
    def wanted(self) -> int:
        """How many devices the alternative must get: its count, or all that match, and at least one. Those that give a
        capacity together may be more."""
        if self.alternative.is_aggregated:
            return 1
        if not self.alternative.takes_all:
            return self.alternative.count
        matching = sum(drop.count for drop in self.drops if not is_selection(drop.hurdle))
        return max(1, matching + self.left_count)

    @property
    def breaking(self) -> Drop | None:
        """The drop that is to blame where too few devices are left; None where none is, or there are enough.

        Of what devices are, that is the check after which too few match. Of those that match and cannot be had, it is
        what most of them are lost to.
        """
        left, wanted = self.seen_count, self.wanted
        if left < wanted or self.left_count >= wanted:
            return None
        for drop in self.drops:
            if is_selection(drop.hurdle):
                left -= drop.count
                if left < wanted:
                    return drop
        return max(self.unavailable, key=lambda drop: (drop.count, _TELLING.index(drop.hurdle)))

    @property
    def unavailable(self) -> tuple[Drop, ...]:
        """What the devices are lost to that match."""
        return tuple(drop for drop in self.drops if not is_selection(drop.hurdle))


# What says more, where as many devices are lost to one as to another; the most telling last.
_TELLING = (
    Hurdle.NODE_OPERATIONS,
    Hurdle.FEATURE,
    Hurdle.CONSTRAINT,
    Hurdle.TAINT,
    Hurdle.ALLOCATIONS,
    Hurdle.IN_USE,
    Hurdle.COUNTERS,
    Hurdle.CAPACITY,
)
