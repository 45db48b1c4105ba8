"""Which of several claims that were given more of a device than there is must give it back: those that came later.

Two schedulers that do not know of each other can do that on a server that does not guard devices. Both see all writes in the
same order, so both come to the same answer, and the claims that came first, as far as the device goes round, keep it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from dralloc.api.resource_v1 import DeviceRequestAllocationResult, ResourceClaim
from dralloc.snapshot.cluster import Snapshot
from dralloc.snapshot.identity import ClaimId, DeviceId
from dralloc.snapshot.usage import FREE, DeviceUsage, counted_results


class Holder(Struct, frozen=True, gc=False):
    """A claim with devices, and the revision at which it got them; 0 where that is not known, as if it had been first."""

    claim: ResourceClaim
    since: int


def beaten_by(snapshot: Snapshot, mine: Holder, others: Iterable[Holder]) -> ClaimId | None:
    """A claim that got a device of ours before us, where what those before us have leaves too little for us."""
    crowded = [device for device in _devices_of(mine.claim) if _is_crowded(snapshot, device, _usage(snapshot, device))]
    if not crowded:
        return None
    earlier = [holder for holder in others if holder.since <= mine.since]
    for device in crowded:
        holders = [holder for holder in earlier if device in _devices_of(holder.claim)]
        usage = FREE
        for holder in (*holders, mine):
            for result in counted_results(holder.claim):
                usage = usage.changed_by(result, 1) if _device_of(result) == device else usage
        if holders and _is_crowded(snapshot, device, usage):
            return ClaimId.of(holders[0].claim)
    return None


def _is_crowded(snapshot: Snapshot, device: DeviceId, usage: DeviceUsage) -> bool:
    if usage.dedicated > 1 or (usage.dedicated and usage.shares):
        return True
    capacities = _capacities(snapshot, device) if usage.consumed else {}
    return any(nanos > capacities[name] for name, nanos in usage.consumed.items() if name in capacities)


def _usage(snapshot: Snapshot, device: DeviceId) -> DeviceUsage:
    pool = snapshot.usage.get(device.pool_id)
    return pool.of(device.device) if pool is not None else FREE


def _capacities(snapshot: Snapshot, device: DeviceId) -> Mapping[str, int]:
    """What the device has, as its newest slice says."""
    pool = snapshot.pools.get(device.pool_id)
    naming = [indexed for indexed in (pool.slices if pool is not None else ()) if device.device in indexed.bit_of]
    if not naming:
        return {}
    newest = max(naming, key=lambda indexed: indexed.generation)
    capacity = newest.devices[newest.bit_of[device.device]].capacity
    return {name: amount.value.nanos for name, amount in capacity.items()}


def _devices_of(claim: ResourceClaim) -> set[DeviceId]:
    return {_device_of(result) for result in counted_results(claim)}


def _device_of(result: DeviceRequestAllocationResult) -> DeviceId:
    return DeviceId(result.driver, result.pool, result.device)
