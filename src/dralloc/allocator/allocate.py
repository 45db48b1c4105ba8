"""`allocate`: a problem in, an outcome out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from dralloc.allocator.allocation_results import AllocationAssembler
from dralloc.allocator.ledger import Ledger, Pick
from dralloc.allocator.outcome import (
    RESULTS_MAX,
    Allocated,
    BudgetExhausted,
    Fatal,
    FatalCause,
    Impossible,
    Outcome,
    SearchAborted,
)
from dralloc.allocator.requests import Alternative, Demand
from dralloc.allocator.search import SearchStatus
from dralloc.allocator.solver import DEFAULT_BUDGET, Solution, StepBudget, solve
from dralloc.allocator.supply import Supply
from dralloc.snapshot.cluster import Snapshot, VisiblePool
from dralloc.snapshot.node_selectors import NodeFacts
from dralloc.snapshot.pools import PoolState

__all__ = ["AllocationProblem", "allocate"]

ALTERNATIVES_MAX: Final = 8


class AllocationProblem(Struct, frozen=True, gc=False):
    """The question which devices the claims of a demand get on a node."""

    demand: Demand
    node: NodeFacts
    snapshot: Snapshot
    budget: StepBudget = DEFAULT_BUDGET


def allocate(problem: AllocationProblem) -> Outcome:
    """The first solution in Kubernetes' order."""
    demand = problem.demand
    view = problem.snapshot.view(problem.node, demand.features.visibility)
    if view.fault is not None:
        return Fatal(FatalCause.EVALUATION_ERROR, view.fault)
    supply = Supply(problem.snapshot, view, demand)
    try:
        check(demand, supply)
        solution = solve(demand, supply, problem.budget)
        if solution.status is SearchStatus.SOLVED:
            return allocation_of(demand, solution.ledger, (problem.node,) * len(demand.claims))
        return outcome_of(solution, view.pools)
    except SearchAborted as aborted:
        return aborted.fatal


def check(demand: Demand, supply: Supply) -> None:
    """Raises SearchAborted for the first error in the claims, before any search."""
    if demand.is_plain:
        # Its claims have none.
        return
    for index, claim in enumerate(demand.claims):
        least = 0
        for request in claim.requests:
            _raise_if(request.fault)
            least += min((_least(alternative, supply) for alternative in request.alternatives), default=0)
        if least > RESULTS_MAX:
            raise SearchAborted(Fatal(FatalCause.TOO_MANY_DEVICES, least, index))
        _raise_if(claim.fault)


def score_max(demand: Demand) -> int:
    """The score if every prioritized list gets its first alternative."""
    return ALTERNATIVES_MAX * sum(request.is_list for request in demand.requests)


def _least(alternative: Alternative, supply: Supply) -> int:
    _raise_if(alternative.fault)
    return supply.wanted(alternative)


def _raise_if(fatal: Fatal | None) -> None:
    if fatal is not None:
        raise SearchAborted(fatal)


def outcome_of(solution: Solution, pools: Sequence[VisiblePool] = ()) -> Impossible | BudgetExhausted:
    """The outcome of a search of these pools that found no solution."""
    if solution.status is SearchStatus.OUT_OF_STEPS:
        return BudgetExhausted(solution.steps)
    return Impossible(tuple(pool.pool_id for pool in pools if pool.layout.status is PoolState.INVALID))


def allocation_of(demand: Demand, ledger: Ledger, nodes: Sequence[NodeFacts]) -> Allocated:
    """What the claims get, each on its node, from what the search took."""
    picks: list[list[Pick]] = [[] for _ in demand.claims]
    for pick in ledger.picks.values():
        picks[pick.alternative.claim].append(pick)
    chosen: list[list[Alternative]] = [[] for _ in demand.claims]
    score = 0
    for index, request in enumerate(demand.requests):
        alternative = ledger.chosen.get(index, request.alternatives[0])
        chosen[request.claim].append(alternative)
        if request.is_list:
            score += ALTERNATIVES_MAX - request.alternatives.index(alternative)
    served = zip(nodes, demand.claims, picks, chosen, strict=True)
    return Allocated(
        tuple(
            AllocationAssembler(node, demand.features).allocation(claim, taken, alternatives)
            for node, claim, taken, alternatives in served
        ),
        score,
    )
