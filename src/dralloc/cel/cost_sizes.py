"""Sizes in the cost estimate: minimum and maximum, and the API's limits on devices."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, NamedTuple

ENDLESS: Final = 2**64 - 1


class Path:
    """The path from a variable to a part of its value: names, and `@keys`, `@values`, `@items`.

    Kubernetes keeps paths in growing arrays, and two paths with a common prefix may share one: extending the second
    then overwrites the last step of the first. Estimates depend on this (the key of a two-variable macro takes the size
    of the value), so it is reproduced.
    """

    __slots__ = ("_array", "_length")

    def __init__(self, array: list[str], length: int) -> None:
        self._array = array
        self._length = length

    @classmethod
    def of(cls, name: str) -> Path:
        return cls([name], 1)

    def extended(self, step: str) -> Path:
        array, length = self._array, self._length
        if length == len(array):
            array = [*array, *([""] * max(length, 1))]
        array[length] = step
        return Path(array, length + 1)

    @property
    def steps(self) -> list[str]:
        return self._array[: self._length]


NOWHERE: Final = Path([], 0)


def plus(*amounts: int) -> int:
    return min(sum(amounts), ENDLESS)


def times(one: int, other: int) -> int:
    return min(one * other, ENDLESS)


def scaled(amount: int, factor: float) -> int:
    """Returns the product, rounded up in floating point."""
    if amount > 0 and factor > 0 and float(amount) > float(ENDLESS) / factor:
        return ENDLESS
    return min(math.ceil(float(amount) * factor), ENDLESS)


class Size(NamedTuple):
    """The length of a string, or the number of elements of a list or entries of a map."""

    min: int
    max: int

    def __add__(self, other: object) -> Size:
        assert isinstance(other, Size), "sizes are added to sizes"
        return Size(plus(self.min, other.min), plus(self.max, other.max))

    def times(self, other: Size) -> Size:
        return Size(times(self.min, other.min), times(self.max, other.max))

    def union(self, other: Size | None) -> Size:
        """Returns the size that covers both."""
        return self if other is None else Size(min(self.min, other.min), max(self.max, other.max))


ZERO: Final = Size(0, 0)
ONE: Final = Size(1, 1)
UNKNOWN: Final = Size(0, ENDLESS)


def fixed(size: int) -> Size:
    return Size(size, size)


@dataclass(frozen=True, slots=True)
class EntrySize:
    """The sizes of the keys (or positions) and values of a container."""

    is_list: bool
    key: Size
    value: Size


@dataclass(frozen=True, slots=True, eq=False)
class _Declared:
    """The API's limits: the maximal size, and the contents."""

    size_max: int
    key: _Declared | None = None
    value: _Declared | None = None
    fields: dict[str, _Declared] | None = None


# Objects and quantities have no size, and count as empty.
_IDENTIFIER: Final = _Declared(32)
_DOMAIN: Final = _Declared(63)
_ATTRIBUTE: Final = _Declared(64)
_ENTRIES_MAX: Final = 32
_ATTRIBUTES: Final = _Declared(_ENTRIES_MAX, key=_IDENTIFIER, value=_ATTRIBUTE)
_CAPACITIES: Final = _Declared(_ENTRIES_MAX, key=_IDENTIFIER, value=_Declared(0))
_DEVICE: Final = _Declared(
    0,
    fields={
        "driver": _DOMAIN,
        "allowMultipleAllocations": _Declared(1),
        "attributes": _Declared(_ENTRIES_MAX, key=_DOMAIN, value=_ATTRIBUTES),
        "capacity": _Declared(_ENTRIES_MAX, key=_DOMAIN, value=_CAPACITIES),
    },
)


def declared_size(path: Path) -> Size | None:
    """Returns the size that the API allows at a path below `device`; None if unknown."""
    steps = path.steps
    if not steps or steps[0] != "device":
        return None
    part: _Declared | None = _DEVICE
    for step in steps[1:]:
        part = _step(part, step)
        if part is None:
            return None
    assert part is not None, "every step leads somewhere"
    return Size(0, part.size_max)


def _step(part: _Declared | None, step: str) -> _Declared | None:
    assert part is not None, "every step leads somewhere"
    if step in ("@items", "@values"):
        return part.value
    if step == "@keys":
        return part.key
    if part.fields and step in part.fields:
        return part.fields[step]
    # Only attributes are known to have one limit, whatever their name.
    return _ATTRIBUTE if part.value is _ATTRIBUTE else None
