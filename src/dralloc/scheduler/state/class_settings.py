"""Preference and strategies of device classes from the scheduler's configuration, for API servers that drop these fields.

What the API objects say wins. Only this scheduler knows the settings: no server checks what another scheduler writes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from dralloc.cel.errors import CelError
from dralloc.cel.program import compile_selector
from dralloc.devices.share_terms import capacities_of
from dralloc.devices.slices import DeviceShape
from dralloc.kube.resource_v1 import CapacityRequestPolicy, Device, DeviceCapacity, DeviceClass, ResourceSlice
from dralloc.kube.wire import map_changed


class ClassSettings(Struct, frozen=True):
    """The preference of requests for a class, and the strategy of each capacity of its devices."""

    device_preference: str | None = None
    strategies: Mapping[str, str] = {}


NO_SETTINGS: Final[Mapping[str, ClassSettings]] = {}


class ConfiguredClasses:
    """Applies the settings to classes and slices. It keeps slices only if there are strategies to apply to them."""

    def __init__(self, settings: Mapping[str, ClassSettings] = NO_SETTINGS) -> None:
        self._settings = settings
        self._with_strategies = tuple(name for name, each in settings.items() if each.strategies)
        self._classes: dict[str, DeviceClass] = {}
        self._slices: dict[str, ResourceSlice] = {}

    def with_preference(self, obj: DeviceClass) -> DeviceClass:
        settings = self._settings.get(obj.metadata.name)
        if settings is None or settings.device_preference is None or obj.spec.device_preference is not None:
            return obj
        return replace(obj, spec=replace(obj.spec, device_preference=settings.device_preference))

    def with_strategies(self, before: ResourceSlice | None, after: ResourceSlice | None) -> ResourceSlice | None:
        """The slice with the strategies of the classes that its devices belong to."""
        if not self._with_strategies:
            return after
        if after is None:
            if before is not None:
                self._slices.pop(before.metadata.name, None)
            return None
        self._slices[after.metadata.name] = after
        return self._amended(after)

    def class_changed(
        self, before: DeviceClass | None, after: DeviceClass | None
    ) -> Iterator[tuple[ResourceSlice, ResourceSlice]]:
        """Yields the slices whose strategies change with the class, before and after the change."""
        changed = after or before
        if changed is None or changed.metadata.name not in self._with_strategies:
            return
        seen = {name: self._amended(each) for name, each in self._slices.items()}
        if after is None:
            self._classes.pop(changed.metadata.name, None)
        else:
            self._classes[after.metadata.name] = after
        for name, each in self._slices.items():
            amended = self._amended(each)
            if amended != seen[name]:
                yield seen[name], amended

    def _amended(self, obj: ResourceSlice) -> ResourceSlice:
        devices = obj.spec.devices or ()
        changed = map_changed(devices, lambda device: self._amended_device(device, obj.spec.driver))
        return obj if changed is devices else replace(obj, spec=replace(obj.spec, devices=changed))

    def _amended_device(self, device: Device, driver: str) -> Device:
        if not device.allow_multiple_allocations or not device.capacity:
            return device
        strategies = self._strategies_of(device, driver)
        if not strategies:
            return device
        capacity = {name: _with_strategy(each, strategies.get(name)) for name, each in capacities_of(device).items()}
        return device if capacity == device.capacity else replace(device, capacity=capacity)

    def _strategies_of(self, device: Device, driver: str) -> dict[str, str]:
        """The strategy of each capacity. Of several classes, the first in the configuration decides."""
        found: dict[str, str] = {}
        for name in self._with_strategies:
            known = self._classes.get(name)
            if known is None or not _belongs_to(known, device, driver):
                continue
            for capacity, strategy in self._settings[name].strategies.items():
                found.setdefault(capacity.removeprefix(f"{driver}/"), strategy)
        return found


def _with_strategy(capacity: DeviceCapacity, strategy: str | None) -> DeviceCapacity:
    policy = capacity.request_policy or CapacityRequestPolicy()
    if strategy is None or policy.strategy or policy.zero_consumption:
        return capacity
    return replace(capacity, request_policy=replace(policy, strategy=strategy))


def _belongs_to(obj: DeviceClass, device: Device, driver: str) -> bool:
    """A device on which a selector fails belongs to no class; the allocator reports the failure."""
    try:
        view = DeviceShape(driver, device).view
        return all(
            selector.cel is not None and compile_selector(selector.cel.expression).matches(view)
            for selector in obj.spec.selectors
        )
    except CelError:
        return False
