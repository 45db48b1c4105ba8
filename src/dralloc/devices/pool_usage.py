"""What allocated claims use of a pool, by device name and as masks.

Usage is kept by device name because claims outlive slices: a device that disappears and comes back is still in use.
The masks, one for each slice of the pool, answer "which of these devices are in use" in one operation.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct, field

from dralloc.devices.device_usage import FREE, DeviceUsage
from dralloc.devices.slices import Answers, IndexedSlice
from dralloc.kube.resource_v1 import DeviceRequestAllocationResult
from dralloc.primitives.persistent_map import PersistentMap


class PoolUsage(Struct, frozen=True, eq=False, gc=False):
    """The used devices of a pool. `dedicated` and `shared` have one mask for each slice of the pool."""

    devices: PersistentMap[str, DeviceUsage] = field(default_factory=PersistentMap)
    dedicated: tuple[int, ...] = ()
    shared: tuple[int, ...] = ()
    # What other modules compute about the usage.
    answers: Answers = field(default_factory=Answers)

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
            assert min(usage.dedicated, usage.shares) >= 0, (
                f"{result.device} is released more often than it is allocated"
            )
            devices = devices.remove(result.device) if usage.is_free else devices.set(result.device, usage)
            for index, indexed in enumerate(slices):
                bit = indexed.bit_of.get(result.device)
                if bit is not None:
                    dedicated[index] = _with_bit(dedicated[index], bit, usage.dedicated > 0)
                    shared[index] = _with_bit(shared[index], bit, usage.shares > 0)
        return PoolUsage(devices, tuple(dedicated), tuple(shared))

    def aligned_to(self, slices: tuple[IndexedSlice, ...], before: tuple[IndexedSlice, ...]) -> PoolUsage:
        """The usage for changed slices of the pool. Slices that were in `before` keep their masks."""
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
