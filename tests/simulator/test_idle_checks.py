"""The checks of an idle cluster report each wrong state, and no right one."""

from __future__ import annotations

import asyncio
import dataclasses
from dataclasses import dataclass

import pytest
from msgspec.structs import replace

from dralloc.kube.codec import decode, encode
from dralloc.kube.core_v1 import Node
from dralloc.kube.device_parts import capacity
from dralloc.kube.meta_v1 import OwnerReference
from dralloc.kube.pod_claims import group_reference, pod_reference
from dralloc.kube.resource_v1 import ConsumerReference, ResourceClaim
from dralloc.kube.scheduling_v1beta1 import API_VERSION, PodGroup
from dralloc.testing.builders import allocation, claim, device, device_class, held, request, resource_slice
from dralloc.testing.virtual_time import START, run_virtual
from tests.simulator.idle_checks import SOON_S, StoredObjects, lasting, leaks
from tests.simulator.liveness import stuck_pods
from tests.support.scheduled_cluster import node
from tests.support.workloads import existing, pod, pod_group, seen, template

USER = seen(pod("p", {"gpu": existing("c")}, node="node-a"), phase="Running")
WAITING = seen(pod("w", {"gpu": existing("c")}, scheduler="s"), phase="Pending")
SLICE = resource_slice(
    "s", device("gpu-0", shareable=True, capacity={"memory": capacity("8Gi", default="1Gi", minimum="1Gi")})
)


def used(name: str, *results: object, by: object = USER) -> ResourceClaim:
    plain = claim(name, request(), allocation=allocation(*results))  # type: ignore[arg-type]
    consumers = (pod_reference(by),) if by is not None else ()  # type: ignore[arg-type]
    return replace(plain, status=replace(plain.status, reserved_for=consumers))


def deleted(claim: ResourceClaim) -> ResourceClaim:
    return replace(claim, metadata=replace(claim.metadata, deletion_timestamp="2026-01-01T00:00:10Z"))


@dataclass(frozen=True)
class Case:
    id: str
    objects: StoredObjects
    says: str = ""


GONE_JOB = ConsumerReference(api_group="batch", resource="jobs", name="j", uid="u")
GONE_GROUP = OwnerReference(api_version=API_VERSION, kind="PodGroup", name="g", uid="u", controller=True)


def of_gone_job(name: str) -> ResourceClaim:
    plain = used(name, held("gpu-0"), by=None)
    return replace(plain, status=replace(plain.status, reserved_for=(GONE_JOB,)))


def of_gone_group(name: str) -> ResourceClaim:
    plain = used(name, held("gpu-0"))
    return replace(plain, metadata=replace(plain.metadata, owner_references=(GONE_GROUP,)))


ELSEWHERE = seen(pod("p", {"gpu": existing("c")}, namespace="other", node="node-a"), phase="Running")
LEAKS = [
    Case("a pod that runs", StoredObjects(claims=(used("c", held("gpu-0")),), pods=(USER,))),
    Case("deleted, with a pod that runs", StoredObjects(claims=(deleted(used("c")),), pods=(USER,))),
    Case(
        "deleted, with a pod that waits for its end",
        StoredObjects(claims=(deleted(used("c", by=WAITING)),), pods=(WAITING,)),
        "is deleted, unused, and still exists",
    ),
    Case("a pod that a job has left behind", StoredObjects(claims=(of_gone_job("c"),), pods=(USER,))),
    Case(
        "a pod of another namespace",
        StoredObjects(claims=(of_gone_job("c"),), pods=(ELSEWHERE,)),
        "reserved for job j, which is deleted or finished",
    ),
    Case("a pod that a group has left behind", StoredObjects(claims=(of_gone_group("c"),), pods=(USER,))),
    Case("reserved for a pod that is gone", StoredObjects(claims=(used("c", held("gpu-0")),)), "deleted or finished"),
]


@pytest.mark.parametrize("case", LEAKS, ids=lambda case: case.id)
def test_leaks(case: Case) -> None:
    found = "; ".join(leaks(case.objects))
    assert (case.says in found) if case.says else not found


