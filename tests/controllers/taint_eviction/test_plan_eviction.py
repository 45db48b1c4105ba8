"""When a pod has to go because of tainted devices, and what a rule says about it: tables of sentences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from dralloc.api.meta_v1 import Condition
from dralloc.api.pod_claims import claims_of, pod_reference
from dralloc.api.pod_v1 import Pod
from dralloc.api.resource_v1 import (
    EFFECT_NONE,
    NO_EXECUTE,
    NO_SCHEDULE,
    ConsumerReference,
    DeviceTaint,
    DeviceTaintRule,
    DeviceToleration,
    ResourceClaim,
    ResourceSlice,
)
from dralloc.controllers.taint_eviction.plan_eviction import (
    CancelEviction,
    Eviction,
    EvictPod,
    ScheduleEviction,
    eviction_time,
    find_eviction,
    plan_pod,
)
from dralloc.controllers.taint_eviction.plan_rule_status import (
    EVICTION_IN_PROGRESS,
    AffectedPods,
    EvictionPreview,
    RuleFacts,
    WriteRuleCondition,
    plan_rule,
)
from dralloc.controllers.taint_eviction.tainted_devices import ActiveTaint, TaintedDevices, published_devices
from dralloc.devices.identity import DeviceId
from dralloc.testing.builders import (
    DRIVER,
    POOL,
    allocation,
    claim,
    device,
    held,
    request,
    resource_slice,
    taint,
    taint_rule,
    toleration,
)
from tests.support.workloads import existing, pod, seen, template

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ADDED = "2026-01-01T00:00:00Z"
FAULTY = DeviceTaint(key="faulty", value="yes", effect=NO_EXECUTE, time_added=ADDED)
JOB = ConsumerReference(api_group="batch", resource="jobs", name="job", uid="uid-of-job")
GPU = DeviceId(DRIVER, POOL, "gpu-0")


# --- How long a taint is tolerated ------------------------------------------------------------------------------


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
        "not tolerated: at once",
        "tolerated for good: never",
        "tolerated for a while",
        "less than no time is no time",
        "no time",
        "the shortest counts",
        "a limit counts beside no limit",
        "another key",
        "another effect",
        "this effect",
        "every key",
        "another value",
        "this value",
        "longer than the calendar",
    ],
)
def test_when_a_taint_evicts(tolerations: Sequence[DeviceToleration], want_s: int | None) -> None:
    time = eviction_time(FAULTY, tolerations, NOW + timedelta(hours=1))
    assert time == (None if want_s is None else NOW + timedelta(seconds=want_s))


# --- Who is struck ----------------------------------------------------------------------------------------------

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
        "the first of several devices to go decides",
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
def test_who_has_to_go(case: Case) -> None:
    eviction = find_eviction(case.pod, claims_with(case.pod, case.claim), tainted_by_slices, NOW)
    assert (eviction and eviction.at) == (None if case.want_s is None else NOW + timedelta(seconds=case.want_s))


def test_a_pod_that_is_leaving_is_left_alone() -> None:
    leaving = replace(RUNNING, metadata=replace(RUNNING.metadata, deletion_timestamp=ADDED))
    assert find_eviction(leaving, claims_with(leaving, a_claim(JOB)), tainted_by_slices, NOW) is None


def test_every_rule_that_wants_the_pod_to_go_is_named() -> None:
    def taints_of(_: DeviceId) -> Iterator[ActiveTaint]:
        later = replace(FAULTY, key="slow", time_added="2026-01-01T01:00:00Z")
        tolerated = replace(FAULTY, key="fine")
        yield from (ActiveTaint(FAULTY, "now"), ActiveTaint(later, "later"), ActiveTaint(tolerated, "never"))

    item = a_claim(JOB, results=[tolerant("gpu-0", tolerates(key="fine"))])
    eviction = find_eviction(RUNNING, claims_with(RUNNING, item), taints_of, NOW)
    assert eviction == Eviction(NOW, frozenset({"now", "later"}))


# --- What follows -----------------------------------------------------------------------------------------------

LATER = Eviction(NOW + timedelta(seconds=30))
DUE = Eviction(NOW)


@pytest.mark.parametrize(
    ("eviction", "awaited", "want"),
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
        "called off",
        "later",
        "later, as was known",
        "later than was known",
        "now",
        "now, as was known",
    ],
)
def test_plan_pod(eviction: Eviction | None, awaited: Eviction | None, want: tuple[Any, ...]) -> None:
    assert plan_pod(RUNNING, eviction, awaited, NOW) == want


# --- Which devices are tainted ----------------------------------------------------------------------------------


def evicting(name: str, **selector: Any) -> DeviceTaintRule:
    return taint_rule(name, FAULTY, **selector)


@pytest.mark.parametrize(
    ("rule", "want"),
    [
        (evicting("r"), True),
        (evicting("r", driver=DRIVER), True),
        (evicting("r", driver="other"), False),
        (evicting("r", driver=DRIVER, pool=POOL, device="gpu-0"), True),
        (evicting("r", driver=DRIVER, pool=POOL, device="gpu-1"), False),
        (evicting("r", device="gpu-0"), True),
        (taint_rule("r", taint("x", effect=NO_SCHEDULE)), False),
        (taint_rule("r", taint("x", effect=EFFECT_NONE)), False),
        (replace(evicting("r"), spec=replace(evicting("r").spec, device_selector=None)), False),
    ],
    ids=[
        "an empty selector means all",
        "the driver",
        "another driver",
        "the device itself",
        "another device",
        "only the device's name",
        "a rule that only keeps pods away",
        "a rule without effect",
        "no selector means none",
    ],
)
def test_which_devices_a_rule_taints(rule: DeviceTaintRule, want: bool) -> None:
    tainted = TaintedDevices()
    tainted.put_rule(rule)
    assert tainted.is_tainted(GPU) == want
    tainted.remove_rule("r")
    assert not tainted


def test_a_change_of_a_rule_replaces_what_it_said() -> None:
    tainted = TaintedDevices()
    tainted.put_rule(evicting("r"))
    tainted.put_rule(taint_rule("r", taint("x", effect=EFFECT_NONE)))
    assert not tainted.is_tainted(GPU)


def test_only_the_newest_generation_of_a_pool_counts() -> None:
    tainted = TaintedDevices()
    old = resource_slice("old", device("gpu-0", taints=[FAULTY]))
    new = resource_slice("new", device("gpu-0"), device("gpu-1", taints=[FAULTY]), generation=2)
    assert tainted.change_slice(None, old) == {GPU}
    assert tainted.change_slice(None, new) == {GPU, GPU.pool_id.device("gpu-1")}
    assert not tainted.is_tainted(GPU)
    assert tainted.change_slice(new, None) == {GPU, GPU.pool_id.device("gpu-1")}
    assert tainted.is_tainted(GPU)
    assert tainted.change_slice(old, None) == {GPU}
    assert not tainted


SLICES = st.builds(
    lambda name, generation, taints: resource_slice(
        name,
        *(device(f"gpu-{number}", taints=[FAULTY] if number in taints else []) for number in range(3)),
        generation=generation,
        pool="pool-" + name[0],
    ),
    st.sampled_from(["a1", "a2", "b1"]),
    st.integers(1, 3),
    st.sets(st.integers(0, 2)),
)


@given(steps=st.lists(st.tuples(SLICES, st.booleans()), max_size=12))
def test_tainted_devices_are_those_of_a_look_at_everything(steps: list[tuple[ResourceSlice, bool]]) -> None:
    """However slices come and go; and no change of a device goes untold."""
    tainted, present = TaintedDevices(), dict[str, ResourceSlice]()
    for item, is_removed in steps:
        before, after = present.pop(item.metadata.name, None), None if is_removed else item
        if after is not None:
            present[item.metadata.name] = after
        known = {entry: tuple(tainted.taints_of(entry)) for entry in all_devices()}
        struck = tainted.change_slice(before, after)
        assert struck == {entry for entry in all_devices() if tuple(tainted.taints_of(entry)) != known[entry]}
    expected = set()
    for item in present.values():
        newest = max(
            other.spec.pool.generation for other in present.values() if other.spec.pool.name == item.spec.pool.name
        )
        if item.spec.pool.generation == newest:
            expected |= {
                DeviceId(DRIVER, item.spec.pool.name, entry.name) for entry in item.spec.devices or () if entry.taints
            }
    # Two slices of one generation that both name a device contradict each other; the last one told is believed.
    disputed = {
        entry
        for entry in all_devices()
        if len(
            {
                bool(d.taints)
                for s in present.values()
                if s.spec.pool.name == entry.pool
                for d in s.spec.devices or ()
                if d.name == entry.device
            }
        )
        > 1
    }
    assert {entry for entry in all_devices() if tainted.is_tainted(entry)} - disputed == expected - disputed


def all_devices() -> list[DeviceId]:
    return [DeviceId(DRIVER, f"pool-{pool}", f"gpu-{number}") for pool in "ab" for number in range(3)]


def test_published_devices_are_those_of_the_newest_generation() -> None:
    slices = [
        resource_slice("old", device("gpu-0"), device("gpu-1")),
        resource_slice("new", device("gpu-1"), generation=2),
        resource_slice("other", device("gpu-0"), pool="pool-b"),
    ]
    assert set(published_devices(slices)) == {DeviceId(DRIVER, POOL, "gpu-1"), DeviceId(DRIVER, "pool-b", "gpu-0")}


# --- What a rule says -------------------------------------------------------------------------------------------


def facts(pods: int = 0, namespaces: int = 0, evicted: int = 0) -> RuleFacts:
    return RuleFacts(
        pending=AffectedPods(pods, namespaces),
        evicted=evicted,
        preview=lambda: EvictionPreview(3, 1, AffectedPods(2, 1)),
    )


def a_rule(effect: str = NO_EXECUTE, *, generation: int = 1, condition: Condition | None = None) -> DeviceTaintRule:
    rule = taint_rule("r", taint("x", effect=effect))
    return replace(
        rule,
        metadata=replace(rule.metadata, generation=generation),
        status=replace(rule.status, conditions=() if condition is None else (condition,)),
    )


def written(rule: DeviceTaintRule, known: RuleFacts, now: datetime = NOW) -> Condition:
    planned = plan_rule(rule, known, now)
    assert isinstance(planned, WriteRuleCondition)
    return planned.condition


@pytest.mark.parametrize(
    ("effect", "known", "want"),
    [
        (NO_EXECUTE, facts(), ("False", "NotStarted", "No pods need to be evicted.")),
        (NO_EXECUTE, facts(3, 2), ("True", "PodsPendingEviction", "3 pods in 2 namespaces pending eviction.")),
        (
            NO_EXECUTE,
            facts(1, 1, evicted=2),
            (
                "True",
                "PodsPendingEviction",
                "1 pod in 1 namespace pending eviction. 2 pods evicted since the controller started.",
            ),
        ),
        (
            NO_EXECUTE,
            facts(evicted=1),
            ("False", "Completed", "No pods are pending eviction. 1 pod evicted since the controller started."),
        ),
        (NO_SCHEDULE, facts(), ("False", "OtherEffect", "The effect NoSchedule evicts no pods.")),
        (
            EFFECT_NONE,
            facts(),
            (
                "False",
                "NoEffect",
                "The rule selects 3 published devices; 1 selected device allocated. With the effect NoExecute, "
                "2 pods in 1 namespace would be evicted. Computed when the rule was last changed.",
            ),
        ),
    ],
    ids=["nobody", "some", "some more", "all", "another effect", "a dry run"],
)
def test_what_a_rule_says(effect: str, known: RuleFacts, want: tuple[str, str, str]) -> None:
    condition = written(a_rule(effect), known)
    assert (condition.status, condition.reason, condition.message) == want
    assert (condition.type, condition.observed_generation) == (EVICTION_IN_PROGRESS, 1)
    assert plan_rule(a_rule(effect, condition=condition), known, NOW) is None


def test_what_is_known_already_waits_and_what_is_new_does_not() -> None:
    first = written(a_rule(), facts(3, 1))
    soon = plan_rule(a_rule(condition=first), facts(2, 1), NOW + timedelta(seconds=4))
    assert soon == timedelta(seconds=7)
    later = written(a_rule(condition=first), facts(2, 1), NOW + timedelta(seconds=11))
    assert later.last_transition_time == "2026-01-01T00:00:11Z"
    at_once = written(a_rule(NO_SCHEDULE, generation=2, condition=first), facts(2, 1), NOW + timedelta(seconds=4))
    assert (at_once.reason, at_once.observed_generation) == ("OtherEffect", 2)


def test_a_dry_run_is_made_once_for_each_spec() -> None:
    condition = written(a_rule(EFFECT_NONE), facts())

    def again() -> EvictionPreview:
        raise AssertionError("it has been made")

    known = RuleFacts(pending=AffectedPods(), evicted=0, preview=again)
    assert plan_rule(a_rule(EFFECT_NONE, condition=condition), known, NOW + timedelta(days=1)) is None
