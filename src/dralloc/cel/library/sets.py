"""Lists as sets."""

from __future__ import annotations

from typing import Final

from dralloc.cel.library.functions import Library
from dralloc.cel.meter import Meter
from dralloc.cel.values import Value, is_equal

LIBRARY: Final = Library()
define: Final = LIBRARY.define


def _pairs_cost(left: list[Value], right: list[Value]) -> int:
    return len(left) * len(right) + 1


def _both_ways_cost(left: list[Value], right: list[Value]) -> int:
    return 2 * len(left) * len(right) + 1


@define("sets.contains", list, list, cost=_pairs_cost, metered=True)
def contains(meter: Meter, whole: list[Value], part: list[Value]) -> bool:
    return all(_has(meter, whole, element) for element in part)


@define("sets.equivalent", list, list, cost=_both_ways_cost, metered=True)
def equivalent(meter: Meter, left: list[Value], right: list[Value]) -> bool:
    return contains(meter, left, right) and contains(meter, right, left)


@define("sets.intersects", list, list, cost=_pairs_cost, metered=True)
def intersects(meter: Meter, left: list[Value], right: list[Value]) -> bool:
    return any(_has(meter, right, element) for element in left)


def _has(meter: Meter, elements: list[Value], wanted: Value) -> bool:
    return any(is_equal(wanted, element, meter) for element in elements)
