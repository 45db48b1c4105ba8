"""A sorted set of keys that stays fast as it grows: blocks of bounded length instead of one long list."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from itertools import chain


class OrderedKeys:
    """Distinct keys in code point order, which is also the order of their UTF-8 bytes.

    New keys are buffered until the next read, so that a bulk insert is sorted once instead of inserted one by one.
    """

    def __init__(self, keys: Iterable[str] = (), *, block_length_max: int = 1024) -> None:
        self._block_length_max = block_length_max
        self._fresh: list[str] = []
        self._blocks: list[list[str]] = []
        self._last: list[str] = []
        self._rebuild(keys)

    def add(self, key: str) -> None:
        """Adds a key that is not in the set."""
        self._fresh.append(key)

    def remove(self, key: str) -> None:
        """Removes a key of the set."""
        self._sort_in()
        position = bisect_left(self._last, key)
        block = self._blocks[position]
        place = bisect_left(block, key)
        assert block[place] == key, "the key is in the set"
        del block[place]
        if block:
            self._last[position] = block[-1]
        else:
            del self._blocks[position], self._last[position]

    def between(self, start: str, end: str | None) -> Iterator[str]:
        """Yields keys from `start` on, before `end` (None: to the last). The set must not change meanwhile."""
        self._sort_in()
        position = bisect_left(self._last, start)
        if position == len(self._blocks):
            return
        place = bisect_left(self._blocks[position], start)
        for block in self._blocks[position:]:
            if end is not None and block[-1] >= end:
                yield from block[place : bisect_left(block, end)]
                return
            yield from block[place:] if place else block
            place = 0

    def count_between(self, start: str, end: str | None) -> int:
        """Returns how many keys `between` would yield, without iterating."""
        if end is not None and end <= start:
            return 0
        self._sort_in()
        total = sum(map(len, self._blocks)) if end is None else self._rank(end)
        return total - self._rank(start)

    def _rank(self, key: str) -> int:
        position = bisect_left(self._last, key)
        before = sum(map(len, self._blocks[:position]))
        return before + (bisect_left(self._blocks[position], key) if position < len(self._blocks) else 0)

    def _sort_in(self) -> None:
        if not self._fresh:
            return
        fresh, self._fresh = self._fresh, []
        if len(fresh) > self._block_length_max // 16 * len(self._blocks):
            self._rebuild(chain(fresh, *self._blocks))
        else:
            for key in fresh:
                self._insert(key)

    def _rebuild(self, keys: Iterable[str]) -> None:
        ordered = sorted(keys)
        half = self._block_length_max // 2
        self._blocks = [ordered[start : start + half] for start in range(0, len(ordered), half)]
        self._last = [block[-1] for block in self._blocks]

    def _insert(self, key: str) -> None:
        position = min(bisect_left(self._last, key), len(self._blocks) - 1)
        block = self._blocks[position]
        insort(block, key)
        self._last[position] = block[-1]
        if len(block) > self._block_length_max:
            self._split(position)

    def _split(self, position: int) -> None:
        block = self._blocks[position]
        half = len(block) // 2
        self._blocks[position : position + 1] = [block[:half], block[half:]]
        self._last[position : position + 1] = [block[half - 1], block[-1]]


def end_of_prefix(prefix: str) -> str | None:
    """Returns the smallest text above everything with the prefix; None if there is none."""
    stem = prefix.rstrip("\U0010ffff")
    return stem[:-1] + chr(ord(stem[-1]) + 1) if stem else None
