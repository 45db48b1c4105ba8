"""Random allocation problems with the features that are off by default: a random world, changed by a seed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from random import Random
from typing import Any

from msgspec.structs import replace

from dralloc.kube import device_parts as parts
from dralloc.kube import resource_v1
from dralloc.primitives.quantity import Quantity
from tests.support.plain_pools import World
from tests.support.random_worlds import MODEL, NUMA, Stated


def with_distinct_attributes(world: World, seed: int) -> World:
    """Some constraints require that devices differ in the NUMA node or in the model."""
    random = Random(seed)

    def change(constraint: resource_v1.DeviceConstraint) -> resource_v1.DeviceConstraint:
        if random.random() < 0.3:
            return constraint
        return resource_v1.DeviceConstraint(requests=constraint.requests, distinct_attributes=(NUMA, MODEL))

    changed = _with_claims(world, lambda devices: replace(devices, constraints=tuple(map(change, devices.constraints))))
    return dataclasses.replace(changed, features=dataclasses.replace(world.features, distinct_attributes=True))


def with_preferences(world: World, seed: int) -> World:
    """Requests and classes prefer devices, and some ask how often a device is allocated."""
    random = Random(seed)
    values = (None, resource_v1.FIRST_FIT, resource_v1.LEAST_AVAILABLE, resource_v1.MOST_AVAILABLE)
    is_conditional = random.random() < 0.5

    def prefer(stated: Stated) -> Stated:
        limits = None
        if is_conditional and random.random() < 0.5 and stated.allocation_mode != resource_v1.ALL:
            limits = random.choice(((0, 0), (1, None), (None, 1), (1, 2), (None, 0), (2, None)))
        return replace(
            stated,
            device_preference=random.choice(values),
            allocations=limits and resource_v1.DeviceAllocationsRange(min=limits[0], max=limits[1]),
        )

    changed = _with_requests(world, prefer)
    classes = {
        name: replace(each, spec=replace(each.spec, device_preference=random.choice(values)))
        for name, each in world.classes.items()
    }
    features = dataclasses.replace(world.features, device_preference=True)
    return dataclasses.replace(changed, features=features, classes=classes)


def with_aggregated_capacity(world: World, seed: int) -> World:
    """Some requests want a capacity of several devices together, and most devices have it."""
    random = Random(seed)

    def aggregate(stated: Stated) -> Stated:
        is_admin = isinstance(stated, resource_v1.ExactDeviceRequest) and stated.admin_access
        if is_admin or random.random() < 0.4:
            return stated
        names = ("memory", "slots") if random.random() < 0.15 else ("memory",)
        totals = {name: Quantity.parse(str(random.choice((1, 2, 3, 4, 5, 6, 8)))) for name in names}
        return replace(
            stated,
            allocation_mode=resource_v1.AGGREGATED_CAPACITY,
            count=random.choice((1, 2, 2, 3, 4, 32)),
            capacity=resource_v1.CapacityRequirements(requests=totals),
        )

    def equip(device: resource_v1.Device) -> resource_v1.Device:
        if "memory" in device.capacity or random.random() < 0.15:
            return device
        return replace(device, capacity={**device.capacity, **parts.capacities({"memory": random.choice("2345")})})

    if not world.features.consumable_capacity:
        return world
    most = random.choice((1, 2, 2, 3, 8))
    few = _with_claims(world, lambda devices: replace(devices, requests=(devices.requests or ())[:most]))
    changed = _with_requests(few, aggregate)
    slices = tuple(
        replace(each, spec=replace(each.spec, devices=each.spec.devices and tuple(map(equip, each.spec.devices))))
        for each in world.slices
    )
    changed = dataclasses.replace(changed, slices=slices)
    return dataclasses.replace(changed, features=dataclasses.replace(world.features, aggregated_capacity=True))


def _with_requests(world: World, change: Callable[[Any], Any]) -> World:
    def change_all(devices: resource_v1.DeviceClaim) -> resource_v1.DeviceClaim:
        requests = tuple(
            replace(
                request,
                exactly=request.exactly and change(request.exactly),
                first_available=tuple(map(change, request.first_available)),
            )
            for request in devices.requests or ()
        )
        return replace(devices, requests=requests)

    return _with_claims(world, change_all)


def _with_claims(world: World, change: Callable[[resource_v1.DeviceClaim], resource_v1.DeviceClaim]) -> World:
    claims = tuple(
        replace(claim, spec=replace(claim.spec, devices=change(claim.spec.devices))) for claim in world.claims
    )
    return dataclasses.replace(world, claims=claims)
