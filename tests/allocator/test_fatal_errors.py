"""Errors that end an allocation name the claim, request, class and device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest
from msgspec import structs

from dralloc.devices.allocator.features import Features
from dralloc.devices.allocator.outcome import Allocated, Fatal, Impossible
from dralloc.devices.identity import ClaimId
from dralloc.kube.device_parts import capacity
from dralloc.kube.request_name import RequestName
from dralloc.kube.resource_v1 import (
    DeviceClass,
    DeviceDerivedAttribute,
    DeviceRequest,
    DeviceTaint,
    ResourceClaim,
    ResourceSlice,
)
from dralloc.testing.builders import (
    DRIVER,
    allocation,
    alternative,
    claim,
    device,
    device_class,
    first_available,
    held,
    match,
    node,
    request,
    resource_slice,
    taint,
)
from tests.support.allocations import allocate_world
from tests.support.plain_pools import World

ALL_ON = Features()
NUMA = f"{DRIVER}/numa"
FAILING = f'device.attributes["{DRIVER}"].missing == 1'


def gpus(count: int, taints: Sequence[DeviceTaint] = ()) -> ResourceSlice:
    return resource_slice("gpus", *(device(f"gpu-{number}", taints=taints) for number in range(count)))


def simple(slices: tuple[ResourceSlice, ...], *claims: ResourceClaim) -> World:
    return World(slices=slices, claims=claims, classes={"gpu": device_class()}, node=node())


SHAREABLE = resource_slice("gpus", device("gpu-0", capacity={"memory": "4Gi"}, shareable=True))
ON_NUMA = resource_slice("gpus", device("d1", attributes={"numa": 0}), device("d2", attributes={"numa": 1}))


def derived(expression: str) -> DeviceRequest:
    found = request("r")
    assert found.exactly is not None
    attributes = (DeviceDerivedAttribute(name=NUMA, expression=expression),)
    return structs.replace(found, exactly=structs.replace(found.exactly, derived_attributes=attributes))


@dataclass(frozen=True)
class Case:
    """`want`: the claim, request, class and device that are named."""

    id: str
    slices: tuple[ResourceSlice, ...]
    claims: tuple[ResourceClaim, ...]
    want: tuple[str | None, str | None, str | None, str | None]
    features: Features = field(default_factory=Features)
    classes: tuple[DeviceClass, ...] = (device_class(),)


def at(
    claim: str | None = "default/c",
    request: str | None = "r",
    device_class: str | None = None,
    device: str | None = None,
) -> tuple[str | None, str | None, str | None, str | None]:
    return claim, request, device_class, f"{DRIVER}/pool-a/{device}" if device else None


FAULTS = [
    Case("a class that does not exist", (), (claim("c", request("r", device_class="none")),), at(device_class="none")),
    Case("no class", (), (claim("c", request("r", device_class="")),), at()),
    Case(
        "a class that does not exist, in an alternative that is not needed",
        (gpus(1),),
        (claim("c", first_available("r", alternative("a"), alternative("b", device_class="none"))),),
        at(request="r/b", device_class="none"),
    ),
    Case(
        "a fault of the second claim, though the first cannot be served",
        (),
        (claim("a", request("r")), claim("b", request("r", device_class="none"))),
        at("default/b", device_class="none"),
    ),
    Case(
        "alternatives with the feature off",
        (),
        (claim("c", first_available("r", alternative("a"))),),
        at(),
        replace(ALL_ON, prioritized_list=False),
    ),
    Case(
        "capacity with the feature off",
        (),
        (claim("c", request("r", capacity={})),),
        at(),
        replace(ALL_ON, consumable_capacity=False),
    ),
    Case(
        "admin access with the feature off",
        (),
        (claim("c", request("r", admin=False)),),
        at(),
        replace(ALL_ON, admin_access=False),
    ),
    Case(
        "derived attributes with the feature off",
        (ON_NUMA,),
        (claim("c", derived("1"), constraints=[match(NUMA)]),),
        at(),
    ),
    Case(
        "a derived attribute that fails",
        (ON_NUMA,),
        (claim("c", derived(FAILING), constraints=[match(NUMA)]),),
        at(device="d1"),
        replace(ALL_ON, derived_attributes=True),
    ),
    Case(
        "a derived attribute that does not compile",
        (ON_NUMA,),
        (claim("c", derived("device."), constraints=[match(NUMA)]),),
        at(device="d1"),
        replace(ALL_ON, derived_attributes=True),
    ),
    Case("more than a claim can hold", (gpus(40),), (claim("c", request("r", count=33)),), at(request=None)),
    Case(
        "more than a claim can hold, all together",
        (gpus(40),),
        (claim("c", request("r", everything=True)),),
        at(request=None),
    ),
    Case("a selector that fails", (gpus(1),), (claim("c", request("r", where=FAILING)),), at(device="gpu-0")),
    Case(
        "a selector that does not compile", (gpus(1),), (claim("c", request("r", where="device.")),), at(device="gpu-0")
    ),
    Case(
        "a class selector that fails",
        (gpus(1),),
        (claim("c", request("r")),),
        at(device_class="gpu", device="gpu-0"),
        classes=(device_class(where=FAILING),),
    ),
    Case(
        "a selector that fails on a tainted device",
        (gpus(1, taints=[taint("k")]),),
        (claim("c", request("r", where=FAILING)),),
        at(device="gpu-0"),
    ),
    Case(
        "a fault in one alternative is not made good by another",
        (gpus(1),),
        (claim("c", first_available("r", alternative("a", where=FAILING), alternative("b"))),),
        at(request="r/a", device="gpu-0"),
    ),
    Case(
        "a negative amount",
        (SHAREABLE,),
        (claim("c", request("r", capacity={"memory": "-1"})),),
        at(device="gpu-0"),
    ),
    Case(
        "an amount that cannot be rounded",
        (
            resource_slice(
                "gpus", device("gpu-0", capacity={"memory": capacity("4", default="1", minimum="1", step="1")})
            ),
        ),
        (claim("c", request("r", capacity={"memory": "1e19"})),),
        at(device="gpu-0"),
    ),
    Case(
        "all devices, while a pool is incomplete",
        (gpus(1), resource_slice("x", device("d"), pool="other", of=2)),
        (claim("c", request("r", everything=True)),),
        at(),
    ),
    Case(
        "all devices, and a constraint that one does not satisfy",
        (ON_NUMA,),
        (claim("c", request("r", everything=True), constraints=[match(NUMA)]),),
        at(device="d2"),
    ),
]


@pytest.mark.parametrize("case", FAULTS, ids=lambda case: case.id)
def test_fatal_errors_name_claim_request_class_and_device(case: Case) -> None:
    classes = {str(found.metadata.name): found for found in case.classes}
    outcome = allocate_world(
        World(slices=case.slices, claims=case.claims, classes=classes, node=node(), features=case.features)
    )
    assert isinstance(outcome, Fatal), outcome
    claim_id = ClaimId.of(case.claims[outcome.claim]) if outcome.claim is not None else None
    named = (claim_id, outcome.request, outcome.device_class, outcome.device)
    assert tuple(None if part is None else str(part) for part in named) == case.want
    assert outcome.message


def test_an_error_that_the_search_does_not_reach_is_not_reported() -> None:
    devices = resource_slice("gpus", device("d1", attributes={"missing": 1}), device("d2"))
    assert isinstance(allocate_world(simple((devices,), claim("c", request("r", where=FAILING)))), Allocated)
    used = replace(
        simple((gpus(1),), claim("c", request("r", where=FAILING))),
        allocated=(claim("h", allocation=allocation(held("gpu-0"))),),
    )
    assert allocate_world(used) == Impossible()
    assert allocate_world(simple((), claim("c", request("r", where="not an expression")))) == Impossible()


def test_a_request_with_neither_form_is_fatal() -> None:
    skewed = claim("c", DeviceRequest(name="r"))
    outcome = allocate_world(simple((gpus(1),), skewed))
    assert isinstance(outcome, Fatal)
    assert outcome.request == RequestName("r")
