"""The nodes of a verdict table that fit, with the best at hand.

One heap for each combination of raw scores: what these are worth depends on which of them occur (`normalized`). A score that is
replaced leaves its entry behind; such entries are skipped when they surface.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping
from typing import Final

from dralloc.scheduler.contract import ClusterView
from dralloc.scheduler.decide.node_masks import FitMask
from dralloc.scheduler.decide.node_scores import RawScores, normalized
from dralloc.scheduler.decide.node_verdicts import Fits, NodeVerdict
from dralloc.scheduler.state.node_state import NodeState

# A heap is rebuilt when it has this many times as many entries as nodes.
HEAP_SLACK: Final = 8

_Entry = tuple[int, int, str]


class FittingNodes:
    """Reads verdicts from `verdicts`, which the table keeps. `scale` is that of the strategy."""

    def __init__(
        self, verdicts: Mapping[str, NodeVerdict], view: ClusterView, scale: int, mask: FitMask | None
    ) -> None:
        self._verdicts = verdicts
        self._view = view
        self._scale = scale
        self._heaps: dict[RawScores, list[_Entry]] = {}
        # The entries that count.
        self._entries: dict[str, _Entry] = {}
        self._counts: Counter[RawScores] = Counter()
        self.total = 0
        # The nodes by number, if these are known.
        self._mask = mask
        self._bits = 0

    def add(self, name: str, raw: RawScores) -> None:
        if self._mask is not None:
            self._bits |= self._mask.bit(name)
        self._counts[raw] += 1
        self.total += 1

    def remove(self, name: str, raw: RawScores) -> None:
        if self._mask is not None:
            self._bits &= ~self._mask.bit(name)
        self.total -= 1
        self._entries.pop(name, None)
        self._counts[raw] -= 1
        if not self._counts[raw]:
            del self._counts[raw]
            del self._heaps[raw]

    def rate(self, node: NodeState, fits: Fits) -> None:
        """Gives an added node its place, now that `fits` is its verdict."""
        heap = self._heaps.setdefault(fits.raw, [])
        self._entries[node.name] = entry = (-fits.strategy_score, node.rank, node.name)
        heapq.heappush(heap, entry)
        if len(heap) > HEAP_SLACK * (self._counts[fits.raw] + HEAP_SLACK):
            self._rebuild(fits.raw)

    def items(self) -> Iterator[tuple[str, Fits]]:
        return ((name, verdict) for name, verdict in self._verdicts.items() if type(verdict) is Fits)

    def others_than(self, left: int) -> list[str]:
        """The names of nodes that are not in the mask."""
        assert self._mask is not None, "nodes have numbers"
        return self._mask.names(self._bits & ~left)

    def best(self, fuller: Container[str], score_again: Callable[[str], Fits]) -> str | None:
        """The name of the best node. `score_again` scores a node that got `fuller` since it was scored."""
        if len(self._heaps) == 1:
            [raw] = self._heaps
            return self._top(raw, fuller, score_again)[2]
        tops = {raw: self._top(raw, fuller, score_again) for raw in self._heaps}
        values = normalized(self._counts, self._scale)
        rated = ((values[raw] - negative, -rank, name) for raw, (negative, rank, name) in tops.items())
        return max(rated)[2] if tops else None

    def _top(self, raw: RawScores, fuller: Container[str], score_again: Callable[[str], Fits]) -> _Entry:
        heap, entries = self._heaps[raw], self._entries
        while True:
            entry = heap[0]
            negative, rank, name = entry
            if entries.get(name) is not entry:
                heapq.heappop(heap)
                continue
            if name not in fuller:
                return entry
            score = score_again(name).strategy_score
            if score != -negative:
                entries[name] = (-score, rank, name)
                heapq.heapreplace(heap, entries[name])

    def _rebuild(self, raw: RawScores) -> None:
        """Drops entries that do not count."""
        self._heaps[raw] = sorted([entry for entry in self._heaps[raw] if self._entries.get(entry[2]) is entry])
