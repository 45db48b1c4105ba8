"""Detects over-allocation by concurrent schedulers; the later allocation loses.

Servers that do not guard devices (`apiserver/objects/device_guard.py`) store whatever two schedulers decide. All
schedulers see all writes in the same order, so they agree on which claims came first and keep their devices.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from msgspec import Struct

from dralloc.api.resource_v1 import ResourceClaim
from dralloc.devices.device_usage import FREE, DeviceUsage, counted_results, devices_used, pools_used
from dralloc.devices.identity import ClaimId, DeviceId, PoolId
from dralloc.devices.overcommit import exceeded_counters, is_overcommitted
from dralloc.devices.published_slice import PublishedDevice, PublishedSlice, draws_together, find_device
from dralloc.snapshot.cluster import Snapshot


class Holder(Struct, frozen=True, gc=False):
    """An allocated claim and the revision of its allocation; 0 if that is unknown, which counts as earliest."""

    claim: ResourceClaim
    since: int


def beaten_by(snapshot: Snapshot, mine: Holder, others: Iterable[Holder]) -> ClaimId | None:
    """An earlier claim on devices or counters of this one, if the earlier claims leave too little for it."""
    devices = [device for device in devices_used(mine.claim) if _is_overcommitted(snapshot, device)]
    pools = [pool_id for pool_id in pools_used(mine.claim) if _is_overdrawn(snapshot, pool_id, mine.claim)]
    if not devices and not pools:
        return None
    earlier = [holder for holder in others if holder.since <= mine.since]
    for device in devices:
        holders = [holder for holder in earlier if device in devices_used(holder.claim)]
        usage, published = _usage_by((*holders, mine), device), _published(snapshot, device)
        if _has_old_shares(mine, usage, published):
            continue
        if holders and is_overcommitted(usage, published):
            return ClaimId.of(holders[0].claim)
    for pool_id in pools:
        if (first := _first_on_exceeded_counter(snapshot, pool_id, mine, earlier)) is not None:
            return ClaimId.of(first.claim)
    return None


def _is_overcommitted(snapshot: Snapshot, device: DeviceId) -> bool:
    pool = snapshot.usage.get(device.pool_id)
    usage = pool.of(device.device) if pool is not None else FREE
    return is_overcommitted(usage, _published(snapshot, device) if usage.shares else None)


def _usage_by(holders: Iterable[Holder], device: DeviceId) -> DeviceUsage:
    usage = FREE
    for holder in holders:
        for result in counted_results(holder.claim):
            usage = usage.changed_by(result, 1) if DeviceId.of(result) == device else usage
    return usage


def _has_old_shares(mine: Holder, usage: DeviceUsage, published: PublishedDevice | None) -> bool:
    """True if a device that can no longer be shared was shareable when its shares were allocated. They stay valid (KEP-5075)."""
    return not mine.since and not usage.dedicated and published is not None and not published.is_shareable


def _published(snapshot: Snapshot, device: DeviceId) -> PublishedDevice | None:
    pool = snapshot.pools.get(device.pool_id)
    naming = (indexed for indexed in pool.slices if device.device in indexed.bit_of) if pool is not None else ()
    return find_device((indexed.published for indexed in naming), device.device)


def _is_overdrawn(snapshot: Snapshot, pool_id: PoolId, claim: ResourceClaim) -> bool:
    """True if devices in use overdraw a counter that the claim's devices draw from."""
    usage, current = snapshot.usage.get(pool_id), _current_with_counters(snapshot, pool_id)
    if usage is None or not current:
        return False
    return bool(exceeded_counters(current, _names_in(pool_id, claim), frozenset(usage.devices)))


def _first_on_exceeded_counter(
    snapshot: Snapshot, pool_id: PoolId, mine: Holder, earlier: Iterable[Holder]
) -> Holder | None:
    """The first earlier claim on a counter that has too little for the earlier claims and this one together."""
    current = _current_with_counters(snapshot, pool_id)
    ours = _names_in(pool_id, mine.claim)
    theirs = [(holder, _names_in(pool_id, holder.claim)) for holder in earlier]
    exceeded = exceeded_counters(current, ours, ours.union(*(names for _, names in theirs)))
    return next((holder for holder, names in theirs if exceeded.keys() & draws_together(current, names).keys()), None)


def _current_with_counters(snapshot: Snapshot, pool_id: PoolId) -> Collection[PublishedSlice]:
    pool = snapshot.pools.get(pool_id)
    return pool.current_with_counters if pool is not None else ()


def _names_in(pool_id: PoolId, claim: ResourceClaim) -> frozenset[str]:
    return frozenset(device.device for device in devices_used(claim) if device.pool_id == pool_id)
