"""The smallest single changes with which claims would fit on a node.

Every reported change was tried: with it, the allocator finds a solution. If a change has degrees (less of a capacity, fewer
devices), the smallest degree that helps is searched for.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from dralloc.allocator.solver import StepBudget
from dralloc.whatif.explanation.claim_changes import Change
from dralloc.whatif.explanation.proposals import Ladder, proposals
from dralloc.whatif.explanation.situation import Situation

MISSES_MAX: Final = 5
# The number of trials, and the effort of each.
PROBES_MAX: Final = 150
PROBE_BUDGET: Final = StepBudget(steps_max=3000)


def nearest_misses(situation: Situation) -> tuple[Change, ...]:
    """Changes each of which makes the claims fit, the smallest first."""
    probe = _Probe(situation)
    found = [change for ladder in proposals(situation) if (change := probe.least(ladder)) is not None]
    return tuple(sorted(found, key=lambda change: (change.distance, change.text))[:MISSES_MAX])


class _Probe:
    def __init__(self, situation: Situation) -> None:
        self._situation = replace(situation, budget=PROBE_BUDGET)
        self._probes_left = PROBES_MAX

    def least(self, ladder: Ladder) -> Change | None:
        """The first rung that helps. If one helps, all after it are assumed to help."""
        if not ladder or not self._helps(ladder[-1]):
            return None
        low, high = 0, len(ladder) - 1
        while low < high:
            middle = (low + high) // 2
            if self._helps(ladder[middle]):
                high = middle
            else:
                low = middle + 1
        # The bisection ends at a rung that was tried, even if the assumption does not hold.
        return ladder[high]

    def _helps(self, change: Change) -> bool:
        if self._probes_left <= 0:
            return False
        self._probes_left -= 1
        return change.apply(self._situation).fits
