"""Random allocation problems with limits, strategies, named policies, capacities that are not consumed, and remainders."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from random import Random

from msgspec.structs import replace

from dralloc.kube import device_parts as parts
from dralloc.kube import resource_v1
from dralloc.primitives.quantity import Quantity
from dralloc.testing import builders as build
from tests.support.plain_pools import World
from tests.support.random_worlds import Stated

CAPACITY_FEATURES = (
    "capacity_limits",
    "capacity_strategies",
    "named_request_policies",
    "zero_consumption",
    "capacity_remainder",
)


def with_capacity_features(world: World, seed: int) -> World:
    """The world with limits, strategies, named policies, capacities that are not consumed, and remainders, in combination."""
    return _CapacityFeatures(Random(f"capacity {seed}")).world(world)


class _CapacityFeatures:
    def __init__(self, random: Random) -> None:
        self._random = random
        self._chance = random.random
        # Each world has its own weights.
        self._strategic = random.choice((0.3, 0.6, 0.9))
        self._named = random.choice((0.0, 0.4))
        self._free = random.choice((0.0, 0.3))
        self._last = random.choice((0.0, 0.4, 0.8))
        self._limited = random.choice((0.0, 0.2))
        self._shared = random.choice((0.0, 0.1, 0.4))
        self._off = {name for name in CAPACITY_FEATURES if random.random() < 0.05}

    def world(self, world: World) -> World:
        if not world.features.consumable_capacity:
            self._limited = 0.0
        on = {name: name not in self._off for name in CAPACITY_FEATURES}
        slices = tuple(map(self._slice, world.slices))
        return dataclasses.replace(
            world,
            features=dataclasses.replace(world.features, **on),
            slices=slices,
            claims=tuple(map(self._claim, world.claims)),
            allocated=(*world.allocated, *self._allocated(slices)),
        )

    def _slice(self, each: resource_v1.ResourceSlice) -> resource_v1.ResourceSlice:
        devices = each.spec.devices
        if devices is not None:
            devices = tuple(self._device(device) if device.capacity else device for device in devices)
        return replace(each, spec=replace(each.spec, devices=devices))

    def _device(self, device: resource_v1.Device) -> resource_v1.Device:
        pick = self._random.choice
        policies: dict[str, resource_v1.CapacityRequestPolicy] = {}
        capacities: dict[str, resource_v1.DeviceCapacity] = {}
        names = dict(device.capacity)
        if "slots" not in names and self._chance() < 0.3:
            names["slots"] = parts.capacity(pick("246"), default="1")
        for name, capacity in names.items():
            changed = self._policy(capacity)
            if changed.request_policy is not None and self._chance() < self._named:
                policies[f"of-{name}"] = changed.request_policy
                changed = replace(changed, request_policy=None, request_policy_name=f"of-{name}")
            capacities[name] = changed
        remainder = pick(("GiveToLast", "GiveToLast", "Keep")) if self._chance() < self._last else None
        return replace(device, capacity=capacities, request_policies=policies, remainder=remainder)

    def _policy(self, capacity: resource_v1.DeviceCapacity) -> resource_v1.DeviceCapacity:
        policy = capacity.request_policy or resource_v1.CapacityRequestPolicy()
        if self._chance() < self._free:
            policy = resource_v1.CapacityRequestPolicy(zero_consumption=True)
        elif self._chance() < self._strategic:
            strategy = self._random.choice(("ConsumedOrNever", "ConsumedOrNever", "BlockOrShare", "AlwaysConsumed"))
            policy = replace(policy, strategy=strategy)
        return replace(capacity, request_policy=policy if policy != resource_v1.CapacityRequestPolicy() else None)

    def _claim(self, claim: resource_v1.ResourceClaim) -> resource_v1.ResourceClaim:
        requests = tuple(
            replace(
                request,
                exactly=request.exactly and self._limit(request.exactly),
                first_available=tuple(map(self._limit, request.first_available)),
            )
            for request in claim.spec.devices.requests or ()
        )
        return replace(claim, spec=replace(claim.spec, devices=replace(claim.spec.devices, requests=requests)))

    def _limit(self, stated: Stated) -> Stated:
        if "capacity_limits" in self._off or self._chance() > self._limited:
            return stated
        asked = stated.capacity or resource_v1.CapacityRequirements()
        name = self._random.choice(("memory",) * 8 + ("slots",))
        limit = Quantity.parse(self._random.choice("1123"))
        least = asked.requests.get(name, limit)
        return replace(stated, capacity=replace(asked, limits={name: max(limit, least)}))

    def _allocated(self, slices: tuple[resource_v1.ResourceSlice, ...]) -> Iterator[resource_v1.ResourceClaim]:
        """More shares, with and without entries for capacities."""
        for each in slices:
            for device in each.spec.devices or ():
                if not device.allow_multiple_allocations or self._chance() > self._shared:
                    continue
                is_consumed = self._chance() < 0.5
                consumed = {
                    name: self._random.choice("0011") for name in device.capacity if is_consumed or self._chance() < 0.2
                }
                result = build.held(
                    device.name,
                    driver=each.spec.driver,
                    pool=each.spec.pool.name,
                    share_id="another",
                    consumed=consumed,
                )
                yield build.claim(f"shared-{each.metadata.name}-{device.name}", allocation=build.allocation(result))
