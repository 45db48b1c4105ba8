"""Documents as plain trees of dicts, lists and scalars, with the two things that those would lose."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any


class RepeatedKeys(dict[str, Any]):
    """A mapping in which a reader met keys more than once; it holds the last value of each."""

    __slots__ = ("repeated",)

    def __init__(self, members: Mapping[str, Any], repeated: tuple[str, ...]) -> None:
        super().__init__(members)
        self.repeated = repeated


def repeated_names(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(name for name, count in Counter(names).items() if count > 1)


class ExactNumber(float):
    """A number with a fraction or exponent that remembers how it is written, for quantities and to be kept as it is."""

    __slots__ = ("text",)

    text: str

    def __new__(cls, text: str) -> ExactNumber:
        number = super().__new__(cls, text)
        number.text = text
        return number
