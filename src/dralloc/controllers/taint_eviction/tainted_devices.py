"""Which devices have taints that evict (NoExecute), by their slices or by rules, and which are struck by a change.

Only the newest generation of a pool counts. A rule holds for devices by their names alone, also for one whose slice is
gone: its pods are still there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from dralloc.api.resource_v1 import (
    NO_EXECUTE,
    DeviceTaint,
    DeviceTaintRule,
    DeviceTaintSelector,
    ResourceSlice,
)
from dralloc.devices.identity import DeviceId, PoolId


class ActiveTaint(NamedTuple):
    """A taint on a device, and the name of the rule that put it there; none if a slice did."""

    taint: DeviceTaint
    rule: str | None


_ByDevice = Mapping[str, tuple[DeviceTaint, ...]]


class TaintedDevices:
    """Follows slices and rules."""

    def __init__(self) -> None:
        # By pool and slice: the slice's generation, and its tainted devices.
        self._slices: dict[PoolId, dict[str, tuple[int, _ByDevice]]] = {}
        self._pools: dict[PoolId, _ByDevice] = {}
        self._rules: dict[str, DeviceTaintRule] = {}

    def __bool__(self) -> bool:
        """Whether anything can evict at all; in most clusters, most of the time, nothing can."""
        return bool(self._rules or self._pools)

    def taints_of(self, device: DeviceId) -> Iterator[ActiveTaint]:
        for taint in self._pools.get(device.pool_id, {}).get(device.device, ()):
            yield ActiveTaint(taint, None)
        for name, rule in self._rules.items():
            if selects(rule.spec.device_selector, device):
                yield ActiveTaint(rule.spec.taint, name)

    def is_tainted(self, device: DeviceId) -> bool:
        return any(True for _ in self.taints_of(device))

    def put_rule(self, rule: DeviceTaintRule) -> None:
        if rule.spec.taint.effect == NO_EXECUTE:
            self._rules[rule.metadata.name] = rule
        else:
            self._rules.pop(rule.metadata.name, None)

    def remove_rule(self, name: str) -> None:
        self._rules.pop(name, None)

    def change_slice(self, before: ResourceSlice | None, after: ResourceSlice | None) -> set[DeviceId]:
        """Take in a change of a slice; returns the devices whose taints changed."""
        touched = {PoolId.of_slice(item) for item in (before, after) if item is not None}
        if before is not None:
            self._slices.get(PoolId.of_slice(before), {}).pop(before.metadata.name, None)
        if after is not None:
            content = (after.spec.pool.generation, _tainted(after))
            self._slices.setdefault(PoolId.of_slice(after), {})[after.metadata.name] = content
        return {device for pool_id in touched for device in self._refresh(pool_id)}

    def _refresh(self, pool_id: PoolId) -> Iterator[DeviceId]:
        slices = self._slices.get(pool_id, {})
        if not slices:
            self._slices.pop(pool_id, None)
        newest = max((generation for generation, _ in slices.values()), default=0)
        current: dict[str, tuple[DeviceTaint, ...]] = {}
        for generation, tainted in slices.values():
            if generation == newest:
                current.update(tainted)
        before = self._pools.pop(pool_id, {})
        if current:
            self._pools[pool_id] = current
        for device in before.keys() | current.keys():
            if before.get(device) != current.get(device):
                yield pool_id.device(device)


def selects(selector: DeviceTaintSelector | None, device: DeviceId) -> bool:
    """Whether a rule with this selector means the device. An empty selector means every device, none at all means none."""
    if selector is None:
        return False
    parts = ((selector.driver, device.driver), (selector.pool, device.pool), (selector.device, device.device))
    return all(wanted is None or wanted == actual for wanted, actual in parts)


def published_devices(slices: Iterable[ResourceSlice]) -> Iterator[DeviceId]:
    """The devices that drivers offer now: those of the newest generation of each pool."""
    pools: dict[PoolId, list[ResourceSlice]] = {}
    for item in slices:
        pools.setdefault(PoolId.of_slice(item), []).append(item)
    for pool_id, members in pools.items():
        newest = max(item.spec.pool.generation for item in members)
        for item in members:
            if item.spec.pool.generation == newest:
                yield from (pool_id.device(device.name) for device in item.spec.devices or ())


def _tainted(item: ResourceSlice) -> _ByDevice:
    by_device = {}
    for device in item.spec.devices or ():
        if taints := tuple(taint for taint in device.taints if taint.effect == NO_EXECUTE):
            by_device[device.name] = taints
    return by_device
