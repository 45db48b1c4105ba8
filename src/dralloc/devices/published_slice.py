"""What a ResourceSlice declares, as far as accounting depends on it: shareable devices, capacities, counters.

Far smaller than the slice, so that the API server can keep one for every slice. Amounts are in nanos.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from operator import attrgetter
from typing import Final

from msgspec import Struct, field

from dralloc.api.resource_v1 import CONSUMED_OR_NEVER, Device, ResourceSlice
from dralloc.devices.counters import CounterId, Draws, amounts_of, draws_of
from dralloc.devices.identity import PoolId
from dralloc.devices.pool_generation import newest
from dralloc.devices.request_policies import capacities_of


class PublishedDevice(Struct, frozen=True, gc=False):
    """A device that is not shareable has no capacity here: it is allocated whole.

    `undivided` are capacities that either all shares consume or none (strategy `ConsumedOrNever`).
    """

    is_shareable: bool = False
    capacity: Mapping[str, int] = field(default_factory=dict)
    draws: Draws = ()
    undivided: tuple[str, ...] = ()

    @classmethod
    def of(cls, device: Device) -> PublishedDevice:
        if not device.allow_multiple_allocations:
            return cls(draws=draws_of(device)) if device.consumes_counters else _PLAIN
        capacity = {name: capacity.value.nanos for name, capacity in device.capacity.items()}
        undivided = tuple(
            name
            for name, each in capacities_of(device).items()
            if each.request_policy is not None and each.request_policy.strategy == CONSUMED_OR_NEVER
        )
        return cls(is_shareable=True, capacity=capacity, draws=draws_of(device), undivided=undivided)


# Shared by the many devices that are neither shareable nor partitions.
_PLAIN: Final = PublishedDevice()


class PublishedSlice(Struct, frozen=True, gc=False):
    """The devices of a slice by name, and the counters that it declares."""

    pool_id: PoolId
    generation: int
    devices: Mapping[str, PublishedDevice]
    counters: Mapping[CounterId, int]
    has_counters: bool

    @classmethod
    def of(cls, resource_slice: ResourceSlice) -> PublishedSlice:
        spec = resource_slice.spec
        devices = {device.name: PublishedDevice.of(device) for device in spec.devices or ()}
        counters = amounts_of(spec.shared_counters or ())
        has_counters = bool(counters) or any(device.draws for device in devices.values())
        return cls(PoolId.of_slice(resource_slice), spec.pool.generation, devices, counters, has_counters)


def find_device(slices: Iterable[PublishedSlice], name: str) -> PublishedDevice | None:
    """The device as the newest of the pool's slices that name it declares it; None if it is not published."""
    naming = [published for published in slices if name in published.devices]
    return max(naming, key=_generation).devices[name] if naming else None


def current_slices(slices: Iterable[PublishedSlice]) -> list[PublishedSlice]:
    """The slices of the newest generation among slices of one pool."""
    return newest(slices, _generation)


def counters_of(current: Iterable[PublishedSlice]) -> dict[CounterId, int]:
    """What the counters hold that the current slices of a pool declare."""
    return {counter: amount for published in current for counter, amount in published.counters.items()}


def draws_together(current: Iterable[PublishedSlice], devices: Collection[str]) -> Counter[CounterId]:
    """What these devices of the current slices draw from the counters of their pool. Each device draws once."""
    drawing = [published.devices for published in current if published.has_counters]
    drawn: Counter[CounterId] = Counter()
    for name in devices:
        published = next((declared[name] for declared in drawing if name in declared), None)
        for counter, amount in published.draws if published is not None else ():
            drawn[counter] += amount
    return drawn


_generation: Final = attrgetter("generation")
