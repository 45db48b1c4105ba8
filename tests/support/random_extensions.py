"""Random allocation problems with the features that are off by default: a random world, changed by a seed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from random import Random

from msgspec.structs import replace

from dralloc.api import resource_v1
from tests.support.plain_pools import World
from tests.support.random_worlds import MODEL, NUMA


def with_distinct_attributes(world: World, seed: int) -> World:
    """Some constraints require that devices differ in the NUMA node or in the model."""
    random = Random(seed)

    def change(constraint: resource_v1.DeviceConstraint) -> resource_v1.DeviceConstraint:
        if random.random() < 0.3:
            return constraint
        return resource_v1.DeviceConstraint(requests=constraint.requests, distinct_attributes=(NUMA, MODEL))

    changed = _with_claims(world, lambda devices: replace(devices, constraints=tuple(map(change, devices.constraints))))
    return dataclasses.replace(changed, features=dataclasses.replace(world.features, distinct_attributes=True))


def _with_claims(world: World, change: Callable[[resource_v1.DeviceClaim], resource_v1.DeviceClaim]) -> World:
    claims = tuple(
        replace(claim, spec=replace(claim.spec, devices=change(claim.spec.devices))) for claim in world.claims
    )
    return dataclasses.replace(world, claims=claims)
