"""`allocationMode: AggregatedCapacity`: several devices that have a capacity together."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from dralloc.devices.allocator.features import Features
from dralloc.devices.allocator.outcome import Allocated, BudgetExhausted, Fatal, FatalCause, Impossible
from dralloc.kube.device_parts import capacity as with_policy
from dralloc.kube.resource_v1 import (
    BLOCK_OR_SHARE,
    LEAST_AVAILABLE,
    MOST_AVAILABLE,
    Device,
    DeviceRequest,
    ResourceClaim,
    ResourceSlice,
)
from dralloc.testing.builders import (
    CLASS,
    DRIVER,
    allocation,
    alternative,
    claim,
    device,
    device_class,
    distinct,
    first_available,
    held,
    match,
    node,
    request,
    resource_slice,
    taint,
    toleration,
)
from tests.support.allocations import allocate_world, as_plain, reason_of
from tests.support.plain_allocator import allocate_plainly
from tests.support.plain_pools import World

FEATURES = replace(Features(), aggregated_capacity=True, device_preference=True, capacity_strategies=True)
NUMA = f"{DRIVER}/numa"


def nics(**bandwidth: str) -> tuple[Device, ...]:
    return tuple(device(name, capacity={"bandwidth": amount}, shareable=True) for name, amount in bandwidth.items())


def used(**amounts: str) -> tuple[ResourceClaim, ...]:
    return tuple(
        claim(f"held-{name}", allocation=allocation(held(name, share_id="s", consumed={"bandwidth": amount})))
        for name, amount in amounts.items()
    )


def total(amount: str, *, count: int = 32, prefer: str | None = None) -> tuple[ResourceClaim, ...]:
    return (claim("c", together(amount, count=count, prefer=prefer)),)


def together(
    amount: str, name: str = "r", *, count: int = 32, prefer: str | None = None, where: str = ""
) -> DeviceRequest:
    selectors = (where,) if where else ()
    return request(name, together=True, count=count, capacity={"bandwidth": amount}, prefer=prefer, where=selectors)


SMALL = f'device.capacity["{DRIVER}"].bandwidth == quantity("4")'
ABC = nics(a="4", b="6", c="8")
STEPS = tuple(
    device(name, shareable=True, capacity={"bandwidth": with_policy(value, default="2", minimum="2", step="3")})
    for name, value in (("a", "9"), ("b", "9"))
)
ON_NUMA = tuple(
    device(name, shareable=True, capacity={"bandwidth": "5"}, attributes={"numa": numa})
    for name, numa in (("a", 0), ("b", 1), ("c", 1))
)
TWO_CAPACITIES = tuple(
    device(name, shareable=True, capacity={"bandwidth": bandwidth, "queues": queues})
    for name, bandwidth, queues in (("a", "8", "1"), ("b", "2", "8"), ("c", "5", "5"))
)
SHARED_OR_BLOCKED = (
    device("a", shareable=True, capacity={"bandwidth": "8", "queues": "1"}),
    device(
        "b",
        shareable=True,
        capacity={"bandwidth": with_policy("8", default="2", strategy=BLOCK_OR_SHARE), "queues": "8"},
    ),
)
PARTITIONS = (
    device("p0", capacity={"bandwidth": "4"}, draws={"card": {"units": "2"}}),
    device("p1", capacity={"bandwidth": "4"}, draws={"card": {"units": "2"}}),
    device("p2", capacity={"bandwidth": "3"}, draws={"card": {"units": "1"}}),
)
COUNTERS = resource_slice("counters", counters={"card": {"units": "3"}}, of=2)


@dataclass(frozen=True)
class Case:
    """`want` has `device=amount` for each share and the name of each other device; empty if there is no solution."""

    id: str
    devices: tuple[Device, ...]
    claims: tuple[ResourceClaim, ...]
    want: str
    allocated: tuple[ResourceClaim, ...] = ()
    more: tuple[ResourceSlice, ...] = ()


CASES = [
    Case("one device is enough", ABC, total("5"), "b=5"),
    Case("two devices: the first gives all, the last the rest", ABC, total("10"), "a=4 b=6"),
    Case("fewest devices first", ABC, total("14"), "b=6 c=8"),
    Case("all of them", ABC, total("18"), "a=4 b=6 c=8"),
    Case("too much", ABC, total("19"), ""),
    Case("at most so many devices", ABC, total("15", count=2), ""),
    Case("what others use is not there", ABC, total("10"), "a=4 c=6", used(b="3")),
    Case("a device without any left", ABC, total("9"), "b=6 c=3", used(a="4")),
    Case("most available first", ABC, total("10", prefer=MOST_AVAILABLE), "c=8 b=2"),
    Case("least available first", ABC, total("10", prefer=LEAST_AVAILABLE), "a=4 b=6"),
    Case("amounts in the notation of the request", nics(a="4Gi", b="4Gi"), total("6Gi"), "a=4Gi b=2Gi"),
    Case("the policy rounds what the last device gives", STEPS, total("9"), "a=8 b=2"),
    Case("the policy rounds up what one device gives", STEPS, total("6"), "a=8"),
    Case("what the policy leaves over does not count", STEPS, total("17"), ""),
    Case(
        "devices that are allocated once give all that they have",
        tuple(device(name, capacity={"bandwidth": "5"}) for name in "ab"),
        total("6"),
        "a b",
    ),
    Case("devices without the capacity do not count", (device("x", shareable=True), *ABC), total("5"), "b=5"),
    Case(
        "every total is reached",
        TWO_CAPACITIES,
        (claim("c", request("r", together=True, count=32, capacity={"bandwidth": "9", "queues": "6"})),),
        "a=8 b=1",
    ),
    Case(
        "a share must take some of a capacity that is reached",
        SHARED_OR_BLOCKED,
        (claim("c", request("r", together=True, count=32, capacity={"bandwidth": "8", "queues": "9"})),),
        "a=8 b=1",
    ),
    Case(
        "no device twice in a request, but shares of one device for two requests",
        nics(a="10"),
        (claim("c", together("6", "r1"), together("4", "r2")),),
        "a=6 a=4",
    ),
    Case("no device twice in a request", nics(a="10"), total("12"), ""),
    Case(
        "the last device may stand before the others",
        nics(a="4", c="8"),
        (claim("c", together("9", "r1"), request("r2", capacity={"bandwidth": "3"}, where=SMALL)),),
        "c=8 a=1 a=3",
    ),
    Case("with matchAttribute", ON_NUMA, (claim("c", together("8"), constraints=[match(NUMA)]),), "b=5 c=3"),
    Case("with distinctAttribute", ON_NUMA, (claim("c", together("8"), constraints=[distinct(NUMA)]),), "a=5 b=3"),
    Case(
        "constraints that cannot be satisfied", ON_NUMA, (claim("c", together("12"), constraints=[distinct(NUMA)]),), ""
    ),
    Case(
        "as an alternative",
        ABC,
        (
            claim(
                "c",
                first_available(
                    "r",
                    alternative("one", capacity={"bandwidth": "12"}),
                    alternative("many", together=True, count=32, capacity={"bandwidth": "12"}),
                ),
            ),
        ),
        "a=4 c=8",
    ),
    Case("partitions of a card", PARTITIONS, total("7"), "p0 p2", more=(COUNTERS,)),
    Case("partitions that the card cannot have together", PARTITIONS, total("8"), "", more=(COUNTERS,)),
    Case(
        "not a tainted device",
        (device("t", shareable=True, capacity={"bandwidth": "9"}, taints=[taint("broken")]), *ABC),
        total("9"),
        "a=4 b=5",
    ),
    Case(
        "a tainted device, where it is tolerated",
        (device("t", shareable=True, capacity={"bandwidth": "9"}, taints=[taint("broken")]), *ABC),
        (
            claim(
                "c",
                request("r", together=True, count=32, capacity={"bandwidth": "9"}, tolerations=[toleration("broken")]),
            ),
        ),
        "t=9",
    ),
    Case(
        "at most 32 results in a claim",
        tuple(device(f"d{number}", shareable=True, capacity={"bandwidth": "1"}) for number in range(40)),
        (claim("c", request("r1", count=2, capacity={"bandwidth": "1"}), together("31", "r2")),),
        "",
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_what_the_devices_give(case: Case) -> None:
    world = world_of(case.devices, case.claims, case.allocated, case.more)
    outcome = allocate_world(world)
    found = [each for claim in outcome.claims for each in claim.devices] if isinstance(outcome, Allocated) else []
    shown = [
        f"{each.device.device}={each.consumed_capacity['bandwidth']}" if each.is_share else each.device.device
        for each in found
    ]
    assert shown == case.want.split()
    if len(case.devices) < 10 and "Gi" not in case.want:
        assert as_plain(outcome, world.claims) == allocate_plainly(world, 100_000)


def world_of(
    devices: tuple[Device, ...],
    claims: tuple[ResourceClaim, ...],
    allocated: tuple[ResourceClaim, ...] = (),
    more: tuple[ResourceSlice, ...] = (),
    features: Features = FEATURES,
) -> World:
    return World(
        slices=(resource_slice("s", *devices, of=1 + len(more)), *more),
        claims=claims,
        classes={CLASS: device_class()},
        node=node(),
        features=features,
        allocated=allocated,
    )


@pytest.mark.parametrize(
    ("claims", "allocated", "want"),
    [
        (total("19"), (), "insufficient bandwidth: requested 19, 3 devices can give 18"),
        (total("15", count=2), (), "insufficient bandwidth: requested 15, 2 devices can give 14"),
        (total("18"), used(a="1"), "insufficient bandwidth: requested 18, 3 devices can give 17"),
    ],
)
def test_the_reason_says_what_the_devices_have_together(
    claims: tuple[ResourceClaim, ...], allocated: tuple[ResourceClaim, ...], want: str
) -> None:
    assert reason_of(world_of(ABC, claims, allocated)) == want


def test_the_reason_names_the_constraint() -> None:
    world = world_of(ON_NUMA, (claim("c", together("12"), constraints=[distinct(NUMA)]),))
    assert reason_of(world) == f"no devices that have enough together have different values of {NUMA}"


def test_it_is_refused_while_the_gate_is_off() -> None:
    outcome = allocate_world(world_of(ABC, total("5"), features=Features()))
    assert isinstance(outcome, Fatal)
    assert outcome.cause is FatalCause.AGGREGATED_CAPACITY_OFF


def test_it_is_refused_without_totals() -> None:
    outcome = allocate_world(world_of(ABC, (claim("c", request("r", together=True, count=2)),)))
    assert isinstance(outcome, Fatal)
    assert outcome.cause is FatalCause.NO_TOTALS


def test_every_device_is_looked_at_so_that_its_error_is_met() -> None:
    strict = f'device.attributes["{DRIVER}"].numa == 0'
    devices = (*ON_NUMA[:1], *nics(x="9"))
    outcome = allocate_world(world_of(devices, (claim("c", together("5", where=strict)),)))
    assert isinstance(outcome, Fatal)
    assert outcome.device is not None
    assert outcome.device.device == "x"


@pytest.mark.parametrize("amount", ["100", "128", "2500"])
def test_many_devices_take_few_steps(amount: str) -> None:
    """The bound is exact for one capacity: no step is wasted."""
    devices = tuple(
        device(f"d{number:03}", shareable=True, capacity={"bandwidth": str(number % 7 + 1)}) for number in range(500)
    )
    outcome = allocate_world(world_of(devices, total(amount)))
    sums = sum(sorted((number % 7 + 1 for number in range(500)), reverse=True)[:32])
    if int(amount) > sums:
        assert isinstance(outcome, Impossible)
        return
    assert isinstance(outcome, Allocated)
    given = [each.consumed_capacity["bandwidth"].nanos // 10**9 for each in outcome.claims[0].devices]
    assert sum(given) == int(amount)
    assert len(given) == -(-int(amount) // 7)


def test_a_problem_that_explodes_ends_with_a_budget_answer() -> None:
    """Three capacities that no choice of devices reaches together, though each alone can be reached."""
    devices = tuple(
        device(
            f"d{number:02}",
            shareable=True,
            capacity={name: str(1 + (number * factor) % 19) for name, factor in (("a", 3), ("b", 7), ("c", 11))},
        )
        for number in range(60)
    )
    asked = {"a": "190", "b": "190", "c": "190"}
    world = world_of(devices, (claim("c", request("r", together=True, count=11, capacity=asked)),))
    assert isinstance(allocate_world(world), (BudgetExhausted, Impossible, Allocated))
