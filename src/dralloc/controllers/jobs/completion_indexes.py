"""Sets of completion indexes as the status of a job writes them: `0-2,5,7-9`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from dralloc.primitives.whole_numbers import whole_number

# A bound for texts from the API: a range of a few characters may mean billions of indexes.
INDEX_MAX: Final = 1_000_000


def print_indexes(indexes: Iterable[int]) -> str:
    ranges: list[list[int]] = []
    for index in sorted(indexes):
        if ranges and index == ranges[-1][1] + 1:
            ranges[-1][1] = index
        else:
            ranges.append([index, index])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


def parse_indexes(text: str) -> set[int]:
    """The indexes in the text; parts that cannot be parsed, or do not ascend, are ignored."""
    indexes: set[int] = set()
    highest = -1
    for part in filter(None, text.split(",")):
        head, _, tail = part.partition("-")
        first, last = whole_number(head), whole_number(tail or head)
        if first is not None and last is not None and highest < first:
            highest = min(last, INDEX_MAX)
            indexes |= set(range(first, highest + 1))
    return indexes
