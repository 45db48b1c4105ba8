"""A cache of a function of one text that clients choose.

`lru_cache` bounds how many results are kept, and not how long their texts are: a thousand texts of the size of a request are gigabytes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Final, TypeVar

# What repeats is short: names, times, numbers.
LENGTH_MAX: Final = 256

TextT = TypeVar("TextT", str, bytes)
ResultT = TypeVar("ResultT")


def cached_by_text(
    count: int, length_max: int = LENGTH_MAX
) -> Callable[[Callable[[TextT], ResultT]], Callable[[TextT], ResultT]]:
    """Keeps the results of a function for so many texts; those of longer texts are not kept."""

    def decorate(function: Callable[[TextT], ResultT]) -> Callable[[TextT], ResultT]:
        remembered = lru_cache(maxsize=count)(function)

        @wraps(function)
        def look_up(text: TextT) -> ResultT:
            return remembered(text) if len(text) <= length_max else function(text)

        return look_up

    return decorate
