"""Documents as plain trees of dicts, lists and scalars, with two types for details that those would lose."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any


class RepeatedKeys(dict[str, Any]):
    """A mapping in which keys occurred more than once; it holds the last value of each."""

    __slots__ = ("repeated",)

    def __init__(self, members: Mapping[str, Any], repeated: tuple[str, ...]) -> None:
        super().__init__(members)
        self.repeated = repeated


def repeated_names(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(name for name, count in Counter(names).items() if count > 1)


class ExactNumber(float):
    """A number with a fraction or exponent that keeps its text, for quantities and for printing it unchanged."""

    __slots__ = ("text",)

    text: str

    def __new__(cls, text: str) -> ExactNumber:
        number = super().__new__(cls, text)
        number.text = text
        return number
