"""Partitionable devices (KEP-4815): devices of a pool that consume shared counters, and their compatibility groups."""

from __future__ import annotations

from dralloc.allocator.ledger import Ledger
from dralloc.allocator.supply import DeviceCandidate, Supply
from dralloc.devices.counters import admit


def draw_counters(supply: Supply, ledger: Ledger, candidate: DeviceCandidate) -> bool:
    """Takes what the device consumes of its pool's counters; only the first share of a device consumes them.

    False if a counter has too little left, or the device's groups are incompatible with those of devices in use.
    """
    strip, bit = candidate
    if not strip.slice.counting >> bit & 1:
        return True
    if supply.is_shareable(candidate) and (candidate.position in ledger.free or supply.is_shared(candidate)):
        return True
    base = supply.counters(strip.pool)
    if base is None or not _join_groups(supply, ledger, candidate):
        return False
    for counter_id, amount in strip.slice.draws[bit]:
        key = (strip.pool.pool_id, counter_id)
        left = ledger.counters.get(key, base[counter_id]) - amount
        if left < 0:
            return False
        ledger.put(ledger.counters, key, left)
    return True


def _join_groups(supply: Supply, ledger: Ledger, candidate: DeviceCandidate) -> bool:
    """True if the device has a compatibility group in common with all devices of each of its counter sets."""
    if not supply.features.compatibility_groups:
        return True
    strip, bit = candidate
    base = supply.groups(strip.pool)
    for counter_set, groups in strip.slice.groups[bit]:
        key = (strip.pool.pool_id, counter_set)
        common = admit(ledger.groups.get(key, base.get(counter_set)), groups)
        if common is None:
            return False
        ledger.put(ledger.groups, key, common)
    return True