NODE = decode(encode(node("node-a")), Node)
ROOM = StoredObjects(
    nodes=(NODE,), slices=(SLICE,), classes=(device_class(),), claims=(claim("c", request()),), pods=(WAITING,)
)

SHARED = {"shared": template("t")}
MEMBER = seen(pod("m", SHARED, group="g"), phase="Pending")


def group_with(claim: str) -> PodGroup:
    document = pod_group("g", SHARED, min_count=1)
    status = {"resourceClaimStatuses": [{"name": "shared", "resourceClaimName": claim}]}
    known = {**document["metadata"], "uid": "uid-of-g"}
    return decode(encode({**document, "metadata": known, "status": status}), PodGroup)


def of_group(name: str, *, is_deleted: bool, owner: str = "uid-of-g", is_held: bool = True) -> ResourceClaim:
    """A claim that was made for the group or another one."""
    made = used(name, held("gpu-0"), by=None)
    reference = OwnerReference(api_version=API_VERSION, kind="PodGroup", name="g", uid=owner, controller=True)
    deleted = "2026-01-01T00:00:10Z" if is_deleted else None
    metadata = replace(made.metadata, owner_references=(reference,), deletion_timestamp=deleted)
    consumers = (group_reference(group_with(name)),) if is_held else ()
    return replace(made, metadata=metadata, status=replace(made.status, reserved_for=consumers))


def waiting_member(*claims: ResourceClaim) -> StoredObjects:
    return StoredObjects(pods=(MEMBER,), groups=(group_with("c"),), claims=claims)


STUCK = [
    Case("a pod that runs", StoredObjects(claims=(used("c", held("gpu-0")),), pods=(USER,))),
    Case("a pod that fits", ROOM, "could run on node-a"),
    Case("a pod whose class is missing", dataclasses.replace(ROOM, classes=())),
    Case(
        "a pod on a node that does not run it",
        StoredObjects(pods=(seen(pod("p", node="node-a"), phase="Pending"),)),
        "does not run",
    ),
    Case(
        "a pod without its generated claim",
        StoredObjects(pods=(seen(pod("p", {"gpu": template("t")}), phase="Pending"),)),
        "were not generated",
    ),
    Case("a member without a claim of its group", waiting_member(), "were not generated"),
    Case(
        "a member without the record of its group's claim",
        waiting_member(of_group("c", is_deleted=False)),
        "were not generated",
    ),
    Case("a member whose group holds a deleted claim", waiting_member(of_group("c", is_deleted=True))),
    Case(
        "a member whose group does not hold its deleted claim",
        waiting_member(of_group("c", is_deleted=True, is_held=False)),
        "were not generated",
    ),
    Case(
        "a member next to a deleted claim of another group",
        waiting_member(of_group("c", is_deleted=True, owner="uid-of-another")),
        "were not generated",
    ),
]


@pytest.mark.parametrize("case", STUCK, ids=lambda case: case.id)
def test_stuck_pods(case: Case) -> None:
    found = "; ".join(stuck_pods(case.objects, START))
    assert (case.says in found) if case.says else not found


def lasting_of(*looks: list[str]) -> tuple[list[str], float]:
    """What is reported of what each look sees, and the seconds that it takes."""
    seen = iter(looks)

    async def look_until_told() -> tuple[list[str], float]:
        return await lasting(lambda: next(seen)), asyncio.get_running_loop().time()

    return run_virtual(look_until_told())


def test_what_a_component_is_about_to_do_is_not_reported() -> None:
    assert lasting_of(["a pod was bound a moment ago", "a pod is stuck"], ["a pod is stuck"]) == (
        ["a pod is stuck"],
        SOON_S,
    )
    assert lasting_of(["a pod was bound a moment ago"], ["another one was bound"]) == ([], SOON_S)


def test_an_idle_cluster_is_looked_at_once() -> None:
    assert lasting_of([]) == ([], 0.0)
