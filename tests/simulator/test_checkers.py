"""The checkers see what they are there for: each wrong world is told, and a right one is not."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from msgspec.structs import replace

from dralloc.api.pod_claims import pod_reference
from dralloc.api.resource_v1 import ResourceClaim
from dralloc.simulator.checkers import World, leaks, violations
from dralloc.testing.builders import allocation, capacity, claim, device, held, request, resource_slice
from dralloc.testing.workloads import existing, pod, seen

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
    world: World
    says: str = ""


VIOLATIONS = [
    Case("a pod with its device", World(claims=(used("c", held("gpu-0")),), pods=(USER,))),
    Case(
        "one device for two",
        World(claims=(used("c", held("gpu-0")), used("d", held("gpu-0")))),
        "given out whole 2 times",
    ),
    Case("a pod whose claim has nothing", World(claims=(claim("c", request()),), pods=(USER,)), "has no devices"),
    Case("a pod whose claim is gone", World(pods=(USER,)), "has no devices"),
    Case(
        "a pod that is not listed",
        World(claims=(used("c", held("gpu-0"), by=None),), pods=(USER,)),
        "not reserved for it",
    ),
]


@pytest.mark.parametrize("case", VIOLATIONS, ids=lambda case: case.id)
def test_violations(case: Case) -> None:
    found = "; ".join(violations(case.world))
    assert (case.says in found) if case.says else not found


LEAKS = [
    Case("a pod that runs", World(claims=(used("c", held("gpu-0")),), pods=(USER,))),
    Case("reserved for a pod that is gone", World(claims=(used("c", held("gpu-0")),)), "gone or done"),
]


@pytest.mark.parametrize("case", LEAKS, ids=lambda case: case.id)
def test_leaks(case: Case) -> None:
    found = "; ".join(leaks(case.world))
    assert (case.says in found) if case.says else not found
