"""The checkers see what they are there for: each wrong objects is told, and a right one is not."""

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
from dralloc.simulator.checkers import StoredObjects, leaks, violations
from dralloc.simulator.liveness import forgotten
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


HALVES = resource_slice(
    "halves",
    *(device(name, draws={"card": {"slots": "5"}}) for name in ("gpu-0", "gpu-1")),
    counters={"card": {"slots": "8"}},
)
SHARES = [
    used(name, held("gpu-0", share_id=f"share-{name}", consumed={"memory": "5Gi"}), by=None) for name in ("c", "d")
]

VIOLATIONS = [
    Case("more memory than there is", StoredObjects(slices=(SLICE,), claims=tuple(SHARES)), "memory of device"),
    Case("as much memory as there is", StoredObjects(slices=(SLICE,), claims=(SHARES[0],))),
    Case(
        "more slots than there are",
        StoredObjects(slices=(HALVES,), claims=(used("c", held("gpu-0"), held("gpu-1")),)),
        "slots",
    ),
    Case("as many slots as there are", StoredObjects(slices=(HALVES,), claims=(used("c", held("gpu-0")),))),
    Case("one share for two", StoredObjects(claims=(SHARES[0], replace(SHARES[0]))), "is given out 2 times"),
    Case("a pod with its device", StoredObjects(claims=(used("c", held("gpu-0")),), pods=(USER,))),
    Case(
        "one device for two",
        StoredObjects(claims=(used("c", held("gpu-0")), used("d", held("gpu-0")))),
        "given out whole 2 times",
    ),
    Case(
        "a pod whose claim has nothing", StoredObjects(claims=(claim("c", request()),), pods=(USER,)), "has no devices"
    ),
    Case("a pod whose claim is gone", StoredObjects(pods=(USER,)), "has no devices"),
    Case(
        "a pod that is not listed",
        StoredObjects(claims=(used("c", held("gpu-0"), by=None),), pods=(USER,)),
        "not reserved for it",
    ),
]


@pytest.mark.parametrize("case", VIOLATIONS, ids=lambda case: case.id)
def test_violations(case: Case) -> None:
    found = "; ".join(violations(case.objects))
    assert (case.says in found) if case.says else not found


LEAKS = [
    Case("a pod that runs", StoredObjects(claims=(used("c", held("gpu-0")),), pods=(USER,))),
    Case("reserved for a pod that is gone", StoredObjects(claims=(used("c", held("gpu-0")),)), "gone or done"),
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

FORGOTTEN = [
    Case("a pod that runs", StoredObjects(claims=(used("c", held("gpu-0")),), pods=(USER,))),
    Case("a pod for which there is room", ROOM, "could run on node-a"),
    Case("a pod whose class is missing", dataclasses.replace(ROOM, classes=())),
    Case(
        "a pod on a node that does not run it",
        StoredObjects(pods=(seen(pod("p", node="node-a"), phase="Pending"),)),
        "does not run",
    ),
    Case(
        "a pod for which no claim is made",
        StoredObjects(pods=(seen(pod("p", {"gpu": template("t")}), phase="Pending"),)),
        "nobody made",
    ),
]


@pytest.mark.parametrize("case", FORGOTTEN, ids=lambda case: case.id)
def test_forgotten(case: Case) -> None:
    found = "; ".join(forgotten(case.objects, START))
    assert (case.says in found) if case.says else not found
