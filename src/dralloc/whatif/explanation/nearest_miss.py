"""The nearest miss: the smallest single changes with which claims would fit on a node.

Every change that is told was put to the allocator: with it, the claims do fit. Where a change has degrees (less of a
capacity, fewer devices), the least degree that helps is looked for.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from dralloc.allocator.solver import StepBudget
from dralloc.whatif.explanation.claim_changes import Change
from dralloc.whatif.explanation.proposals import Ladder, proposals
from dralloc.whatif.explanation.situation import Situation

MISSES_MAX: Final = 5
# How often the allocator is asked, and how hard it tries each time.
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
        """The first rung that helps. If one does, all after it are taken to."""
        if not ladder or not self._helps(ladder[-1]):
            return None
        low, high = 0, len(ladder) - 1
        while low < high:
            middle = (low + high) // 2
            if self._helps(ladder[middle]):
                high = middle
            else:
                low = middle + 1
        # What was found by halving is known to help, also where the ladder is not as even as it should be.
        return ladder[high]

    def _helps(self, change: Change) -> bool:
        if self._probes_left <= 0:
            return False
        self._probes_left -= 1
        return change.apply(self._situation).fits
