"""The first part of the plain allocator: the pools of a node in order, and their remaining counters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from dralloc.devices.allocator.features import Features
from dralloc.devices.node_selectors import NodeFacts, NodeSelectorError, matches
from dralloc.kube.resource_v1 import Device, DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice


@dataclass(frozen=True)
class World:
    """The input of an allocation."""

    slices: tuple[ResourceSlice, ...]
    claims: tuple[ResourceClaim, ...]
    classes: Mapping[str, DeviceClass]
    node: NodeFacts
    features: Features = field(default_factory=Features)
    allocated: tuple[ResourceClaim, ...] = ()
    rules: tuple[DeviceTaintRule, ...] = ()


class PlainFatal(Exception):
    """The claim, request and device that failed, as far as they are known."""

    def __init__(self, claim: str | None = None, request: str | None = None, device: str | None = None) -> None:
        super().__init__(claim, request, device)
        self.at = (claim, request, device)


PoolKey = tuple[str, str]


@dataclass
class PlainPool:
    key: PoolKey
    is_incomplete: bool = False
    is_invalid: bool = False
    devices: list[tuple[ResourceSlice, Device]] = field(default_factory=list)
    # Remaining counters by set and name.
    counters: dict[tuple[str, str], int] = field(default_factory=dict)

    @property
    def is_bound(self) -> bool:
        return any(device.binding_conditions for _, device in self.devices)


class PlainPools:
    def __init__(self, world: World) -> None:
        self._world = world
        usable: dict[PoolKey, list[ResourceSlice]] = {}
        for each in sorted(world.slices, key=lambda each: (not each.spec.node_name, each.metadata.name or "")):
            if not self._is_hidden(each) and self._is_for_node(each):
                usable.setdefault((each.spec.driver, each.spec.pool.name), []).append(each)
        pools = [pool for key, slices in usable.items() if (pool := self._pool(key, slices)) is not None]
        self.ordered = sorted(pools, key=lambda pool: (pool.is_bound, pool.key))

    def _is_hidden(self, each: ResourceSlice) -> bool:
        spec, features = each.spec, self._world.features
        needs_partitions = spec.per_device_node_selection is not None or bool(spec.shared_counters)
        return (needs_partitions and not features.partitionable_devices) or self._has_hidden_groups(each)

    def _has_hidden_groups(self, each: ResourceSlice) -> bool:
        has_groups = any(
            use.compatibility_groups for device in each.spec.devices or () for use in device.consumes_counters
        )
        return has_groups and not self._world.features.compatibility_groups

    def _is_for_node(self, each: ResourceSlice) -> bool:
        try:
            if each.spec.per_device_node_selection:
                return any(is_placed(device, self._world.node) for device in each.spec.devices or ())
            return is_placed(each.spec, self._world.node)
        except NodeSelectorError:
            raise PlainFatal from None

    def _pool(self, key: PoolKey, usable: list[ResourceSlice]) -> PlainPool | None:
        generation = max(each.spec.pool.generation for each in usable)
        here = [each for each in usable if each.spec.pool.generation == generation]
        elsewhere: list[ResourceSlice] = []
        if len(here) != here[0].spec.pool.resource_slice_count:
            everywhere = [each for each in self._world.slices if (each.spec.driver, each.spec.pool.name) == key]
            if any(each.spec.pool.generation > generation for each in everywhere):
                return None
            same = [each for each in everywhere if each.spec.pool.generation == generation]
            elsewhere = [each for each in same if each not in here and not self._has_hidden_groups(each)]
            if len(here) + len(elsewhere) != here[0].spec.pool.resource_slice_count:
                return PlainPool(key, is_incomplete=True)
        return self._complete(key, sorted(here, key=lambda each: each.metadata.name or ""), elsewhere)

    def _complete(self, key: PoolKey, here: list[ResourceSlice], elsewhere: list[ResourceSlice]) -> PlainPool:
        pool = PlainPool(key)
        offered = [
            (each, device) for each in here if not each.spec.shared_counters for device in each.spec.devices or ()
        ]
        names = [device.name for _, device in offered]
        if len(set(names)) < len(names):
            pool.is_invalid = True
        if self._world.features.partitionable_devices:
            others = [(each, device) for each in elsewhere for device in each.spec.devices or ()]
            self._count(pool, [*here, *elsewhere], [device for _, device in offered + others])
        pool.devices = [] if pool.is_invalid else offered
        return pool

    def _count(self, pool: PlainPool, slices: list[ResourceSlice], devices: list[Device]) -> None:
        seen: set[str] = set()
        for each in slices:
            for counter_set in each.spec.shared_counters or ():
                pool.is_invalid = pool.is_invalid or counter_set.name in seen
                seen.add(counter_set.name)
                for name, counter in counter_set.counters.items():
                    pool.counters[counter_set.name, name] = counter.value.nanos
        for device in devices:
            for use in device.consumes_counters:
                if use.counter_set not in seen or any(
                    (use.counter_set, name) not in pool.counters for name in use.counters
                ):
                    pool.is_invalid = True
                    return
        used = {result.device for result in held_devices(self._world) if (result.driver, result.pool) == pool.key}
        for device in devices:
            if device.name in used:
                for counter_id, amount in draws_of(device):
                    pool.counters[counter_id] -= amount


def is_placed(placed: Any, node: NodeFacts) -> bool:
    if placed.node_name:
        return bool(placed.node_name == node.name)
    return bool(placed.all_nodes) or (placed.node_selector is not None and matches(placed.node_selector, node))


def held_devices(world: World) -> Iterator[Any]:
    for claim in world.allocated:
        if claim.status.allocation is not None:
            yield from (result for result in claim.status.allocation.devices.results if not result.admin_access)


def draws_of(device: Device) -> Iterator[tuple[tuple[str, str], int]]:
    for use in device.consumes_counters:
        for name, counter in use.counters.items():
            yield (use.counter_set, name), counter.value.nanos
