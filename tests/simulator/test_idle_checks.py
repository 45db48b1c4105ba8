"""The checks of an idle cluster report each wrong state, and no right one."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import pytest
from msgspec.structs import replace

from dralloc.api.codec import decode, encode
from dralloc.api.core_v1 import Node
from dralloc.api.device_parts import capacity
from dralloc.api.pod_claims import pod_reference
from dralloc.api.resource_v1 import ResourceClaim
from dralloc.simulator.idle_checks import StoredObjects, leaks
from dralloc.simulator.liveness import stuck_pods
from dralloc.simulator.virtual_time import START
from dralloc.testing.builders import allocation, claim, device, device_class, held, request, resource_slice
from tests.support.scheduled_cluster import node
from tests.support.workloads import existing, pod, seen, template

USER = seen(pod("p", {"gpu": existing("c")}, node="node-a"), phase="Running")
SLICE = resource_slice(
    "s", device("gpu-0", shareable=True, capacity={"memory": capacity("8Gi", default="1Gi", minimum="1Gi")})
)


def used(name: str, *results: object, by: object = USER) -> ResourceClaim:
    plain = claim(name, request(), allocation=allocation(*results))  # type: ignore[arg-type]
    consumers = (pod_reference(by),) if by is not None else ()  # type: ignore[arg-type]
    return replace(plain, status=replace(plain.status, reserved_for=consumers))


@dataclass(frozen=True)
class Case:
    id: str
    objects: StoredObjects
    says: str = ""


LEAKS = [
    Case("a pod that runs", StoredObjects(claims=(used("c", held("gpu-0")),), pods=(USER,))),
    Case("reserved for a pod that is gone", StoredObjects(claims=(used("c", held("gpu-0")),)), "deleted or finished"),
]


@pytest.mark.parametrize("case", LEAKS, ids=lambda case: case.id)
def test_leaks(case: Case) -> None:
    found = "; ".join(leaks(case.objects))
    assert (case.says in found) if case.says else not found


WAITING = seen(pod("w", {"gpu": existing("c")}, scheduler="s"), phase="Pending")
NODE = decode(encode(node("node-a")), Node)
ROOM = StoredObjects(
    nodes=(NODE,), slices=(SLICE,), classes=(device_class(),), claims=(claim("c", request()),), pods=(WAITING,)
)

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
]


@pytest.mark.parametrize("case", STUCK, ids=lambda case: case.id)
def test_stuck_pods(case: Case) -> None:
    found = "; ".join(stuck_pods(case.objects, START))
    assert (case.says in found) if case.says else not found
