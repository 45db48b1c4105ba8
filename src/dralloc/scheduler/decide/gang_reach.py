"""Which numbers of units fit on all nodes together, node after node: the search for a gang that always ends.

A vector of counts is a cell of a grid, and a set of vectors a number with one bit for each cell. If a node takes some units, it takes
fewer of them, too, so the sets are closed downwards, and adding a node is a few shifts of such a number. Its size, not the
number of choices, bounds the time: for gangs with few kinds of members that is little, however full the nodes are.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate
from math import prod
from typing import Final

from dralloc.scheduler.decide.gang_rooms import Counts

# The most cells that all operations of a search read; and those of a search that takes some hundredths of a second.
WORK_MAX: Final = 60_000_000_000
FAST_WORK_MAX: Final = 12_000_000_000
# The largest grid, for its memory: one set is kept for each node.
CELLS_MAX: Final = 4_000_000


class GangReach:
    """`available` units of each kind exist, of these sizes, and `needed` members must be placed. `nodes` has the largest
    combinations of units that each node takes."""

    def __init__(self, available: Counts, nodes: Sequence[Sequence[Counts]], sizes: Counts, needed: int) -> None:
        self._available = available
        self._nodes = nodes
        self._sizes = sizes
        self._needed = needed
        lines = [count + 1 for count in available]
        self._cells = prod(lines)
        self._strides = [prod(lines[:kind]) for kind in range(len(lines))]
        self._most = [*accumulate(map(int.__mul__, available, sizes))]
        self._enough: dict[tuple[int, int], int] = {}

    @property
    def is_possible(self) -> bool:
        return self._cells <= CELLS_MAX and self._work <= WORK_MAX

    @property
    def is_fast(self) -> bool:
        return self._cells <= CELLS_MAX and self._work <= FAST_WORK_MAX

    @cached_property
    def _work(self) -> int:
        combinations, kinds = sum(map(len, self._nodes)), len(self._available)
        lower = sum(count.bit_length() for count in self._available)
        return self._cells * (combinations * (kinds + 2) + len(self._nodes) * lower * 3)

    def search(self) -> list[Counts] | int:
        """What each node gets, in their order; the most members that fit together if these are too few."""
        reached = [1]
        goal = self._with_at_least(self._needed)
        for combinations in self._nodes:
            known, grown = reached[-1], 0
            for counts in combinations:
                cells = known
                for kind, count in enumerate(counts):
                    if count:
                        cells &= self._room_for[kind][count]
                grown |= cells << self._cell(counts)
            reached.append(self._closed(grown))
            if found := reached[-1] & goal:
                return self._choices(reached, self._counts((found & -found).bit_length() - 1))
        return self._most_of(reached[-1])

    def _closed(self, cells: int) -> int:
        """With all cells below these."""
        for room_for, stride in zip(self._room_for, self._strides, strict=True):
            step = 1
            while step < len(room_for):
                cells |= cells >> step * stride & room_for[step]
                step *= 2
        return cells

    def _choices(self, reached: Sequence[int], goal: Counts) -> list[Counts]:
        """Goes back from the goal: on each node, a combination that leaves what the nodes before it can take."""
        left, chosen = goal, list[Counts]()
        for combinations, before in zip(reversed(self._nodes[: len(reached) - 1]), reversed(reached[:-1]), strict=True):
            for counts in combinations:
                rest = tuple(max(count - taken, 0) for count, taken in zip(left, counts, strict=True))
                if before >> self._cell(rest) & 1:
                    chosen.append(tuple(map(int.__sub__, left, rest)))
                    left = rest
                    break
        assert not any(left), "every set was reached from the one before"
        return [*reversed(chosen)] + [(0,) * len(goal)] * (len(self._nodes) - len(chosen))

    def _most_of(self, cells: int) -> int:
        """The most members that one of these cells stands for."""
        fits, fails = 0, self._needed
        while fails - fits > 1:
            middle = (fits + fails) // 2
            if cells & self._with_at_least(middle):
                fits = middle
            else:
                fails = middle
        return fits

    # --- The grid ---------------------------------------------------------------------------------------------------

    def _cell(self, counts: Counts) -> int:
        return sum(map(int.__mul__, counts, self._strides))

    def _counts(self, cell: int) -> Counts:
        counts: list[int] = []
        for stride in reversed(self._strides):
            count, cell = divmod(cell, stride)
            counts.append(count)
        return tuple(reversed(counts))

    @cached_property
    def _room_for(self) -> list[list[int]]:
        """For each kind and count: the cells to which so many units can be added."""
        found: list[list[int]] = []
        for count, stride in zip(self._available, self._strides, strict=True):
            lines = self._cells // (stride * (count + 1))
            found.append(
                [
                    _repeated((1 << stride * (count + 1 - more)) - 1, stride * (count + 1), lines)
                    for more in range(count + 1)
                ]
            )
        return found

    def _with_at_least(self, members: int) -> int:
        return self._part_with_at_least(members, len(self._available) - 1)

    def _part_with_at_least(self, members: int, kind: int) -> int:
        """The cells of the kinds up to this one with so many members."""
        if members <= 0:
            return (1 << self._strides[kind] * (self._available[kind] + 1)) - 1 if kind >= 0 else 1
        if kind < 0 or members > self._most[kind]:
            return 0
        known = self._enough.get((members, kind))
        if known is None:
            known = 0
            for count in range(self._available[kind] + 1):
                known |= self._part_with_at_least(members - count * self._sizes[kind], kind - 1) << (
                    count * self._strides[kind]
                )
            self._enough[members, kind] = known
        return known


def _repeated(cells: int, distance: int, times: int) -> int:
    """The cells as often, each time further by this distance."""
    if times == 1:
        return cells
    half = _repeated(cells, distance, times // 2)
    both = half | half << distance * (times // 2)
    return both | cells << distance * (times - 1) if times % 2 else both
