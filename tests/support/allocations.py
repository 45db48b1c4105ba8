"""Converts random worlds to problems of the allocator, and its outcomes to those of the plain allocator."""

from __future__ import annotations

from collections.abc import Sequence

from dralloc.devices.allocator.allocate import AllocationProblem, allocate
from dralloc.devices.allocator.diagnosis.diagnoser import Diagnoser
from dralloc.devices.allocator.outcome import Allocated, BudgetExhausted, ClaimAllocation, Fatal, Impossible, Outcome
from dralloc.devices.allocator.requests import compile_demand
from dralloc.devices.allocator.solver import DEFAULT_BUDGET, StepBudget
from dralloc.devices.identity import ClaimId
from dralloc.devices.snapshot import Snapshot
from dralloc.kube.resource_v1 import ResourceClaim
from tests.support.plain_allocator import PlainOutcome
from tests.support.plain_pools import World
from tests.support.plain_rules import Given


def problem_of(world: World, budget: StepBudget = DEFAULT_BUDGET) -> AllocationProblem:
    demand = compile_demand(world.claims, world.classes, world.features)
    snapshot = Snapshot.of(slices=world.slices, claims=world.allocated, rules=world.rules, nodes=[world.node])
    return AllocationProblem(demand, world.node, snapshot, budget)


def allocate_world(world: World, budget: StepBudget = DEFAULT_BUDGET) -> Outcome:
    return allocate(problem_of(world, budget))


def reason_of(world: World) -> str:
    """Why the node cannot serve the claims."""
    problem = problem_of(world)
    return Diagnoser(problem.demand, problem.snapshot).reason(problem.node, allocate(problem)).line


def as_plain(outcome: Outcome, claims: Sequence[ResourceClaim]) -> PlainOutcome:
    match outcome:
        case Allocated():
            return PlainOutcome(tuple(map(_given, outcome.claims)))
        case Impossible():
            return PlainOutcome(has_invalid_pool=outcome.is_node_fault)
        case Fatal():
            claim = str(ClaimId.of(claims[outcome.claim])) if outcome.claim is not None else None
            request = str(outcome.request) if outcome.request is not None else None
            device = str(outcome.device) if outcome.device is not None else None
            return PlainOutcome(fatal=(claim, request, device))
        case BudgetExhausted():
            return PlainOutcome(is_out_of_steps=True)


def _given(allocation: ClaimAllocation) -> tuple[Given, ...]:
    return tuple(
        Given(
            str(found.request),
            (found.device.driver, found.device.pool, found.device.device),
            tuple(sorted((name, str(amount)) for name, amount in found.consumed_capacity.items()))
            if found.is_share
            else None,
            tuple(sorted((name, str(amount)) for name, amount in found.capacity_limits.items())),
        )
        for found in allocation.devices
    )
