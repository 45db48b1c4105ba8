"""What one evaluation has used up.

Two things are counted. Cost is Kubernetes' own measure, with its limit. It ignores some work, such as joining lists
or comparing nested ones, which an attacker can multiply; so the work that this implementation really does is
counted as well, with a limit that no expression of honest cost comes near.
"""

from __future__ import annotations

from typing import Final

from dralloc.cel.errors import CostLimitError

COST_MAX: Final = 1_000_000
# Elements looked at: about a second of them.
WORK_MAX: Final = 2_000_000
# Characters and elements that are only copied, for the work of one that is looked at.
COPIES_PER_WORK: Final = 10
# A text longer than this cannot be read within the cost limit either.
TEXT_LENGTH_MAX: Final = 10_000_000


class Meter:
    """Counts cost and work, and stops the evaluation at the limit."""

    __slots__ = ("cost", "cost_max", "work", "work_max")

    def __init__(self, cost_max: int = COST_MAX, work_max: int = WORK_MAX) -> None:
        self.cost = 0
        self.cost_max = cost_max
        self.work = 0
        self.work_max = work_max

    def charge(self, cost: int) -> None:
        self.cost += cost
        if self.cost > self.cost_max:
            raise CostLimitError(f"operation cancelled: actual cost limit exceeded: the limit is {self.cost_max}")

    def spend_copying(self, count: int) -> None:
        """Work for so many characters or elements that are copied."""
        self.spend(count // COPIES_PER_WORK)

    def spend(self, work: int) -> None:
        self.work += work
        if self.work > self.work_max:
            raise CostLimitError("operation cancelled: the expression does too much work")


def limited_text_length(length: int) -> int:
    """The length, if a text of that length may be made."""
    if length > TEXT_LENGTH_MAX:
        raise CostLimitError(f"operation cancelled: a text of {length} characters is too long")
    return length
