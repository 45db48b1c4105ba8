"""What a ResourceSlice declares, as far as accounting depends on it: shareable devices, capacities, counters.

Far smaller than the slice, so that the API server can keep one for every slice. Amounts are in nanos.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Final, TypeVar

from msgspec import Struct, field

from dralloc.devices.counters import CounterId, Draws, amounts_of, draws_of
from dralloc.devices.identity import PoolId
from dralloc.devices.share_terms import capacities_of
from dralloc.kube.resource_v1 import CONSUMED_OR_NEVER, Device, ResourceSlice


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


# --- Pool generation ------------------------------------------------------------------------------------------------
# The newest generation of a pool, and whether it is completely published.
#
# Drivers change a pool by publishing its slices with a higher generation. Older slices no longer count, and nothing
# is allocated from the pool until the new generation has as many slices as it announces.


Slice = TypeVar("Slice")


def newest(slices: Iterable[Slice], generation: Callable[[Slice], int]) -> list[Slice]:
    """The slices of the newest generation among slices of one pool."""
    slices = list(slices)
    highest = max(map(generation, slices), default=0)
    return [item for item in slices if generation(item) == highest]


def generation_of(resource_slice: ResourceSlice) -> int:
    return resource_slice.spec.pool.generation


def newest_generation(slices: Iterable[ResourceSlice]) -> int:
    """The newest generation among slices of one pool; 0 if there are none."""
    return max(map(generation_of, slices), default=0)


def newest_slices(slices: Iterable[ResourceSlice]) -> dict[PoolId, list[ResourceSlice]]:
    """The slices of the newest generation of each pool, in the given order."""
    pools: dict[PoolId, list[ResourceSlice]] = {}
    for item in slices:
        pools.setdefault(PoolId.of_slice(item), []).append(item)
    return {pool_id: newest(members, generation_of) for pool_id, members in pools.items()}


def is_complete(slices: Sequence[ResourceSlice]) -> bool:
    """True if slices of one generation of a pool are as many as each of them announces."""
    return all(item.spec.pool.resource_slice_count == len(slices) for item in slices)
