"""Which of several claims that were given more than there is, of a device or of a counter, must give it back: the later ones.

Two schedulers that do not know of each other can do that on a server that does not guard devices. Both see all writes in the
same order, so both come to the same answer, and the claims that came first, as far as the device goes round, keep it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from msgspec import Struct

from dralloc.api.resource_v1 import Device, DeviceRequestAllocationResult, ResourceClaim
from dralloc.devices.counters import CounterId
from dralloc.devices.device_usage import FREE, DeviceUsage, counted_results, pools_used
from dralloc.devices.identity import ClaimId, DeviceId, PoolId
from dralloc.snapshot.cluster import Snapshot
from dralloc.snapshot.pools import PoolSlices


class Holder(Struct, frozen=True, gc=False):
    """A claim with devices, and the revision at which it got them; 0 where that is not known, as if it had been first."""

    claim: ResourceClaim
    since: int


def beaten_by(snapshot: Snapshot, mine: Holder, others: Iterable[Holder]) -> ClaimId | None:
    """A claim that got a device of ours before us, where what those before us have leaves too little for us."""
    crowded = [device for device in _devices_of(mine.claim) if _is_crowded(snapshot, device, _usage(snapshot, device))]
    overdrawn = [pool_id for pool_id in pools_used(mine.claim) if _is_overdrawn(snapshot, pool_id, mine.claim)]
    if not crowded and not overdrawn:
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
    for pool_id in overdrawn:
        if (first := _out_drawn_by(snapshot.pools[pool_id], mine, earlier)) is not None:
            return ClaimId.of(first.claim)
    return None


# --- Devices ------------------------------------------------------------------------------------------------------


def _is_crowded(snapshot: Snapshot, device: DeviceId, usage: DeviceUsage) -> bool:
    if usage.dedicated > 1 or (usage.dedicated and usage.shares):
        return True
    published = _published(snapshot, device) if usage.shares else None
    if published is None:
        return False
    if usage.shares > 1 and not published.allow_multiple_allocations:
        return True
    capacity = published.capacity
    return any(nanos > capacity[name].value.nanos for name, nanos in usage.consumed.items() if name in capacity)


def _usage(snapshot: Snapshot, device: DeviceId) -> DeviceUsage:
    pool = snapshot.usage.get(device.pool_id)
    return pool.of(device.device) if pool is not None else FREE


def _published(snapshot: Snapshot, device: DeviceId) -> Device | None:
    """The device, as its newest slice says."""
    pool = snapshot.pools.get(device.pool_id)
    naming = [indexed for indexed in (pool.slices if pool is not None else ()) if device.device in indexed.bit_of]
    if not naming:
        return None
    newest = max(naming, key=lambda indexed: indexed.generation)
    return newest.devices[newest.bit_of[device.device]]


def _devices_of(claim: ResourceClaim) -> set[DeviceId]:
    return {_device_of(result) for result in counted_results(claim)}


def _device_of(result: DeviceRequestAllocationResult) -> DeviceId:
    return DeviceId.of(result)


# --- Counters -----------------------------------------------------------------------------------------------------


def _is_overdrawn(snapshot: Snapshot, pool_id: PoolId, claim: ResourceClaim) -> bool:
    """Whether devices in use draw more than there is from a counter that the claim's devices draw from."""
    pool, usage = snapshot.pools.get(pool_id), snapshot.usage.get(pool_id)
    if pool is None or usage is None or not pool.counters:
        return False
    return bool(_exceeded(pool, _names_in(pool_id, claim), frozenset(usage.devices)))


def _out_drawn_by(pool: PoolSlices, mine: Holder, earlier: Iterable[Holder]) -> Holder | None:
    """The first who drew, before us, from a counter that has not enough for all of them and us."""
    ours = _names_in(pool.pool_id, mine.claim)
    theirs = [(holder, _names_in(pool.pool_id, holder.claim)) for holder in earlier]
    exceeded = _exceeded(pool, ours, ours.union(*(names for _, names in theirs)))
    return next((holder for holder, names in theirs if exceeded & pool.drawn_by(names).keys()), None)


def _exceeded(pool: PoolSlices, ours: Collection[str], all_in_use: Collection[str]) -> frozenset[CounterId]:
    """The counters that our devices draw from and that have not enough for all devices in use."""
    drawn = pool.drawn_by(all_in_use)
    return frozenset(
        counter
        for counter in pool.drawn_by(ours)
        if counter in pool.counters and drawn[counter] > pool.counters[counter]
    )


def _names_in(pool_id: PoolId, claim: ResourceClaim) -> frozenset[str]:
    return frozenset(device.device for device in _devices_of(claim) if device.pool_id == pool_id)
