"""How much is done to solve a problem: no more than it takes.

Most problems are solved, or refuted, by the plain search within a few steps, and looking at everything would cost more than
that. For the others it pays: first to prune, then, where that drags on, to find out which of the last requests cannot be
served even if they were alone, because a search learns of that only after it has served everything before them.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from dralloc.allocator.ledger import Ledger
from dralloc.allocator.problem_survey import Landscape
from dralloc.allocator.pruner import Knowledge, Pruner
from dralloc.allocator.requests import Demand
from dralloc.allocator.search import Search, Verdict
from dralloc.allocator.supply import Supply


class Effort(NamedTuple):
    """Bounds on the steps of a search: altogether, and at which another way is tried."""

    steps_max: int = 50_000
    plain: int = 100
    pruned: int = 300


class Solution(NamedTuple):
    """How it ended; where it is solved, the ledger holds the first solution."""

    verdict: Verdict
    ledger: Ledger
    steps: int


DEFAULT_EFFORT: Final = Effort()


def solve(demand: Demand, supply: Supply, effort: Effort) -> Solution:
    """The first solution in Kubernetes' order. Raises SearchAborted where the plain search would meet one before it."""
    search = Search(demand, supply, min(effort.plain, effort.steps_max))
    verdict = search.run()
    if verdict is not Verdict.OUT_OF_STEPS:
        return Solution(verdict, search.ledger, search.steps)
    landscape, knowledge = Landscape(demand, supply), Knowledge()
    steps = 0
    for steps_max in (min(effort.pruned, effort.steps_max), effort.steps_max):
        search = Search(demand, supply, steps_max - steps)
        verdict = search.run(Pruner(landscape, search.ledger, knowledge))
        steps += search.steps
        if verdict is not Verdict.OUT_OF_STEPS or steps >= effort.steps_max:
            break
        steps += _find_doomed(landscape, supply, knowledge, min(effort.pruned, effort.steps_max - steps))
    return Solution(verdict, search.ledger, steps)


def _find_doomed(landscape: Landscape, supply: Supply, knowledge: Knowledge, steps_max: int) -> int:
    """Looks, for each run of requests that can meet no fault, for those at its end that cannot be served alone."""
    demand = landscape.demand
    steps = 0
    end = len(demand.requests)
    for start in reversed(range(1, end)):
        end = landscape.horizon[start]
        if start == end or end in knowledge.doomed:
            continue
        search = Search(demand, supply, steps_max)
        verdict = search.run_part(start, end, Pruner(landscape, search.ledger, knowledge))
        steps += search.steps
        if verdict is Verdict.DEAD:
            knowledge.doomed[end] = start
    return steps
