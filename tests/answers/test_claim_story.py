"""The story of a claim from events and status: what is told twice is told once, and nothing is lost."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from dralloc.answers.claim_story import claim_story
from dralloc.kube.core_v1 import Event, ObjectReference
from dralloc.kube.meta_v1 import ObjectMeta
from dralloc.kube.pod_claims import CLAIM_FINALIZER
from dralloc.kube.pod_v1 import Pod, PodCondition, PodSpec, PodStatus
from dralloc.kube.resource_v1 import ConsumerReference, ResourceClaim
from dralloc.testing import builders as build


def at(second: int) -> str:
    return f"2026-01-01T00:00:{second:02}Z"


def event(
    reason: str, second: int, message: str, *, uid: str = "1", name: str = "c", last: int = 0, pod: str = ""
) -> Event:
    related = ObjectReference(kind="Pod", api_version="v1", namespace="default", name=pod, uid=f"uid-{pod}")
    return Event(
        metadata=ObjectMeta(name=f"{name}.{reason}.{second}", namespace="default"),
        involved_object=ObjectReference(kind="ResourceClaim", namespace="default", name=name, uid=uid),
        reason=reason,
        message=message,
        type="Warning" if reason == "FailedScheduling" else "Normal",
        first_timestamp=at(second),
        last_timestamp=at(last or second),
        count=3 if last else 1,
        related=related if pod else None,
    )


def a_claim(*users: str, allocated: int = 0, deleted: int = 0, finalizers: tuple[str, ...] = ()) -> ResourceClaim:
    held = build.allocation(build.held("gpu-0", share_id="s", consumed={"memory": "40Gi"}))
    item = build.claim(
        "c", build.request("gpu"), allocation=replace(held, allocation_timestamp=at(allocated)) if allocated else None
    )
    metadata = replace(
        item.metadata,
        uid="1",
        creation_timestamp=at(1),
        deletion_timestamp=at(deleted) if deleted else None,
        finalizers=finalizers,
    )
    reserved = tuple(ConsumerReference(resource="pods", name=name, uid=f"uid-{name}") for name in users)
    return replace(item, metadata=metadata, status=replace(item.status, reserved_for=reserved))


@dataclass(frozen=True)
class Case:
    id: str
    claim: ResourceClaim | None
    events: tuple[Event, ...] = ()
    want: list[str] = field(default_factory=list)


WAITS = event("FailedScheduling", 2, "pod web: 0/6 nodes are available", last=40, pod="web")
GIVEN = event("Allocated", 41, "allocated gpu-0 for pods/web", pod="web")
BACK = event("Deallocated", 50, "deallocated: gpu-0 can be allocated again", pod="web")
GONE = event("Deleted", 50, "deleted")
CREATED = event("Created", 1, "created: request gpu of class gpu")
DEVICE = "gpu.example.com/pool-a/gpu-0 (memory=40Gi)"
CASES = [
    Case("a claim without events", a_claim(), (), [f"{at(1)}  Created: created"]),
    Case(
        "the whole life",
        None,
        (GONE, BACK, GIVEN, WAITS, CREATED),
        [
            f"{at(1)}  Created: created: request gpu of class gpu",
            f"{at(2)}  FailedScheduling: pod web: 0/6 nodes are available (until {at(40)}, reported 3 times)",
            f"{at(41)}  Allocated: allocated gpu-0 for pods/web",
            f"{at(50)}  Deallocated: deallocated: gpu-0 can be allocated again",
            f"{at(50)}  Deleted: deleted",
        ],
    ),
    Case(
        "events are told once",
        a_claim("web", allocated=41),
        (CREATED, GIVEN),
        [
            f"{at(1)}  Created: created: request gpu of class gpu",
            f"{at(41)}  Allocated: allocated gpu-0 for pods/web",
        ],
    ),
    Case(
        "the status tells what events do not",
        a_claim("web", "other", allocated=41),
        (),
        [
            f"{at(1)}  Created: created",
            f"{at(41)}  Allocated: allocated {DEVICE}",
            "at an unknown time  Reserved: reserved for pods/web, pods/other",
        ],
    ),
    Case(
        "a name is not a part of another name",
        a_claim("web-1", allocated=41),
        (event("Reserved", 42, "reserved for pods/web-10, pods/web-11; now reserved for 20"), GIVEN),
        [
            f"{at(1)}  Created: created",
            f"{at(41)}  Allocated: allocated gpu-0 for pods/web",
            f"{at(42)}  Reserved: reserved for pods/web-10, pods/web-11; now reserved for 20",
            "at an unknown time  Reserved: reserved for pods/web-1",
        ],
    ),
    Case(
        "allocated again, which no event tells yet",
        a_claim(allocated=55),
        (GIVEN, BACK),
        [
            f"{at(1)}  Created: created",
            f"{at(41)}  Allocated: allocated gpu-0 for pods/web",
            f"{at(50)}  Deallocated: deallocated: gpu-0 can be allocated again",
            f"{at(55)}  Allocated: allocated {DEVICE}",
        ],
    ),
    Case(
        "deletion was requested",
        a_claim(deleted=9),
        (),
        [
            f"{at(1)}  Created: created",
            f"{at(9)}  DeletionRequested: deletion was requested; it is deleted when no pod uses it",
        ],
    ),
    Case(
        "a finalizer of others is named",
        a_claim(deleted=9, finalizers=(CLAIM_FINALIZER, "acme.test/hold")),
        (),
        [
            f"{at(1)}  Created: created",
            f"{at(9)}  DeletionRequested: deletion was requested; it is deleted when no pod uses it and its finalizers are removed: acme.test/hold",
        ],
    ),
    Case(
        "events of an earlier claim of this name, and of others, are not its story",
        a_claim(),
        (event("Deleted", 0, "deleted", uid="0"), event("Allocated", 5, "other", name="other")),
        [f"{at(1)}  Created: created"],
    ),
    Case(
        "of claims that are gone, the last one of this name",
        None,
        (
            event("Created", 3, "first", uid="0"),
            event("Deleted", 4, "first gone", uid="0"),
            event("Created", 5, "second"),
        ),
        [f"{at(5)}  Created: second"],
    ),
    Case("a claim that never was", None),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_the_story(case: Case) -> None:
    assert [step.line() for step in claim_story(case.claim, "default", "c", case.events)] == case.want


def user(name: str, second: int, *, node: str = "n1", ready: str = "True", uid: str = "") -> Pod:
    condition = PodCondition(type="PodReadyToStartContainers", status=ready, last_transition_time=at(second))
    return Pod(
        metadata=ObjectMeta(name=name, namespace="default", uid=uid or f"uid-{name}"),
        spec=PodSpec(node_name=node),
        status=PodStatus(conditions=(condition,)),
    )


@pytest.mark.parametrize(
    ("pods", "want"),
    [
        ([user("web", 45)], [f"{at(45)}  Prepared: prepared on node n1 for pods/web"]),
        ([user("web", 45, ready="False")], []),
        ([user("web", 45, uid="of another pod of this name")], []),
        (
            [user("web", 45), user("other", 43)],
            [f"{at(43)}  Prepared: prepared on node n1 for pods/other"],
        ),
        (
            [user("web", 45), user("other", 46, node="n2"), user("stranger", 44)],
            [
                f"{at(45)}  Prepared: prepared on node n1 for pods/web",
                f"{at(46)}  Prepared: prepared on node n2 for pods/other",
            ],
        ),
    ],
)
def test_nodes_tell_by_pods_that_devices_are_prepared(pods: list[Pod], want: list[str]) -> None:
    reserved = event("Reserved", 42, "reserved for pods/web, pods/other")
    told = claim_story(a_claim("web", "other", allocated=41), "default", "c", [CREATED, GIVEN, reserved], pods)
    assert [step.line() for step in told][3:] == want


@given(st.permutations([CREATED, WAITS, GIVEN, BACK, GONE]))
def test_the_order_of_events_does_not_matter(events: list[Event]) -> None:
    told = [step.reason for step in claim_story(None, "default", "c", events)]
    assert told == ["Created", "FailedScheduling", "Allocated", "Deallocated", "Deleted"]
