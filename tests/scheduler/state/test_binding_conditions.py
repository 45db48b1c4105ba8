"""Binding conditions: whether a claim's devices are ready, pending, failed or late."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from dralloc.kube.meta_v1 import Condition
from dralloc.kube.resource_v1 import (
    AllocatedDeviceStatus,
    ResourceClaim,
)
from dralloc.scheduler.state.binding_conditions import (
    DevicesFailed,
    DevicesPending,
    DevicesReady,
    Readiness,
    is_unusable,
    readiness,
)
from dralloc.testing.builders import allocation, claim, held, request

PLAIN = allocation(held("gpu"))


def with_conditions(*told: tuple[str | None, str, str], shares: tuple[str | None, ...] = (None,)) -> ResourceClaim:
    """A claim for a device, or shares of it, with the binding condition `attached`; `told` has share, condition, status."""
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
def test_readiness_of_a_claims_devices(case: ReadinessCase) -> None:
    assert readiness(case.claim) == case.want


@pytest.mark.parametrize(
    ("told", "seconds", "want"),
    [((), 599, False), ((), 600, True), (("broken", "True"), 1, True), (("attached", "True"), 9999, False)],
    ids=["not yet", "for too long", "failed", "ready"],
)
def test_failed_and_late_devices_make_a_claim_unusable(told: tuple[str, str], seconds: int, want: bool) -> None:
    used = with_conditions(*([(None, *told)] if told else []))
    now = datetime.fromtimestamp(datetime(2026, 1, 1, tzinfo=UTC).timestamp() + seconds, UTC)
    assert is_unusable(used, now) is want
