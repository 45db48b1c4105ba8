"""When pods are evicted because of tainted devices: tables of sentences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from dralloc.controllers.taint_eviction.plan_eviction import (
    CancelEviction,
    Eviction,
    EvictPod,
    ScheduleEviction,
    eviction_time,
    find_eviction,
    plan_pod,
)
from dralloc.controllers.taint_eviction.tainted_devices import ActiveTaint
from dralloc.devices.identity import DeviceId
from dralloc.kube.pod_claims import claims_of, pod_reference
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import (
    NO_EXECUTE,
    NO_SCHEDULE,
    ConsumerReference,
    DeviceTaint,
    DeviceToleration,
    ResourceClaim,
)
from dralloc.testing.builders import (
    DRIVER,
    POOL,
    allocation,
    claim,
    held,
    request,
    toleration,
)
from tests.support.workloads import existing, pod, seen, template

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ADDED = "2026-01-01T00:00:00Z"
FAULTY = DeviceTaint(key="faulty", value="yes", effect=NO_EXECUTE, time_added=ADDED)
JOB = ConsumerReference(api_group="batch", resource="jobs", name="job", uid="uid-of-job")
GPU = DeviceId(DRIVER, POOL, "gpu-0")


# --- Tolerations ------------------------------------------------------------------------------------------------


def tolerates(
    seconds: int | None = None, *, key: str = "faulty", value: str | None = None, effect: str = ""
) -> DeviceToleration:
    return replace(toleration(key, value, effect), toleration_seconds=seconds)


@pytest.mark.parametrize(
    ("tolerations", "want_s"),
    [
        ([], 0),
        ([tolerates()], None),
        ([tolerates(30)], 30),
        ([tolerates(-5)], 0),
        ([tolerates(0)], 0),
        ([tolerates(30), tolerates(10)], 10),
        ([tolerates(30), tolerates()], 30),
        ([tolerates(30, key="other")], 0),
        ([tolerates(30, effect=NO_SCHEDULE)], 0),
        ([tolerates(30, effect=NO_EXECUTE)], 30),
        ([tolerates(30, key="")], 30),
        ([tolerates(30, value="no")], 0),
        ([tolerates(30, value="yes")], 30),
        ([tolerates(2**62)], None),
    ],
    ids=[
        "not tolerated",
        "tolerated without a limit",
        "tolerated with a limit",
        "a negative limit",
        "a limit of zero",
        "the shortest limit",
        "a limit beside no limit",
        "another key",
        "another effect",
        "this effect",
        "every key",
        "another value",
        "this value",
        "later than the largest date",
    ],
)
def test_eviction_time(tolerations: Sequence[DeviceToleration], want_s: int | None) -> None:
    time = eviction_time(FAULTY, tolerations, NOW + timedelta(hours=1))
    assert time == (None if want_s is None else NOW + timedelta(seconds=want_s))


# --- Affected pods ----------------------------------------------------------------------------------------------

RUNNING = seen(pod("p", {"gpu": existing("c")}, node="node-a"))
WAITING = seen(pod("p", {"gpu": existing("c")}))
OWNER = seen(
    pod("p", {"gpu": template("t")}, node="node-a"), resourceClaimStatuses=[{"name": "gpu", "resourceClaimName": "c"}]
)


def a_claim(
    *consumers: ConsumerReference, any_pod: bool | None = None, results: Sequence[Any] = (held("gpu-0"),)
) -> ResourceClaim:
    item = claim("c", request(), allocation=replace(allocation(*results), reserved_for_any_pod=any_pod))
    return replace(item, status=replace(item.status, reserved_for=consumers))


def tolerant(device_name: str, *tolerations: DeviceToleration) -> Any:
    return replace(held(device_name), tolerations=tolerations)


@dataclass(frozen=True)
class Case:
    id: str
    pod: Pod
    claim: ResourceClaim
    want_s: int | None


CASES = [
    Case("a pod that runs and is listed", RUNNING, a_claim(pod_reference(RUNNING)), 0),
    Case("a pod that runs and is not listed", RUNNING, a_claim(), None),
    Case("a pod that is listed and waits for its node", WAITING, a_claim(pod_reference(WAITING)), None),
    Case("a pod whose workload holds the claim", RUNNING, a_claim(JOB, any_pod=True), 0),
    Case("such a pod that waits for its node", WAITING, a_claim(JOB, any_pod=True), 0),
    Case("a workload beside pods", WAITING, a_claim(JOB, pod_reference(RUNNING), any_pod=True), 0),
    Case("a pod that runs with a claim that its workload gave up", RUNNING, a_claim(any_pod=True), 0),
    Case("a pod that ended", seen(pod("p", {"gpu": existing("c")}, node="n"), phase="Failed"), a_claim(JOB), None),
    Case("a claim that was made for another pod", OWNER, a_claim(pod_reference(OWNER)), None),
    Case("a claim that has nothing", RUNNING, claim("c", request()), None),
    Case("a sound device", RUNNING, a_claim(pod_reference(RUNNING), results=[held("gpu-9")]), None),
    Case(
        "the earliest eviction of several devices",
        RUNNING,
        a_claim(
            pod_reference(RUNNING),
            results=[tolerant("gpu-0", tolerates(60)), tolerant("gpu-1", tolerates(20)), held("gpu-9")],
        ),
        20,
    ),
]


def tainted_by_slices(device_id: DeviceId) -> Iterator[ActiveTaint]:
    if device_id.device in ("gpu-0", "gpu-1"):
        yield ActiveTaint(FAULTY, None)


def claims_with(item: Pod, *claims: ResourceClaim) -> Iterable[Any]:
    known = {entry.metadata.name: entry for entry in claims}
    return [(use, known[use.claim]) for use in claims_of(item) if use.claim in known]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_find_eviction(case: Case) -> None:
    eviction = find_eviction(case.pod, claims_with(case.pod, case.claim), tainted_by_slices, NOW)
    assert (eviction and eviction.at) == (None if case.want_s is None else NOW + timedelta(seconds=case.want_s))


def test_a_terminating_pod_is_not_evicted() -> None:
    leaving = replace(RUNNING, metadata=replace(RUNNING.metadata, deletion_timestamp=ADDED))
    assert find_eviction(leaving, claims_with(leaving, a_claim(JOB)), tainted_by_slices, NOW) is None


def test_an_eviction_names_all_its_rules() -> None:
    def taints_of(_: DeviceId) -> Iterator[ActiveTaint]:
        later = replace(FAULTY, key="slow", time_added="2026-01-01T01:00:00Z")
        tolerated = replace(FAULTY, key="fine")
        yield from (ActiveTaint(FAULTY, "now"), ActiveTaint(later, "later"), ActiveTaint(tolerated, "never"))

    item = a_claim(JOB, results=[tolerant("gpu-0", tolerates(key="fine"))])
    eviction = find_eviction(RUNNING, claims_with(RUNNING, item), taints_of, NOW)
    assert eviction == Eviction(NOW, frozenset({"now", "later"}))


# --- Plan -------------------------------------------------------------------------------------------------------

LATER = Eviction(NOW + timedelta(seconds=30))
DUE = Eviction(NOW)


@pytest.mark.parametrize(
    ("eviction", "scheduled", "want"),
    [
        (None, None, ()),
        (None, LATER, (CancelEviction(RUNNING),)),
        (LATER, None, (ScheduleEviction(RUNNING, LATER),)),
        (LATER, LATER, ()),
        (LATER, DUE, (ScheduleEviction(RUNNING, LATER),)),
        (DUE, None, (ScheduleEviction(RUNNING, DUE), EvictPod(RUNNING, DUE))),
        (DUE, DUE, (EvictPod(RUNNING, DUE),)),
    ],
    ids=[
        "nothing to do",
        "cancelled",
        "later",
        "later, as scheduled",
        "later than scheduled",
        "now",
        "now, as scheduled",
    ],
)
def test_plan_pod(eviction: Eviction | None, scheduled: Eviction | None, want: tuple[Any, ...]) -> None:
    assert plan_pod(RUNNING, eviction, scheduled, NOW) == want
