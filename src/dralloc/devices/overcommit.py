"""Over-commit: whether allocations exceed what a device or a counter offers.

The API server's guard asks before it stores an allocation, the scheduler's collision check afterwards, on servers that
do not guard. What is not published has no limit but one: a device that is allocated whole has one user. The guard does not
let several users in where it cannot tell.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

from dralloc.devices.counters import CounterId
from dralloc.devices.device_usage import DeviceUsage
from dralloc.devices.published_slice import PublishedDevice, PublishedSlice, counters_of, draws_together


class Overcommit(NamedTuple):
    """A capacity or counter whose users need more than it offers, in nanos."""

    used: int
    offered: int


def is_allocated_twice(usage: DeviceUsage, published: PublishedDevice | None) -> bool:
    """True if several results exclude each other on the device: only shares of a shareable device do not."""
    if usage.dedicated:
        return usage.dedicated > 1 or usage.shares > 0
    return usage.shares > 1 and published is not None and not published.is_shareable


def exceeded_capacities(usage: DeviceUsage, published: PublishedDevice | None) -> Iterator[tuple[str, Overcommit]]:
    """The capacities of the device of which its shares consume more than it has."""
    capacity = published.capacity if published is not None else {}
    for name, used in usage.consumed.items():
        if name in capacity and used > capacity[name]:
            yield name, Overcommit(used, capacity[name])


def divided_capacities(usage: DeviceUsage, published: PublishedDevice | None) -> Iterator[str]:
    """The capacities that some shares of the device consume and others do not, although the first share decides for all."""
    for name in published.undivided if published is not None else ():
        if name in usage.without:
            yield name


def is_overcommitted(usage: DeviceUsage, published: PublishedDevice | None) -> bool:
    """True if the device cannot serve all its users."""
    return (
        is_allocated_twice(usage, published)
        or next(exceeded_capacities(usage, published), None) is not None
        or next(divided_capacities(usage, published), None) is not None
    )


def exceeded_counters(
    current: Collection[PublishedSlice], devices: Collection[str], in_use: Collection[str]
) -> dict[CounterId, Overcommit]:
    """The counters that `devices` draw from and of which all devices `in_use` together draw more than there is.

    `current` are the slices of a pool's newest generation. A counter that they do not declare has no limit.
    """
    offered, used = counters_of(current), draws_together(current, in_use)
    return {
        counter: Overcommit(used[counter], offered[counter])
        for counter in draws_together(current, devices)
        if counter in offered and used[counter] > offered[counter]
    }


def undeclared(current: Collection[PublishedSlice], devices: Collection[str]) -> list[str]:
    """The devices of which the slices of a pool's newest generation do not say what they draw, or from how much.

    So it is while a driver publishes its pool: slice by slice, or again after they were deleted.
    """
    offered = counters_of(current)

    def is_declared(name: str) -> bool:
        naming = [published.devices[name] for published in current if name in published.devices]
        return bool(naming) and all(counter in offered for device in naming for counter, _ in device.draws)

    return [name for name in devices if not is_declared(name)]
