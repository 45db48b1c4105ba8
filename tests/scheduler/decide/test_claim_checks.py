"""Errors of a claim that hold on every node."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from dralloc.allocator.features import Features
from dralloc.api.resource_v1 import (
    DeviceRequest,
)
from dralloc.primitives.features import FeatureGates
from dralloc.scheduler.decide.claim_checks import demand_obstacle
from dralloc.testing.builders import alternative, claim, device_class, first_available, request


@dataclass(frozen=True)
class DemandCase:
    id: str
    request: DeviceRequest
    gates: str = ""
    want: str | None = None


DEMANDS = [
    DemandCase("a class that exists", request()),
    DemandCase(
        "a class that does not",
        request("r", device_class="x"),
        want="claim default/claim, request r: device class x does not exist",
    ),
    DemandCase(
        "a second choice whose class does not exist",
        first_available("r", alternative("a"), alternative("b", device_class="x")),
        want="claim default/claim, request r/b: device class x does not exist",
    ),
    DemandCase(
        "neither form, from a newer version",
        DeviceRequest(name="r"),
        want="claim default/claim, request r: has neither `exactly` nor `firstAvailable`, and no other kind of request is supported",
    ),
    DemandCase(
        "alternatives with the feature off",
        first_available("r", alternative("a")),
        "DRAPrioritizedList=false",
        "claim default/claim, request r: has alternatives, but the feature DRAPrioritizedList is off",
    ),
    DemandCase(
        "capacity with the feature off",
        request("r", capacity={"memory": "1Gi"}),
        "DRAConsumableCapacity=false,DRAFractionalCapacityRange=false",
        "claim default/claim, request r: requests capacity, but the feature DRAConsumableCapacity is off",
    ),
]


@pytest.mark.parametrize("case", DEMANDS, ids=lambda case: case.id)
def test_errors_of_a_claim(case: DemandCase) -> None:
    classes = {"gpu": device_class()}
    obstacle = demand_obstacle((claim("claim", case.request),), classes, Features.of(FeatureGates.parse(case.gates)))
    assert (obstacle.message if obstacle is not None else None) == case.want
