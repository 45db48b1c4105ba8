"""How much of a cluster's devices is allocated, in thousandths of a device, kept up to date by the claims that change.

A device counts as the largest part that is consumed of one of its capacities, or as whole. Partitions of a card count as the
card: the mean part of the counters of its counter set that they draw.
"""

from __future__ import annotations

from collections.abc import Iterable

from dralloc.devices.counters import amounts_of, draws_of
from dralloc.devices.device_usage import DeviceUsage
from dralloc.devices.identity import DeviceId, PoolId
from dralloc.devices.snapshot import Snapshot
from dralloc.kube.resource_v1 import AllocationResult, Device
from dralloc.study.trace import WHOLE_DEVICE

# A device, or a counter set of a pool.
_Unit = tuple[PoolId, str, bool]


class DeviceMeter:
    """Measures the devices of one driver; of all if it is empty."""

    def __init__(self, snapshot: Snapshot, driver: str) -> None:
        self._devices: dict[DeviceId, Device] = {}
        self._sets: dict[tuple[PoolId, str], dict[str, int]] = {}
        self._used: dict[_Unit, int] = {}
        self.allocated_milli = 0
        for pool_id, pool in snapshot.pools.items():
            if driver in ("", pool_id.driver):
                self._add_pool(pool_id, (device for each in pool.slices for device in each.devices))
                for each in pool.slices:
                    for counter_id, nanos in amounts_of(each.source.spec.shared_counters or ()).items():
                        self._sets.setdefault((pool_id, counter_id.counter_set), {})[counter_id.counter] = nanos
        plain = sum(not device.consumes_counters for device in self._devices.values())
        self.capacity_milli = WHOLE_DEVICE * (plain + len(self._sets))
        held = (claim.status.allocation for claim in snapshot.claims.values())
        self.update(snapshot, (allocation for allocation in held if allocation is not None))

    def _add_pool(self, pool_id: PoolId, devices: Iterable[Device]) -> None:
        for device in devices:
            self._devices[DeviceId(pool_id.driver, pool_id.pool, device.name)] = device

    def update(self, snapshot: Snapshot, allocations: Iterable[AllocationResult]) -> None:
        """Takes over the devices of these allocations, which were made or released."""
        for allocation in allocations:
            for result in allocation.devices.results:
                if (device := self._devices.get(DeviceId.of(result))) is not None:
                    self._update_device(snapshot, PoolId.of_result(result), device)

    def _update_device(self, snapshot: Snapshot, pool_id: PoolId, device: Device) -> None:
        if not device.consumes_counters:
            used = snapshot.usage[pool_id].of(device.name) if pool_id in snapshot.usage else DeviceUsage()
            self._set((pool_id, device.name, False), used_milli(device, used))
        for name in {use.counter_set for use in device.consumes_counters}:
            self._set((pool_id, name, True), self._drawn_milli(snapshot, pool_id, name))

    def _drawn_milli(self, snapshot: Snapshot, pool_id: PoolId, counter_set: str) -> int:
        values = self._sets.get((pool_id, counter_set), {})
        drawn = dict.fromkeys(values, 0)
        usage = snapshot.usage.get(pool_id)
        for name in usage.devices if usage is not None else ():
            device = self._devices.get(DeviceId(pool_id.driver, pool_id.pool, name))
            for counter_id, nanos in draws_of(device) if device is not None else ():
                if counter_id.counter_set == counter_set:
                    drawn[counter_id.counter] += nanos
        parts = [WHOLE_DEVICE * drawn[name] // value for name, value in values.items() if value]
        return sum(parts) // len(parts) if parts else 0

    def _set(self, unit: _Unit, milli: int) -> None:
        self.allocated_milli += milli - self._used.get(unit, 0)
        self._used[unit] = milli


def used_milli(device: Device, usage: DeviceUsage) -> int:
    """The thousandths of a device that are allocated."""
    if usage.dedicated:
        return WHOLE_DEVICE
    values = {name: each.value.nanos for name, each in device.capacity.items()}
    parts = [WHOLE_DEVICE * nanos // values[name] for name, nanos in usage.consumed.items() if values.get(name)]
    return min(WHOLE_DEVICE, max(parts, default=WHOLE_DEVICE if usage.shares else 0))
