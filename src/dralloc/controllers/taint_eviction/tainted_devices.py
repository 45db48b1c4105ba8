"""The devices with NoExecute taints, from their slices or from rules.

Of slices, only the newest generation of a pool counts. A rule applies to devices by their names alone, even after the
slice is gone, because their pods may still run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from dralloc.devices.identity import DeviceId, PoolId
from dralloc.devices.published_slice import newest, newest_slices
from dralloc.devices.taints import TaintRules
from dralloc.kube.resource_v1 import NO_EXECUTE, DeviceTaint, DeviceTaintRule, ResourceSlice


class ActiveTaint(NamedTuple):
    """A taint on a device, and the name of the rule that it comes from; None if it comes from a slice."""

    taint: DeviceTaint
    rule: str | None


_ByDevice = Mapping[str, tuple[DeviceTaint, ...]]


class _TaintedSlice(NamedTuple):
    generation: int
    devices: _ByDevice


class TaintedDevices:
    """An index of NoExecute taints, kept up to date by changes of slices and rules."""

    def __init__(self) -> None:
        self._slices: dict[PoolId, dict[str, _TaintedSlice]] = {}
        self._pools: dict[PoolId, _ByDevice] = {}
        self._rules = TaintRules()

    def __bool__(self) -> bool:
        """True if any taint can evict; in most clusters, most of the time, none can."""
        return bool(self._rules or self._pools)

    def taints_of(self, device: DeviceId) -> Iterator[ActiveTaint]:
        for taint in self._pools.get(device.pool_id, {}).get(device.device, ()):
            yield ActiveTaint(taint, None)
        for entry in self._rules.taints_of(device):
            yield ActiveTaint(entry.taint, entry.rule)

    def is_tainted(self, device: DeviceId) -> bool:
        return any(True for _ in self.taints_of(device))

    def put_rule(self, rule: DeviceTaintRule) -> None:
        if rule.spec.taint.effect == NO_EXECUTE:
            self._rules = self._rules.with_rule(rule)
        else:
            self.remove_rule(rule.metadata.name)

    def remove_rule(self, name: str) -> None:
        self._rules = self._rules.without_rule(name)

    def change_slice(self, before: ResourceSlice | None, after: ResourceSlice | None) -> set[DeviceId]:
        """Apply a change of a slice; returns the devices whose taints changed."""
        touched = {PoolId.of_slice(item) for item in (before, after) if item is not None}
        if before is not None:
            self._slices.get(PoolId.of_slice(before), {}).pop(before.metadata.name, None)
        if after is not None:
            content = _TaintedSlice(after.spec.pool.generation, _tainted(after))
            self._slices.setdefault(PoolId.of_slice(after), {})[after.metadata.name] = content
        return {device for pool_id in touched for device in self._refresh(pool_id)}

    def _refresh(self, pool_id: PoolId) -> Iterator[DeviceId]:
        slices = self._slices.get(pool_id, {})
        if not slices:
            self._slices.pop(pool_id, None)
        current: dict[str, tuple[DeviceTaint, ...]] = {}
        for tainted in newest(slices.values(), _generation):
            current.update(tainted.devices)
        before = self._pools.pop(pool_id, {})
        if current:
            self._pools[pool_id] = current
        for device in before.keys() | current.keys():
            if before.get(device) != current.get(device):
                yield pool_id.device(device)


def published_devices(slices: Iterable[ResourceSlice]) -> Iterator[DeviceId]:
    """The devices of the newest generation of each pool."""
    for pool_id, current in newest_slices(slices).items():
        for item in current:
            yield from (pool_id.device(device.name) for device in item.spec.devices or ())


def _generation(tainted: _TaintedSlice) -> int:
    return tainted.generation


def _tainted(item: ResourceSlice) -> _ByDevice:
    by_device = {}
    for device in item.spec.devices or ():
        if taints := tuple(taint for taint in device.taints if taint.effect == NO_EXECUTE):
            by_device[device.name] = taints
    return by_device
