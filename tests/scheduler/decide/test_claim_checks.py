"""Whether a pod can have its claims, whom they are reserved for, and whether their devices are ready."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from dralloc.allocator.features import Features
from dralloc.api.meta_v1 import Condition
from dralloc.api.resource_v1 import (
    AllocatedDeviceStatus,
    AllocationResult,
    ConsumerReference,
    DeviceRequest,
    ResourceClaim,
)
from dralloc.primitives.features import FeatureGates
from dralloc.scheduler.decide.claim_checks import demand_obstacle
from dralloc.scheduler.state.binding_conditions import (
    DevicesFailed,
    DevicesPending,
    DevicesReady,
    Readiness,
    is_unusable,
    readiness,
)
from dralloc.scheduler.state.reservation import consumer_for
from dralloc.testing.builders import allocation, alternative, claim, device_class, first_available, held, request
from tests.support.workloads import pod, seen

# --- Requests that cannot be served -----------------------------------------------------------------------------


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
        "claim default/claim, request r: asks for capacity, but the feature DRAConsumableCapacity is off",
    ),
]


@pytest.mark.parametrize("case", DEMANDS, ids=lambda case: case.id)
def test_what_is_wrong_with_a_claim_on_every_node(case: DemandCase) -> None:
    classes = {"gpu": device_class()}
    obstacle = demand_obstacle((claim("claim", case.request),), classes, Features.of(FeatureGates.parse(case.gates)))
    assert (obstacle.message if obstacle is not None else None) == case.want


# --- Whom a claim is reserved for -------------------------------------------------------------------------------

JOB = ConsumerReference(api_group="batch", resource="jobs", name="job", uid="uid-of-job")
OTHER = ConsumerReference(resource="pods", name="other", uid="uid-of-other")
POD = ConsumerReference(resource="pods", name="p", uid="uid-of-p")
PLAIN = allocation(held("gpu"))
FOR_ANY = replace(PLAIN, reserved_for_any_pod=True)


@dataclass(frozen=True)
class ReservationCase:
    id: str
    allocation: AllocationResult | None = None
    spec: ConsumerReference | None = None
    listed: tuple[ConsumerReference, ...] = ()
    want: ConsumerReference | None = POD
    off: bool = False


RESERVATIONS = [
    ReservationCase("the first pod"),
    ReservationCase("another pod", PLAIN, listed=(OTHER,)),
    ReservationCase("a pod that is listed", PLAIN, listed=(OTHER, POD), want=None),
    ReservationCase("the first pod of a workload", spec=JOB, want=JOB),
    ReservationCase("a later pod of a workload", FOR_ANY, JOB, (JOB,), want=None),
    ReservationCase(
        "a later pod beside one that was listed while the feature was off", FOR_ANY, JOB, (OTHER, JOB), want=None
    ),
    ReservationCase("a pod after the workload let go", FOR_ANY, JOB, want=JOB),
    ReservationCase("a workload on the list, but nodes were not told", PLAIN, JOB, (JOB,)),
    ReservationCase("allocated before anybody used it, and nodes were not told", PLAIN, JOB),
    ReservationCase("the first pod of a workload, with the feature off", spec=JOB, off=True),
    ReservationCase("a later pod of a workload, with the feature off", FOR_ANY, JOB, (JOB,), off=True),
]


@pytest.mark.parametrize("case", RESERVATIONS, ids=lambda case: case.id)
def test_whom_a_claim_is_reserved_for(case: ReservationCase) -> None:
    made = claim("c", request(), allocation=case.allocation)
    used = replace(
        made,
        spec=replace(made.spec, reserved_for=case.spec),
        status=replace(made.status, reserved_for=case.listed),
    )
    assert consumer_for(used, seen(pod("p")), for_workloads=not case.off) == case.want


# --- Devices that must be made ready ----------------------------------------------------------------------------


def with_conditions(*told: tuple[str | None, str, str], shares: tuple[str | None, ...] = (None,)) -> ResourceClaim:
    """A claim with a device, or shares of it, that is ready when `attached`; `told` are share, condition and its status."""
    results = [
        replace(held("nic", share_id=share), binding_conditions=("attached",), binding_failure_conditions=("broken",))
        for share in shares
    ]
    stamped = replace(allocation(*results), allocation_timestamp="2026-01-01T00:00:00Z")
    statuses = [
        AllocatedDeviceStatus(
            driver=results[0].driver,
            pool=results[0].pool,
            device="nic",
            share_id=share,
            conditions=(Condition(type=kind, status=status, reason="Why"),),
        )
        for share, kind, status in told
    ]
    made = claim("c", request(), allocation=stamped)
    return replace(made, status=replace(made.status, devices=tuple(statuses)))


NIC = "gpu.example.com/pool-a/nic"


@dataclass(frozen=True)
class ReadinessCase:
    id: str
    claim: ResourceClaim
    want: Readiness


READINESS = [
    ReadinessCase("no conditions", claim("c", request(), allocation=PLAIN), DevicesReady()),
    ReadinessCase("nothing told", with_conditions(), DevicesPending((NIC,))),
    ReadinessCase("not true yet", with_conditions((None, "attached", "False")), DevicesPending((NIC,))),
    ReadinessCase("true", with_conditions((None, "attached", "True")), DevicesReady()),
    ReadinessCase(
        "failed", with_conditions((None, "broken", "True")), DevicesFailed(f"device {NIC}: broken is true (Why)")
    ),
    ReadinessCase("failure that is not", with_conditions((None, "broken", "False")), DevicesPending((NIC,))),
    ReadinessCase(
        "one of two shares", with_conditions(("one", "attached", "True"), shares=("one", "two")), DevicesPending((NIC,))
    ),
    ReadinessCase(
        "both shares",
        with_conditions(("one", "attached", "True"), ("two", "attached", "True"), shares=("one", "two")),
        DevicesReady(),
    ),
    ReadinessCase(
        "another share", with_conditions(("other", "broken", "True"), shares=("one",)), DevicesPending((NIC,))
    ),
]


@pytest.mark.parametrize("case", READINESS, ids=lambda case: case.id)
def test_whether_devices_are_ready(case: ReadinessCase) -> None:
    assert readiness(case.claim) == case.want


@pytest.mark.parametrize(
    ("told", "seconds", "want"),
    [((), 599, False), ((), 600, True), (("broken", "True"), 1, True), (("attached", "True"), 9999, False)],
    ids=["not yet", "for too long", "failed", "ready"],
)
def test_devices_that_do_not_get_ready_make_a_claim_unusable(told: tuple[str, str], seconds: int, want: bool) -> None:
    used = with_conditions(*([(None, *told)] if told else []))
    now = datetime.fromtimestamp(datetime(2026, 1, 1, tzinfo=UTC).timestamp() + seconds, UTC)
    assert is_unusable(used, now) is want
