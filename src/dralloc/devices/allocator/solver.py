"""Solves a problem with no more effort than it needs.

Most problems are solved or refuted by the plain search within a few steps, and a survey of all devices would cost more than
that. The others are searched with pruning. If that takes many steps, too, the last requests are searched alone: a search
discovers that they are unsatisfiable only after it has served everything before them.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from dralloc.devices.allocator.ledger import Ledger
from dralloc.devices.allocator.problem_survey import ProblemSurvey
from dralloc.devices.allocator.pruner import Knowledge, Pruner
from dralloc.devices.allocator.requests import Demand
from dralloc.devices.allocator.search import Search, SearchStatus
from dralloc.devices.allocator.supply import Supply
from dralloc.primitives.work_allowance import check_work, work_done


class StepBudget(NamedTuple):
    """Limits on search steps: in total, of the plain search, and of the first search with pruning."""

    steps_max: int = 50_000
    plain: int = 100
    pruned: int = 300


class Solution(NamedTuple):
    """How the search ended. If it is solved, the ledger has the first solution."""

    status: SearchStatus
    ledger: Ledger
    steps: int


DEFAULT_BUDGET: Final = StepBudget()
# In units of `work_allowance`.
WORK_OF_STEP: Final = 75
WORK_OF_PRUNED_STEP: Final = 300


def solve(demand: Demand, supply: Supply, budget: StepBudget) -> Solution:
    """The first solution in Kubernetes' order. Raises SearchAborted if the plain search meets a fatal error before it."""
    check_work()
    search = Search(demand, supply, min(budget.plain, budget.steps_max))
    status = search.run()
    work_done(WORK_OF_STEP * search.steps)
    if status is not SearchStatus.OUT_OF_STEPS:
        return Solution(status, search.ledger, search.steps)
    survey, knowledge = ProblemSurvey(demand, supply), Knowledge()
    steps = 0
    for steps_max in (min(budget.pruned, budget.steps_max), budget.steps_max):
        search = Search(demand, supply, steps_max - steps)
        status = search.run(Pruner(survey, search.ledger, knowledge))
        steps += search.steps
        work_done(WORK_OF_PRUNED_STEP * search.steps)
        if status is not SearchStatus.OUT_OF_STEPS or steps >= budget.steps_max:
            break
        if survey.can_become_possible:
            continue
        steps += _find_unsatisfiable(survey, supply, knowledge, min(budget.pruned, budget.steps_max - steps))
    return Solution(status, search.ledger, steps)


def _find_unsatisfiable(survey: ProblemSurvey, supply: Supply, knowledge: Knowledge, steps_max: int) -> int:
    """Finds, for each run of requests that meets no fatal error, a suffix that cannot be served alone."""
    demand = survey.demand
    steps = 0
    end = len(demand.requests)
    for start in reversed(range(1, end)):
        end = survey.next_error[start]
        if start == end or end in knowledge.unsatisfiable:
            continue
        search = Search(demand, supply, steps_max)
        status = search.run_part(start, end, Pruner(survey, search.ledger, knowledge))
        steps += search.steps
        work_done(WORK_OF_PRUNED_STEP * search.steps)
        if status is SearchStatus.DEAD:
            knowledge.unsatisfiable[end] = start
    return steps
