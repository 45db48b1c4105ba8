"""Random allocation problems: small, crowded, with every feature, so that searches backtrack. A seed determines the problem."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import fields
from random import Random
from typing import TypedDict, TypeVar

from msgspec.structs import replace

from dralloc.devices.allocator.features import Features
from dralloc.kube import device_parts as parts
from dralloc.kube import resource_v1
from dralloc.testing import builders as build
from tests.support.plain_pools import World

DRIVERS = ("gpu.example.com", "nic.example.org")
NUMA = "gpu.example.com/numa"
MODEL = "gpu.example.com/model"
FEATURES = (
    "admin_access",
    "prioritized_list",
    "consumable_capacity",
    "fractional_ranges",
    "partitionable_devices",
    "device_taints",
    "binding_conditions",
)
# The last expressions fail on devices without the attribute.
SELECTORS = (
    'device.driver == "gpu.example.com"',
    "device.allowMultipleAllocations",
    "!device.allowMultipleAllocations",
    'device.attributes["gpu.example.com"].?numa.orValue(0) == 0',
    'device.attributes["gpu.example.com"].?numa.orValue(1) == 1',
    'device.attributes["gpu.example.com"].?model.orValue("a") == "a"',
    'device.attributes["gpu.example.com"].numa == 0',
    'device.attributes["gpu.example.com"].model != "b"',
)
GUARDED = 6
# What requests derive; the last expression fails on devices without the attribute.
DERIVED = (
    'device.attributes["gpu.example.com"].?numa.orValue(1)',
    'device.attributes["gpu.example.com"].?numa.orValue(0) * 2',
    'device.attributes["gpu.example.com"].?model.orValue("b")',
    "device.driver",
    "1",
    "[0, 1]",
    'device.attributes["gpu.example.com"].numa',
)
DERIVED_GUARDED = 6

Stated = TypeVar("Stated", resource_v1.ExactDeviceRequest, resource_v1.DeviceSubRequest)


class _Wishes(TypedDict):
    device_class: str
    count: int
    everything: bool
    where: tuple[str, ...]
    capacity: dict[str, str] | None
    tolerations: tuple[resource_v1.DeviceToleration, ...]


def random_world(seed: int) -> World:
    return _Maker(Random(seed)).world()


def with_derived_attributes(world: World, seed: int) -> World:
    """The world with requests that derive what their constraints compare."""
    random = Random(seed)
    expressions = DERIVED if random.random() < 0.2 else DERIVED[:DERIVED_GUARDED]

    def derive(stated: Stated) -> Stated:
        names = [name for name in (NUMA, MODEL) if random.random() < 0.5]
        return replace(
            stated,
            derived_attributes=tuple(
                resource_v1.DeviceDerivedAttribute(name=name, expression=random.choice(expressions)) for name in names
            ),
        )

    def derive_all(claim: resource_v1.ResourceClaim) -> resource_v1.ResourceClaim:
        devices = claim.spec.devices
        requests = tuple(
            replace(
                request,
                exactly=request.exactly and derive(request.exactly),
                first_available=tuple(map(derive, request.first_available)),
            )
            for request in devices.requests or ()
        )
        return replace(claim, spec=replace(claim.spec, devices=replace(devices, requests=requests)))

    features = dataclasses.replace(world.features, derived_attributes=True)
    return dataclasses.replace(world, features=features, claims=tuple(map(derive_all, world.claims)))


class _Maker:
    def __init__(self, random: Random) -> None:
        self._random = random
        self._chance = random.random
        # Each world has its own weights: some are mostly about capacity, others about constraints.
        self._shareable = random.choice((0.0, 0.3, 1.0))
        self._drawing = random.choice((0.0, 0.0, 0.7))
        self._tainted = random.choice((0.0, 0.2))
        self._failing = random.choice((0.0, 0.0, 0.1))
        self._uniform = random.random() < 0.4
        # Many small requests for about as many devices, so that the first solution takes many steps.
        self._tight = random.random() < 0.3
        # Large requests, so that a claim may exceed the limit of results.
        self._wide = random.random() < 0.1
        self._admin = random.choice((0.02, 0.02, 0.4))

    def world(self) -> World:
        slices = tuple(self._slices())
        features = self._features()
        # Admin access matters only with at least two claims.
        claims_count = 1 + (self._chance() < (0.8 if self._admin > 0.1 else 0.3))
        claims = tuple(self._claim(f"claim-{index}", features) for index in range(claims_count))
        return World(
            slices=slices,
            claims=claims,
            classes={"any": build.device_class("any"), "some": build.device_class("some", self._selectors(0.5))},
            node=build.node("node-a", zone="z1"),
            features=features,
            allocated=tuple(self._allocated(slices)),
            rules=tuple(self._rules()),
        )

    def _features(self) -> Features:
        off = {name for name in FEATURES if self._chance() < 0.08}
        if self._chance() < 0.8:
            off = set()
        values = {each.name: each.default for each in fields(Features)}
        return Features(**{name: bool(value) and name not in off for name, value in values.items()})

    # --- Slices -----------------------------------------------------------------------------------------------------

    def _slices(self) -> Iterator[resource_v1.ResourceSlice]:
        for pool in range(self._random.choice((1, 1, 2))):
            driver = DRIVERS[0] if self._chance() < 0.7 else DRIVERS[1]
            yield from self._pool(driver, f"pool-{pool}")

    def _pool(self, driver: str, pool: str) -> Iterator[resource_v1.ResourceSlice]:
        count = self._random.choice((1, 1, 2))
        generation = self._random.choice((1, 1, 2))
        is_drawing = self._chance() < self._drawing
        announced = count + is_drawing + (self._chance() < 0.02)
        per_device = self._chance() < 0.1
        on_all = self._chance() < 0.2
        for index in range(count):
            names = (f"dev-{index}-{number}" for number in range(self._random.randint(2, 14 if self._wide else 6)))
            yield build.resource_slice(
                f"{driver}-{pool}-{index}",
                *(self._device(name, is_drawing, per_device) for name in names),
                driver=driver,
                pool=pool,
                generation=generation - (self._chance() < 0.03),
                of=announced,
                all_nodes=True if on_all and not per_device else None,
                node_name="node-a" if self._chance() < 0.95 else "node-b",
                per_device=True if per_device else None,
            )
        if is_drawing:
            amounts = {
                name: {"units": str(self._random.randint(3, 6)), "memory": str(self._random.randint(4, 9))}
                for name in ("card-0", "card-1")
            }
            yield build.resource_slice(
                f"{driver}-{pool}-counters",
                driver=driver,
                pool=pool,
                generation=generation,
                of=announced,
                all_nodes=True,
                counters=amounts,
            )

    def _device(self, name: str, is_drawing: bool, per_device: bool) -> resource_v1.Device:
        pick = self._random.choice
        attributes: dict[str, parts.AttributeValue] = {}
        if self._uniform or self._chance() < 0.85:
            attributes[pick(("numa", NUMA))] = pick((0, 0, 0, 1, 1, 2, 3))
        if self._uniform or self._chance() < 0.7:
            attributes["model"] = pick(("a", "b"))
        is_shareable = self._chance() < self._shareable
        draws = {
            pick(("card-0", "card-1")): {
                "units": pick("012"),
                **({"memory": pick("123")} if self._chance() < 0.5 else {}),
            }
        }
        return build.device(
            name,
            attributes=attributes,
            capacity=self._capacities() if is_shareable or self._chance() < 0.2 else None,
            shareable=is_shareable or None,
            draws=draws if is_drawing and self._chance() < 0.8 else None,
            taints=[build.taint("broken", pick("xy"), pick((resource_v1.NO_SCHEDULE, resource_v1.NO_EXECUTE, "None")))]
            if self._chance() < self._tainted
            else (),
            node_name=pick(("node-a", "node-a", "node-b")) if per_device else None,
            binding_conditions=("ready",) if self._chance() < 0.03 else (),
        )

    def _capacities(self) -> dict[str, str | resource_v1.DeviceCapacity]:
        names = ("memory", "slots") if self._chance() < 0.3 else ("memory",)
        return {name: self._capacity() for name in names}

    def _capacity(self) -> resource_v1.DeviceCapacity:
        value = str(self._random.randint(2, 14 if self._wide else 6))
        match self._random.randrange(6):
            case 0:
                return parts.capacity(value, default="1")
            case 1:
                return parts.capacity(value, default="1", valid=("1", "3"))
            case 2:
                return parts.capacity(value, default="1", minimum="1", step="2")
            case 3:
                return parts.capacity(value, default="0", minimum="0", maximum="3")
            case _:
                return parts.capacity(value)

    def _rules(self) -> Iterator[resource_v1.DeviceTaintRule]:
        if self._chance() < 0.1:
            driver, device = self._random.choice((*DRIVERS, None)), self._random.choice(("dev-0-0", None))
            yield build.taint_rule("rule", build.taint("broken", "z"), driver=driver, device=device)

    # --- Usage ------------------------------------------------------------------------------------------------------

    def _allocated(self, slices: tuple[resource_v1.ResourceSlice, ...]) -> Iterator[resource_v1.ResourceClaim]:
        for each in slices:
            for device in each.spec.devices or ():
                if self._chance() > 0.1:
                    continue
                is_share = bool(device.allow_multiple_allocations) and self._chance() < 0.8
                consumed = {name: self._random.choice("12") for name in device.capacity}
                result = build.held(
                    device.name,
                    driver=each.spec.driver,
                    pool=each.spec.pool.name,
                    share_id="share" if is_share else None,
                    consumed=consumed if is_share else None,
                    admin=True if self._chance() < 0.1 else None,
                )
                yield build.claim(f"held-{each.metadata.name}-{device.name}", allocation=build.allocation(result))

    # --- Claims -----------------------------------------------------------------------------------------------------

    def _claim(self, name: str, features: Features) -> resource_v1.ResourceClaim:
        requests = [
            self._request(f"r{index}", features)
            for index in range(self._random.choice((4, 5, 6) if self._tight else (1, 2, 3, 3, 4, 5)))
        ]
        constraints = [self._constraint(requests) for _ in range(self._random.choice((0, 1, 1, 2)))]
        return build.claim(name, *requests, constraints=constraints)

    def _request(self, name: str, features: Features) -> resource_v1.DeviceRequest:
        if features.prioritized_list and self._chance() < 0.3:
            count = self._random.choice((1, 2, 3))
            return build.first_available(
                name, *(build.alternative(f"s{index}", **self._wishes(features)) for index in range(count))
            )
        is_admin = features.admin_access and self._chance() < self._admin
        return build.request(name, admin=True if is_admin else None, **self._wishes(features))

    def _wishes(self, features: Features) -> _Wishes:
        uses_consumable_capacity = features.consumable_capacity and self._chance() < 0.6 * self._shareable
        return {
            "device_class": "any" if self._chance() < 0.8 else "some",
            "count": self._random.choice(self._counts()),
            "everything": self._chance() < 0.04,
            "where": self._selectors(0.5 if self._tight else 0.25),
            "capacity": {self._random.choice(("memory",) * 12 + ("slots",)): self._random.choice("1123")}
            if uses_consumable_capacity
            else None,
            "tolerations": tuple(self._tolerations()),
        }

    def _counts(self) -> tuple[int, ...]:
        if self._wide:
            return (1, 2, 9, 14, 16)
        return (1,) if self._tight else (1, 1, 1, 1, 2, 2, 3)

    def _tolerations(self) -> Iterator[resource_v1.DeviceToleration]:
        if self._chance() < self._tainted * 2:
            yield build.toleration("broken", self._random.choice(("x", "y", None)))

    def _selectors(self, likelihood: float) -> tuple[str, ...]:
        if self._chance() > likelihood:
            return ()
        return (self._random.choice(SELECTORS if self._chance() < self._failing * 5 else SELECTORS[:GUARDED]),)

    def _constraint(self, requests: list[resource_v1.DeviceRequest]) -> resource_v1.DeviceConstraint:
        names = [
            name
            for request in requests
            for name in (request.name, *(f"{request.name}/{sub.name}" for sub in request.first_available))
        ]
        covered = (
            () if self._chance() < 0.3 else tuple(self._random.sample(names, k=self._random.randint(1, len(names))))
        )
        kind = build.match if self._chance() < 0.6 else build.distinct
        return kind(self._random.choice((NUMA, NUMA, NUMA, MODEL)), *covered)
