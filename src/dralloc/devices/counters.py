"""Counters of partitionable devices: what a counter set holds, and what a device draws from it.

Amounts are in nanos: exact, and cheap to add and compare. A device draws once, however many claims share it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from dralloc.kube.resource_v1 import CounterSet, Device


class CounterId(NamedTuple):
    """A counter of a pool, by its counter set and its own name."""

    counter_set: str
    counter: str

    def __str__(self) -> str:
        return f"{self.counter_set}/{self.counter}"


Draws = tuple[tuple[CounterId, int], ...]


def draws_of(device: Device) -> Draws:
    """What the device draws from its pool's counters."""
    amounts: dict[CounterId, int] = {}
    for use in device.consumes_counters:
        for name, counter in use.counters.items():
            counter_id = CounterId(use.counter_set, name)
            amounts[counter_id] = amounts.get(counter_id, 0) + counter.value.nanos
    return tuple(amounts.items())


def amounts_of(counter_sets: Iterable[CounterSet]) -> dict[CounterId, int]:
    """What the counter sets hold."""
    return {
        CounterId(counter_set.name, name): counter.value.nanos
        for counter_set in counter_sets
        for name, counter in counter_set.counters.items()
    }


# --- Compatibility groups -------------------------------------------------------------------------------------------
# Compatibility groups: which devices may draw from one counter set at the same time.
#
# Devices with groups are compatible if at least one group is common to all of them. Devices without groups are
# compatible only with each other.


# The groups common to all devices so far. Empty if these devices have none.
Groups = frozenset[str]


def admit(common: Groups | None, groups: Groups) -> Groups | None:
    """The common groups after a device with these groups joins; None if it is not compatible.

    `common` is None if no device draws from the counter set yet.
    """
    if common is None:
        return groups
    if not common or not groups:
        return groups if common == groups else None
    return (common & groups) or None
