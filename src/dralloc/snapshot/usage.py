"""What allocated claims use of a pool: devices given out whole, shares, and the capacity that shares consume.

Kept by device name, because claims outlive slices: a device that disappears and comes back is still in use. Beside the
amounts there is a mask for each slice of the pool, so that "which of these devices are in use" is one operation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct, field

from dralloc.api.resource_v1 import DeviceRequestAllocationResult, ResourceClaim
from dralloc.snapshot.identity import PoolId
from dralloc.snapshot.persistent import PersistentMap
from dralloc.snapshot.slices import IndexedSlice


class DeviceUsage(Struct, frozen=True, gc=False):
    """How one device is used. `consumed` sums over all shares, in nanos."""

    dedicated: int = 0
    shares: int = 0
    consumed: Mapping[str, int] = field(default_factory=dict)

    def changed_by(self, result: DeviceRequestAllocationResult, count: int) -> DeviceUsage:
        """With the result given (`count` is 1) or released (-1)."""
        if result.share_id is None:
            return DeviceUsage(self.dedicated + count, self.shares, self.consumed)
        consumed = dict(self.consumed)
        for name, amount in result.consumed_capacity.items():
            consumed[name] = consumed.get(name, 0) + count * amount.nanos
        left = {name: nanos for name, nanos in consumed.items() if nanos}
        return DeviceUsage(self.dedicated, self.shares + count, left)

    @property
    def is_free(self) -> bool:
        return not self.dedicated and not self.shares


FREE = DeviceUsage()


def counted_results(claim: ResourceClaim) -> tuple[DeviceRequestAllocationResult, ...]:
    """The devices that the claim keeps from others. Admin access takes nothing away from anyone."""
    allocation = claim.status.allocation
    results = allocation.devices.results if allocation is not None else ()
    return tuple(result for result in results if not result.admin_access)


def pools_used(claim: ResourceClaim) -> set[PoolId]:
    return {PoolId.of_result(result) for result in counted_results(claim)}


class PoolUsage(Struct, frozen=True, eq=False, gc=False):
    """The used devices of a pool. `dedicated` and `shared` have one mask for each slice of the pool."""

    devices: PersistentMap[str, DeviceUsage] = field(default_factory=PersistentMap)
    dedicated: tuple[int, ...] = ()
    shared: tuple[int, ...] = ()

    @classmethod
    def unused(cls, slices: tuple[IndexedSlice, ...]) -> PoolUsage:
        nothing = (0,) * len(slices)
        return cls(dedicated=nothing, shared=nothing)

    def of(self, device: str) -> DeviceUsage:
        return self.devices.get(device, FREE)

    def changed_by(
        self, results: Iterable[DeviceRequestAllocationResult], count: int, slices: tuple[IndexedSlice, ...]
    ) -> PoolUsage:
        devices, dedicated, shared = self.devices, list(self.dedicated), list(self.shared)
        for result in results:
            usage = devices.get(result.device, FREE).changed_by(result, count)
            assert min(usage.dedicated, usage.shares) >= 0, f"{result.device} is released more often than it was given"
            devices = devices.remove(result.device) if usage.is_free else devices.set(result.device, usage)
            for index, indexed in enumerate(slices):
                bit = indexed.bit_of.get(result.device)
                if bit is not None:
                    dedicated[index] = _with_bit(dedicated[index], bit, usage.dedicated > 0)
                    shared[index] = _with_bit(shared[index], bit, usage.shares > 0)
        return PoolUsage(devices, tuple(dedicated), tuple(shared))

    def aligned_to(self, slices: tuple[IndexedSlice, ...], before: tuple[IndexedSlice, ...]) -> PoolUsage:
        """For other slices of the pool; those that were there before keep their masks."""
        known = {indexed: index for index, indexed in enumerate(before)}
        masks = [
            (self.dedicated[known[indexed]], self.shared[known[indexed]])
            if indexed in known
            else self._masks_for(indexed)
            for indexed in slices
        ]
        return PoolUsage(self.devices, tuple(mask for mask, _ in masks), tuple(mask for _, mask in masks))

    def _masks_for(self, indexed: IndexedSlice) -> tuple[int, int]:
        dedicated = shared = 0
        for device, bit in indexed.bit_of.items():
            usage = self.devices.get(device, FREE)
            dedicated |= (usage.dedicated > 0) << bit
            shared |= (usage.shares > 0) << bit
        return dedicated, shared


def _with_bit(mask: int, bit: int, is_set: bool) -> int:
    return mask | (1 << bit) if is_set else mask & ~(1 << bit)
