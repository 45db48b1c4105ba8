"""Errors of a claim that hold on every node."""

from __future__ import annotations

import time
from dataclasses import dataclass

import pytest

from dralloc.devices.allocator.features import Features
from dralloc.kube.pod_v1 import Pod, PodResourceClaim, PodResourceClaimStatus, PodSpec, PodStatus
from dralloc.kube.resource_v1 import (
    DeviceRequest,
)
from dralloc.primitives.features import FeatureGates
from dralloc.scheduler.decide.claim_checks import claims_of, demand_obstacle
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


def test_the_claims_of_a_pod_with_many_are_found_at_once() -> None:
    """Each was looked for among all in the pod's status: 2.8 s of processor time at every attempt for a pod of 3 MB."""
    count = 20_000
    entries = tuple(PodResourceClaim(name=f"c{number}", resource_claim_template_name="t") for number in range(count))
    made = tuple(PodResourceClaimStatus(name=f"c{number}") for number in range(count))
    pod = Pod(spec=PodSpec(resource_claims=entries), status=PodStatus(resource_claim_statuses=made))
    started = time.process_time()
    assert claims_of(pod, lambda _: None) == ()
    assert time.process_time() - started < 1
