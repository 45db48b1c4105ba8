"""The cost and work of one evaluation.

Two things are metered. Cost is Kubernetes' measure, with its limit. It ignores some work, such as concatenating lists
or comparing nested ones, which an attacker can multiply; so the actual work is metered, too, with a limit far above
that of legitimate expressions.
"""

from __future__ import annotations

from typing import Final

from dralloc.cel.errors import CostLimitError

# --- Limits ---------------------------------------------------------------------------------------------------------
# Kubernetes' limits on expressions; a module of its own, because validation needs them without the language.


LENGTH_MAX_BYTES: Final = 10 * 1024
COST_MAX: Final = 1_000_000


# Visited elements: about a second of work.
WORK_MAX: Final = 2_000_000
# Copied characters and elements that count as one visited element.
COPIES_PER_WORK: Final = 10
# A longer text cannot be read within the cost limit either.
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
        """Charges the work of copying this many characters or elements."""
        self.spend(count // COPIES_PER_WORK)

    def spend(self, work: int) -> None:
        self.work += work
        if self.work > self.work_max:
            raise CostLimitError("operation cancelled: the expression does too much work")


def limited_text_length(length: int) -> int:
    """Returns the length if a text of that length is allowed; raises otherwise."""
    if length > TEXT_LENGTH_MAX:
        raise CostLimitError(f"operation cancelled: a text of {length} characters is too long")
    return length
