"""Which devices claims get: each case is one rule of Kubernetes."""

from __future__ import annotations

import pytest

from dralloc.devices.allocator.features import Features
from dralloc.devices.allocator.outcome import Allocated, BudgetExhausted, Impossible
from dralloc.devices.allocator.solver import StepBudget
from dralloc.kube.resource_v1 import (
    ResourceClaim,
    ResourceSlice,
)
from dralloc.testing.builders import (
    alternative,
    claim,
    device,
    device_class,
    first_available,
    node,
    request,
    resource_slice,
)
from tests.allocator.allocation_cases import ALL_ON, CASES, Case, gpus
from tests.support.allocations import allocate_world
from tests.support.plain_pools import World


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_allocations(case: Case) -> None:
    world = World(
        slices=case.slices,
        claims=case.claims,
        classes={str(found.metadata.name): found for found in case.classes},
        node=node(),
        features=case.features,
        allocated=case.allocated,
        rules=case.rules,
    )
    outcome = allocate_world(world)
    if case.want is None:
        assert outcome == Impossible()
    else:
        assert isinstance(outcome, Allocated), outcome
        got = tuple(
            tuple(f"{found.request}:{found.device.device}" for found in allocation.devices)
            for allocation in outcome.claims
        )
        assert got == case.want


def simple(slices: tuple[ResourceSlice, ...], *claims: ResourceClaim, features: Features = ALL_ON) -> World:
    return World(slices=slices, claims=claims, classes={"gpu": device_class()}, node=node(), features=features)


def test_an_invalid_pool_is_a_fault_of_the_node() -> None:
    world = simple((resource_slice("a", device("d"), device("d")),), claim("c", request("r")))
    outcome = allocate_world(world)
    assert isinstance(outcome, Impossible)
    assert outcome.is_node_fault


def test_earlier_alternatives_score_higher() -> None:
    either = first_available("r", alternative("x", where="false"), alternative("y"))
    outcome = allocate_world(
        simple((gpus(3),), claim("a", either, request("exact")), claim("b", first_available("r", alternative("z"))))
    )
    assert isinstance(outcome, Allocated)
    assert outcome.score == 7 + 8


def test_a_search_ends_with_its_step_budget() -> None:
    world = simple((gpus(12),), claim("c", *(request(f"r{number}") for number in range(12))))
    assert isinstance(allocate_world(world, StepBudget(steps_max=8)), BudgetExhausted)
    assert isinstance(allocate_world(world, StepBudget(steps_max=13)), Allocated)
