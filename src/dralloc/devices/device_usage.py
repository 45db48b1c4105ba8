"""What allocated claims use of a device: the whole device, or shares and the capacity that they consume."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from dralloc.api.resource_v1 import DeviceRequestAllocationResult, ResourceClaim
from dralloc.devices.identity import DeviceId, PoolId


class DeviceUsage(Struct, frozen=True, gc=False):
    """How one device is used. `consumed` is the sum over all shares, in nanos."""

    dedicated: int = 0
    shares: int = 0
    consumed: Mapping[str, int] = field(default_factory=dict)

    def changed_by(self, result: DeviceRequestAllocationResult, count: int) -> DeviceUsage:
        """The usage with the result allocated (`count` is 1) or released (-1)."""
        if result.share_id is None:
            return DeviceUsage(self.dedicated + count, self.shares, self.consumed)
        consumed = dict(self.consumed)
        for name, amount in result.consumed_capacity.items():
            consumed[name] = consumed.get(name, 0) + count * amount.nanos
        nonzero = {name: nanos for name, nanos in consumed.items() if nanos}
        return DeviceUsage(self.dedicated, self.shares + count, nonzero)

    @property
    def is_free(self) -> bool:
        return not self.dedicated and not self.shares


FREE = DeviceUsage()


def counted_results(claim: ResourceClaim) -> tuple[DeviceRequestAllocationResult, ...]:
    """The claim's results that occupy a device. Admin access occupies nothing."""
    allocation = claim.status.allocation
    results = allocation.devices.results if allocation is not None else ()
    return tuple(result for result in results if not result.admin_access)


def devices_used(claim: ResourceClaim) -> set[DeviceId]:
    """The devices that the claim occupies."""
    return {DeviceId.of(result) for result in counted_results(claim)}


def pools_used(claim: ResourceClaim) -> set[PoolId]:
    """The pools of the devices that the claim occupies."""
    return {PoolId.of_result(result) for result in counted_results(claim)}
