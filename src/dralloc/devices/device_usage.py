"""What allocated claims use of a device: the whole device, or shares and the capacity that they consume."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from dralloc.devices.identity import DeviceId, PoolId
from dralloc.kube.resource_v1 import DeviceRequestAllocationResult, ResourceClaim
from dralloc.primitives.quantity import Quantity


class DeviceUsage(Struct, frozen=True, gc=False):
    """How one device is used. `consumed` is the sum over all shares that have an entry for the capacity, in nanos.

    `without` is, by the names in `consumed`, the number of shares that have no entry, if there is one.
    """

    dedicated: int = 0
    shares: int = 0
    consumed: Mapping[str, int] = field(default_factory=dict)
    without: Mapping[str, int] = field(default_factory=dict)

    def changed_by(self, result: DeviceRequestAllocationResult, count: int) -> DeviceUsage:
        """The usage with the result allocated (`count` is 1) or released (-1)."""
        if result.share_id is None:
            return DeviceUsage(self.dedicated + count, self.shares, self.consumed, self.without)
        shares, amounts, consumed = self.shares + count, result.consumed_capacity, self.consumed
        if shares and not self.without and consumed.keys() == amounts.keys():
            # As usual: all shares have the same entries.
            sums = {name: nanos + count * amounts[name].nanos for name, nanos in consumed.items()}
            return DeviceUsage(self.dedicated, shares, sums, self.without)
        return self._changed_unevenly(amounts, shares, count)

    def _changed_unevenly(self, amounts: Mapping[str, Quantity], shares: int, count: int) -> DeviceUsage:
        consumed = self.consumed
        sums: dict[str, int] = {}
        without: dict[str, int] = {}
        for name in (*consumed, *(name for name in amounts if name not in consumed)):
            lacking = self.without.get(name, 0) if name in consumed else self.shares
            nanos = consumed.get(name, 0)
            if name in amounts:
                nanos += count * amounts[name].nanos
            else:
                lacking += count
            if lacking < shares:
                sums[name] = nanos
                if lacking:
                    without[name] = lacking
        return DeviceUsage(self.dedicated, shares, sums, without)

    @property
    def is_free(self) -> bool:
        return not self.dedicated and not self.shares


FREE = DeviceUsage()


def counted_results(claim: ResourceClaim) -> tuple[DeviceRequestAllocationResult, ...]:
    """The claim's results that occupy a device. Admin access occupies nothing."""
    allocation = claim.status.allocation
    results = allocation.devices.results if allocation is not None else ()
    return tuple([result for result in results if not result.admin_access])


def devices_used(claim: ResourceClaim) -> set[DeviceId]:
    """The devices that the claim occupies."""
    return {DeviceId.of(result) for result in counted_results(claim)}


def pools_used(claim: ResourceClaim) -> set[PoolId]:
    """The pools of the devices that the claim occupies."""
    return {PoolId.of_result(result) for result in counted_results(claim)}
