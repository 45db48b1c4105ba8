"""Compilation of claims to a demand."""

from __future__ import annotations

from dralloc.devices.allocator.features import Features
from dralloc.devices.allocator.requests import Demand, compile_demand
from dralloc.kube.resource_v1 import DeviceClass, ResourceClaim
from dralloc.primitives.features import FeatureGates
from dralloc.primitives.quantity import Quantity
from dralloc.testing.builders import alternative, claim, device_class, first_available, match, request

CLASSES = {"gpu": device_class()}
WANTED = claim(
    "a",
    request("r", count=2),
    first_available("s", alternative("x"), alternative("y")),
    constraints=[match("d/numa", "s/x")],
)


def demand(*claims: ResourceClaim, classes: dict[str, DeviceClass] | None = None) -> Demand:
    return compile_demand(claims, classes or CLASSES, Features())


def test_requests_are_in_order_and_alternatives_are_numbered() -> None:
    found = demand(WANTED, claim("b", request("t")))
    assert [str(request.name) for request in found.requests] == ["r", "s", "t"]
    assert [(each.number, str(each.name), each.claim) for each in found.alternatives] == [
        (0, "r", 0),
        (1, "s/x", 0),
        (2, "s/y", 0),
        (3, "t", 1),
    ]


def test_a_constraint_covers_what_it_names() -> None:
    assert [len(each.constraints) for each in demand(WANTED).alternatives] == [0, 1, 0]


def test_features_follow_the_gates() -> None:
    gates = FeatureGates.defaults()
    assert Features.of(gates) == Features()
    assert not Features.of(gates.override({"DRAConsumableCapacity": False})).consumable_capacity
    assert not Features.of(gates.override({"DRADeviceBindingConditions": False})).binding_conditions
    assert Features.of(gates.override({"DRAListTypeAttributes": True})).is_experimental
    assert Features.of(gates.override({"DRADerivedAttributes": True})).is_experimental


def test_a_large_amount_is_not_taken_for_a_small_one() -> None:
    # Kubernetes prints 10^21 as "1".
    large, small = (
        demand(claim("c", request(capacity={"memory": amount}))).alternatives[0].criteria for amount in ("1000E", "1")
    )
    assert large != small
    assert large.asked == {"memory": Quantity.parse("1000E")}
