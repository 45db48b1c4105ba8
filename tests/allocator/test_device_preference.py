"""`devicePreference` and `allocations`: which devices are tried first, and how often they may be allocated already."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from dralloc.devices.allocator.features import Features
from dralloc.devices.allocator.outcome import Allocated, Fatal, FatalCause
from dralloc.kube.device_parts import capacity as with_policy
from dralloc.kube.resource_v1 import (
    FIRST_FIT,
    LEAST_AVAILABLE,
    MOST_AVAILABLE,
    Device,
    DeviceClass,
    ResourceClaim,
)
from dralloc.testing.builders import (
    DRIVER,
    allocation,
    alternative,
    claim,
    device,
    device_class,
    distinct,
    first_available,
    held,
    node,
    request,
    resource_slice,
)
from tests.support.allocations import allocate_world, as_plain, reason_of
from tests.support.plain_allocator import allocate_plainly
from tests.support.plain_pools import World

FEATURES = replace(Features(), device_preference=True)


def gpus(**memory: str) -> tuple[Device, ...]:
    return tuple(device(name, capacity={"memory": amount}, shareable=True) for name, amount in memory.items())


def nics(*names: str) -> tuple[Device, ...]:
    """Shareable devices without capacity."""
    return tuple(device(name, shareable=True, attributes={"name": name}) for name in names)


def used(**amounts: str) -> tuple[ResourceClaim, ...]:
    """One share of each device."""
    return tuple(
        claim(f"held-{name}", allocation=allocation(held(name, share_id="s", consumed={"memory": amount})))
        for name, amount in amounts.items()
    )


def shared(**counts: int) -> tuple[ResourceClaim, ...]:
    """Shares of devices without capacity."""
    return tuple(
        claim(f"held-{name}-{number}", allocation=allocation(held(name, share_id=f"s{number}")))
        for name, count in counts.items()
        for number in range(count)
    )


MEMORY = {"memory": "10"}
MIXED = (*gpus(a="40"), *nics("n"))
TWO = claim(
    "c", request("r1", capacity=MEMORY, prefer=MOST_AVAILABLE), request("r2", capacity=MEMORY, prefer=MOST_AVAILABLE)
)


@dataclass(frozen=True)
class Case:
    """`want` has the devices of all results in order; empty if the node cannot serve the claims."""

    id: str
    devices: tuple[Device, ...]
    claims: tuple[ResourceClaim, ...]
    want: str
    allocated: tuple[ResourceClaim, ...] = ()
    classes: tuple[DeviceClass, ...] = (device_class(),)


def one(prefer: str | None, *, count: int = 1, capacity: dict[str, str] | None = MEMORY) -> tuple[ResourceClaim, ...]:
    return (claim("c", request("r", prefer=prefer, count=count, capacity=capacity)),)


def condition(low: int | None, high: int | None, prefer: str | None = None) -> tuple[ResourceClaim, ...]:
    return (claim("c", request("r", prefer=prefer, allocations=(low, high))),)


ABC = gpus(a="40", b="20", c="30")
NICS = nics("a", "b", "c")

CASES = [
    Case("none: first fit", ABC, one(None), "a"),
    Case("first fit", ABC, one(FIRST_FIT), "a"),
    Case("least available", ABC, one(LEAST_AVAILABLE), "b"),
    Case("most available", ABC, one(MOST_AVAILABLE), "a"),
    Case("shares in use count", ABC, one(MOST_AVAILABLE), "c", allocated=used(a="20")),
    Case("least that is enough", ABC, one(LEAST_AVAILABLE), "c", allocated=used(b="15")),
    Case("amounts, not parts of the device", gpus(a="80", b="40"), one(LEAST_AVAILABLE), "b", used(a="50", b="15")),
    Case("equal: more shares first", gpus(a="40", b="50"), one(LEAST_AVAILABLE), "b", used(b="10")),
    Case("equal: fewer shares first", gpus(a="50", b="40"), one(MOST_AVAILABLE), "b", used(a="10")),
    Case("equal: the total order", gpus(b="40", a="40"), one(MOST_AVAILABLE), "b"),
    Case("several devices in that order", ABC, one(LEAST_AVAILABLE, count=2), "b c"),
    Case("a later request sees what an earlier one took", gpus(a="30", b="25"), (TWO,), "a b"),
    Case("and may choose the same device", gpus(a="40", b="25"), (TWO,), "a a"),
    Case(
        "the capacity that is scarcest counts",
        tuple(
            device(name, shareable=True, capacity={"cores": cores, "memory": memory})
            for name, cores, memory in (("a", "8", "80"), ("b", "4", "90"), ("c", "9", "20"))
        ),
        one(LEAST_AVAILABLE, capacity={"cores": "2", "memory": "5"}),
        "b",
    ),
    Case("least available: devices with an end of it", MIXED, one(LEAST_AVAILABLE, capacity=None), "a"),
    Case("devices without end of it are most available", MIXED, one(MOST_AVAILABLE, capacity=None), "n"),
    Case(
        "without an amount, the default counts",
        tuple(
            device(name, shareable=True, capacity={"memory": with_policy("40", default=default)})
            for name, default in (("a", "10"), ("b", "4"), ("c", "20"))
        ),
        one(LEAST_AVAILABLE, capacity=None),
        "c",
    ),
    Case(
        "dedicated devices by what they have",
        tuple(device(n, capacity={"memory": v}) for n, v in (("a", "80"), ("b", "40"))),
        one(LEAST_AVAILABLE),
        "b",
    ),
    Case("without capacity, by shares: pack", NICS, one(LEAST_AVAILABLE, capacity=None), "b", shared(a=1, b=2)),
    Case("without capacity, by shares: spread", NICS, one(MOST_AVAILABLE, capacity=None), "c", shared(a=1, b=2)),
    Case("the class prefers", ABC, one(None), "b", classes=(device_class(prefer=LEAST_AVAILABLE),)),
    Case("the request wins", ABC, one(MOST_AVAILABLE), "a", classes=(device_class(prefer=LEAST_AVAILABLE),)),
    Case("the request wins with first fit", ABC, one(FIRST_FIT), "a", classes=(device_class(prefer=LEAST_AVAILABLE),)),
    Case(
        "all devices are all devices",
        ABC,
        (claim("c", request("r", everything=True, prefer=LEAST_AVAILABLE)),),
        "a b c",
    ),
    Case(
        "alternatives come before devices",
        ABC,
        (
            claim(
                "c",
                first_available(
                    "r", alternative("x", capacity={"memory": "25"}, prefer=LEAST_AVAILABLE), alternative("y")
                ),
            ),
        ),
        "c",
    ),
    Case(
        "never changes what is feasible: another device is tried if a later request needs it",
        gpus(a="10", b="20"),
        (claim("c", request("r1", capacity=MEMORY, prefer=MOST_AVAILABLE), request("r2", capacity={"memory": "20"})),),
        "a b",
    ),
    Case(
        "with a constraint",
        NICS,
        (
            claim(
                "c",
                request("r1", prefer=LEAST_AVAILABLE),
                request("r2", prefer=LEAST_AVAILABLE),
                constraints=[distinct(f"{DRIVER}/name")],
            ),
        ),
        "c b",
        shared(b=1, c=2),
    ),
    # --- allocations ---
    Case("never allocated", NICS, condition(None, 0), "b", shared(a=1)),
    Case("allocated before", NICS, condition(1, None), "b", shared(b=1, c=2)),
    Case("allocated between", NICS, condition(2, 3), "c", shared(a=1, b=4, c=2)),
    Case("no such device", NICS, condition(1, None), ""),
    Case("of those, the preferred", NICS, condition(1, 2, LEAST_AVAILABLE), "c", shared(a=3, b=1, c=2)),
    Case(
        "earlier requests of the pod count",
        NICS,
        (claim("c", request("r1", allocations=(0, 0)), request("r2", allocations=(0, 0))),),
        "a b",
    ),
    Case(
        "a request may ask for the device of an earlier one",
        NICS,
        (
            claim(
                "c",
                request("r1", where=f'device.attributes["{DRIVER}"].name == "b"'),
                request("r2", allocations=(1, None)),
            ),
        ),
        "b b",
    ),
    Case(
        "admin access does not count",
        NICS,
        condition(1, None),
        "b",
        (claim("admin", allocation=allocation(held("a", share_id="s", admin=True))), *shared(b=1)),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_which_device_is_chosen(case: Case) -> None:
    world = world_of(case.devices, case.claims, case.allocated, case.classes)
    outcome = allocate_world(world)
    devices = (
        [found.device.device for each in outcome.claims for found in each.devices]
        if isinstance(outcome, Allocated)
        else []
    )
    assert devices == case.want.split()
    assert as_plain(outcome, world.claims) == allocate_plainly(world)


def world_of(
    devices: tuple[Device, ...],
    claims: tuple[ResourceClaim, ...],
    allocated: tuple[ResourceClaim, ...] = (),
    classes: tuple[DeviceClass, ...] = (device_class(),),
    features: Features = FEATURES,
) -> World:
    return World(
        slices=(resource_slice("s", *devices),),
        claims=claims,
        classes={each.metadata.name or "": each for each in classes},
        node=node(),
        features=features,
        allocated=allocated,
    )


def test_devices_on_which_a_selector_fails_are_the_last_choice() -> None:
    failing = f'device.attributes["{DRIVER}"].name != "x"'
    devices = (*gpus(a="80"), *(device("n", shareable=True, attributes={"name": "n"}, capacity={"memory": "20"}),))
    preferred = world_of(devices, (claim("c", request("r", where=failing, capacity=MEMORY, prefer=MOST_AVAILABLE)),))
    outcome = allocate_world(preferred)
    assert isinstance(outcome, Allocated)
    assert outcome.claims[0].devices[0].device.device == "n"
    two = world_of(devices, (claim("c", request("r", count=2, where=failing, prefer=MOST_AVAILABLE)),))
    assert isinstance(allocate_world(two), Fatal)


@pytest.mark.parametrize(
    ("claims", "classes", "cause"),
    [
        (one(LEAST_AVAILABLE), (device_class(),), FatalCause.DEVICE_PREFERENCE_OFF),
        (one(None), (device_class(prefer=MOST_AVAILABLE),), FatalCause.DEVICE_PREFERENCE_OFF),
        (condition(None, 0), (device_class(),), FatalCause.ALLOCATIONS_OFF),
        (one(FIRST_FIT), (device_class(prefer=MOST_AVAILABLE),), None),
    ],
)
def test_a_claim_with_a_preference_is_refused_while_the_gate_is_off(
    claims: tuple[ResourceClaim, ...], classes: tuple[DeviceClass, ...], cause: FatalCause | None
) -> None:
    outcome = allocate_world(world_of(ABC, claims, classes=classes, features=Features()))
    assert (outcome.cause if isinstance(outcome, Fatal) else None) == cause


@pytest.mark.parametrize(
    ("claims", "allocated", "want"),
    [
        (condition(1, None), (), "no device has at least 1 allocations"),
        (condition(None, 0), shared(a=1, b=1, c=2), "no device has at most 0 allocations"),
        (condition(2, 3), shared(a=1, b=4), "no device has at least 2 and at most 3 allocations"),
        (
            (claim("c", request("r", count=2, allocations=(0, 0))),),
            shared(a=1, b=1),
            "only 1 of 2 devices: the others do not have at most 0 allocations",
        ),
    ],
)
def test_the_reason_is_how_often_devices_are_allocated(
    claims: tuple[ResourceClaim, ...], allocated: tuple[ResourceClaim, ...], want: str
) -> None:
    assert reason_of(world_of(NICS, claims, allocated)) == want


def test_an_unknown_preference_is_refused() -> None:
    outcome = allocate_world(world_of(ABC, one("Random")))
    assert isinstance(outcome, Fatal)
    assert outcome.cause is FatalCause.UNKNOWN_PREFERENCE
