"""The events of a claim: a table of changes, and that any way through states is told in full and in few events."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from dralloc.client.event_recorder import Aggregator
from dralloc.controllers.claim_lifecycle.claim_events import USERS_MAX, claim_changes, waiting, why_unscheduled
from dralloc.kube.meta_v1 import ObjectMeta, OwnerReference
from dralloc.kube.pod_v1 import Pod, PodCondition, PodStatus
from dralloc.kube.resource_v1 import ConsumerReference, ResourceClaim
from dralloc.kube.timestamps import parse_timestamp
from dralloc.testing import builders as build

CREATED_AT = "2026-01-01T00:00:00Z"
NOW = parse_timestamp(CREATED_AT) + timedelta(seconds=5)
POD_A, POD_B = (ConsumerReference(resource="pods", name=name, uid=f"uid-{name}") for name in "ab")
JOB = ConsumerReference(api_group="batch", resource="jobs", name="sweep", uid="uid-sweep")
MANY = tuple(ConsumerReference(resource="pods", name=f"p{each}", uid=f"uid-{each}") for each in range(20))


def a_claim(*users: ConsumerReference, devices: tuple[str, ...] = (), uid: str = "1", owner: str = "") -> ResourceClaim:
    held = [build.held(each, share_id="s", consumed={"memory": "40Gi"}) for each in devices]
    item = build.claim("c", build.request("gpu"), allocation=build.allocation(*held) if held else None)
    owners = (OwnerReference(api_version="v1", kind="Pod", name=owner, uid="o", controller=True),) if owner else ()
    metadata = replace(item.metadata, uid=uid, creation_timestamp=CREATED_AT, owner_references=owners)
    return replace(item, metadata=metadata, status=replace(item.status, reserved_for=users))


@dataclass(frozen=True)
class Case:
    id: str
    before: ResourceClaim | None
    after: ResourceClaim | None
    want: tuple[str, ...] = ()
    now: datetime = NOW


DEVICE = "gpu.example.com/pool-a/gpu-0 (memory=40Gi)"
FREE, HELD = a_claim(), a_claim(devices=("gpu-0",))
CASES = [
    Case("a new claim", None, FREE, ("Created: created: request gpu of class gpu",)),
    Case(
        "a new claim of a pod",
        None,
        a_claim(owner="web"),
        ("Created: created for Pod web: request gpu of class gpu",),
    ),
    Case("an old claim that a new controller sees", None, HELD, now=NOW + timedelta(hours=1)),
    Case("nothing changed", HELD, HELD),
    Case(
        "allocated for a pod",
        FREE,
        a_claim(POD_A, devices=("gpu-0",)),
        (f"Allocated: allocated {DEVICE} for pods/a (a)",),
    ),
    Case("allocated by hand", FREE, HELD, (f"Allocated: allocated {DEVICE}",)),
    Case("one more user", HELD, a_claim(POD_A, devices=("gpu-0",)), ("Reserved: reserved for pods/a (a)",)),
    Case("a workload", HELD, a_claim(JOB, devices=("gpu-0",)), ("Reserved: reserved for jobs/sweep",)),
    Case(
        "one user instead of another",
        a_claim(POD_A, devices=("gpu-0",)),
        a_claim(POD_B, devices=("gpu-0",)),
        ("Released: no longer reserved for pods/a (a)", "Reserved: reserved for pods/b (b)"),
    ),
    Case(
        "deallocated with its last user",
        a_claim(POD_A, devices=("gpu-0",)),
        FREE,
        (f"Deallocated: deallocated: {DEVICE} can be allocated again; it is no longer reserved for pods/a (a)",),
    ),
    Case(
        "many users at once are one event",
        HELD,
        a_claim(*MANY, devices=("gpu-0",)),
        (f"Reserved: reserved for {', '.join(f'pods/p{each}' for each in range(8))} and 12 more; now reserved for 20",),
    ),
    Case("deleted", FREE, None, ("Deleted: deleted",)),
    Case(
        "another claim of the same name",
        FREE,
        a_claim(uid="2"),
        ("Deleted: deleted", "Created: created: request gpu of class gpu"),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_a_change_is_told(case: Case) -> None:
    told = [report for report, _ in claim_changes(case.before, case.after, case.now)]
    lines = [f"{each.reason}: {each.message}{f' ({each.related.name})' if each.related else ''}" for each in told]
    assert tuple(lines) == case.want


STATES = st.builds(
    lambda users, device: a_claim(*users, devices=(device,) if device else ()),
    st.lists(st.sampled_from((POD_A, POD_B, JOB, *MANY)), unique=True, max_size=20),
    st.sampled_from(("", "gpu-0", "gpu-1")),
)


@given(st.lists(STATES, min_size=1, max_size=30))
def test_a_claim_has_few_events_however_often_it_changes_users(states: list[ResourceClaim]) -> None:
    """For each device at most two, and for each of the few users that are told one by one at most two."""
    written = set()
    aggregator = Aggregator("test")
    way = [None, *states, None]
    for before, after in pairwise(way):
        for report, _ in claim_changes(before, after, NOW):
            if (event := aggregator.event(report, NOW)) is not None:
                written.add(event.metadata.name)
    users = {user.uid for state in states for user in state.status.reserved_for}
    devices = 2 * sum(
        1 for one, two in pairwise(way) if (one and one.status.allocation) != (two and two.status.allocation)
    )
    assert len(written) <= 2 + devices + 2 * len(users) + 2


@given(st.permutations(MANY))
def test_the_users_of_a_popular_claim_are_told_together(users: list[ConsumerReference]) -> None:
    aggregator = Aggregator("test")
    before, written = HELD, set()
    for count in range(1, len(users) + 1):
        after = a_claim(*users[:count], devices=("gpu-0",))
        events = (aggregator.event(report, NOW) for report, _ in claim_changes(before, after, NOW))
        written |= {event.metadata.name for event in events if event is not None}
        before = after
    assert len(written) <= USERS_MAX


def test_why_a_claim_waits_is_one_event_that_is_updated() -> None:
    def refused(message: str) -> Pod:
        condition = PodCondition(type="PodScheduled", status="False", reason="Unschedulable", message=message)
        return Pod(metadata=ObjectMeta(name="web", uid="u"), status=PodStatus(conditions=(condition,)))

    aggregator = Aggregator("test")
    one, two = (refused(message) for message in ("no node", "one node"))
    assert (why_unscheduled(one), why_unscheduled(None)) == ("no node", "")
    first = aggregator.event(waiting(one, FREE), NOW)
    second = aggregator.event(waiting(two, FREE), NOW + timedelta(minutes=1))
    assert first is not None
    assert second is not None
    assert first.metadata.name == second.metadata.name
    assert (second.reason, second.message, second.count) == ("FailedScheduling", "pod web: one node", 2)
    assert (second.first_timestamp, second.last_timestamp) == (first.first_timestamp, "2026-01-01T00:01:05Z")
