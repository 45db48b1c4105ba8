"""A cache of a function of one text that clients choose.

`lru_cache` bounds how many results are kept, and not how long their texts are: a thousand texts of the size of a request are gigabytes.
"""

from __future__ import annotations

from collections.abc import Callable
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
        # A result that is kept is found without a call of a Python function.
        return _Results(function, count, length_max).__getitem__

    return decorate


class _Results(dict[TextT, ResultT]):
    __slots__ = ("_count", "_function", "_length_max")
    _function: Callable[[TextT], ResultT]

    def __init__(self, function: Callable[[TextT], ResultT], count: int, length_max: int) -> None:
        super().__init__()
        self._function = function
        self._count = count
        self._length_max = length_max

    def __missing__(self, text: TextT) -> ResultT:
        result = self._function(text)
        if len(text) <= self._length_max:
            # All at once, which threads may do at the same time. To know the oldest would cost more than to compute them again.
            if len(self) >= self._count:
                self.clear()
            self[text] = result
        return result
