"""Worlds as problems for the allocator, and its outcomes in the form in which the plain allocator gives its own."""

from __future__ import annotations

from itertools import count

from dralloc.allocator.allocate import AllocationProblem, allocate
from dralloc.allocator.outcome import Allocated, BudgetExhausted, Fatal, Impossible, Outcome
from dralloc.allocator.requests import compile_demand
from dralloc.allocator.solver import DEFAULT_EFFORT, Effort
from dralloc.api.resource_v1 import AllocationResult
from dralloc.snapshot.cluster import Snapshot
from tests.support.plain_allocator import PlainOutcome
from tests.support.plain_pools import World
from tests.support.plain_rules import Given


def problem_of(world: World, effort: Effort = DEFAULT_EFFORT) -> AllocationProblem:
    demand = compile_demand(world.claims, world.classes, world.features)
    snapshot = Snapshot.of(slices=world.slices, claims=world.allocated, rules=world.rules, nodes=[world.node])
    return AllocationProblem(demand, world.node, snapshot, effort)


def allocate_world(world: World, effort: Effort = DEFAULT_EFFORT) -> Outcome:
    numbers = count(1)
    return allocate(problem_of(world, effort), lambda: f"share-{next(numbers)}")


def as_plain(outcome: Outcome) -> PlainOutcome:
    match outcome:
        case Allocated():
            return PlainOutcome(tuple(map(_given, outcome.results)))
        case Impossible():
            return PlainOutcome(has_invalid_pool=outcome.is_node_fault)
        case Fatal():
            claim = str(outcome.claim) if outcome.claim is not None else None
            device = str(outcome.device) if outcome.device is not None else None
            return PlainOutcome(fatal=(claim, outcome.request, device))
        case BudgetExhausted():
            return PlainOutcome(is_out_of_steps=True)


def _given(result: AllocationResult) -> tuple[Given, ...]:
    return tuple(
        Given(
            found.request,
            (found.driver, found.pool, found.device),
            tuple(sorted((name, str(amount)) for name, amount in found.consumed_capacity.items()))
            if found.share_id is not None
            else None,
        )
        for found in result.devices.results
    )
