"""Which numbers of units fit on all nodes together, node after node: the search for a gang that always ends.

A vector of counts is a cell of a grid, and a set of vectors a number with one bit for each cell. If a node takes some units, it takes
fewer of them, too, so the sets are closed downwards, and adding a node is a few shifts of such a number. Its size, not the
number of choices, bounds the time: for gangs with few kinds of members that is little, however full the nodes are.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final

from dralloc.scheduler.decide.gang_rooms import Counts

# The largest grid; and one on which the search takes some hundredths of a second at most.
CELLS_MAX: Final = 2_000_000
FAST_CELLS_MAX: Final = 600_000


class GangReach:
    """`wanted` units of each kind must be placed; `nodes` has the largest combinations of units that each node takes."""

    def __init__(self, wanted: Counts, nodes: Sequence[Sequence[Counts]]) -> None:
        self._wanted = wanted
        self._nodes = nodes
        most = [max((counts[kind] for each in nodes for counts in each), default=0) for kind in range(len(wanted))]
        # Room for one more node beside all that is wanted.
        self._sizes = [count + more + 1 for count, more in zip(wanted, most, strict=True)]
        self._strides = [prod(self._sizes[:kind]) for kind in range(len(wanted))]

    @property
    def is_possible(self) -> bool:
        return prod(self._sizes) <= CELLS_MAX

    @property
    def is_fast(self) -> bool:
        return prod(self._sizes) <= FAST_CELLS_MAX

    def search(self) -> list[Counts] | None:
        """What each node gets, in their order; None if that is impossible."""
        reached = [1]
        box, lower = self._box(), self._lower_cells()
        goal = self._cell(self._wanted)
        for combinations in self._nodes:
            known, grown = reached[-1], 0
            for counts in combinations:
                grown |= known << self._cell(counts)
            for shift, mask in lower:
                grown |= (grown & mask) >> shift
            reached.append(grown & box)
            if reached[-1] >> goal & 1:
                return self._choices(reached)
        return None

    def _choices(self, reached: Sequence[int]) -> list[Counts]:
        """Goes back from the goal: on each node, a combination that leaves what the nodes before it can take."""
        left, chosen = self._wanted, list[Counts]()
        for combinations, before in zip(reversed(self._nodes[: len(reached) - 1]), reversed(reached[:-1]), strict=True):
            for counts in combinations:
                rest = tuple(max(count - taken, 0) for count, taken in zip(left, counts, strict=True))
                if before >> self._cell(rest) & 1:
                    chosen.append(tuple(map(int.__sub__, left, rest)))
                    left = rest
                    break
        assert not any(left), "every set was reached from the one before"
        return [*reversed(chosen)] + [(0,) * len(self._wanted)] * (len(self._nodes) - len(chosen))

    # --- The grid ---------------------------------------------------------------------------------------------------

    def _cell(self, counts: Counts) -> int:
        return sum(map(int.__mul__, counts, self._strides))

    def _box(self) -> int:
        """The cells with no more than is wanted."""
        cells = 1
        for count, stride in zip(self._wanted, self._strides, strict=True):
            cells = _repeated(cells, stride, count + 1)
        return cells

    def _lower_cells(self) -> list[tuple[int, int]]:
        """Shifts by 1, 2, 4 … units of each kind, and the cells that have so many."""
        shifts: list[tuple[int, int]] = []
        for size, stride in zip(self._sizes, self._strides, strict=True):
            line, cells = stride * size, prod(self._sizes)
            step = 1
            while step < size:
                enough = ((1 << line) - 1) ^ ((1 << step * stride) - 1)
                shifts.append((step * stride, _repeated(enough, line, cells // line)))
                step *= 2
        return shifts


def _repeated(cells: int, distance: int, times: int) -> int:
    """The cells as often, each time further by this distance."""
    if times == 1:
        return cells
    half = _repeated(cells, distance, times // 2)
    both = half | half << distance * (times // 2)
    return both | cells << distance * (times - 1) if times % 2 else both
