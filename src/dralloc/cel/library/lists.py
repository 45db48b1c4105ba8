"""Functions on lists: CEL's list extension, and Kubernetes' additions."""

from __future__ import annotations

from collections.abc import Callable
from functools import cmp_to_key
from itertools import pairwise
from typing import Final

from dralloc.cel.errors import CelEvaluationError
from dralloc.cel.library import standard, time
from dralloc.cel.library.functions import Anything, Library, size_of
from dralloc.cel.meter import Meter
from dralloc.cel.values import (
    NONE,
    DomainMap,
    Duration,
    Optional,
    Uint,
    Value,
    compare,
    is_equal,
    is_ordered,
    map_keys,
    no_such_overload,
    type_of,
)

LIBRARY: Final = Library()
define: Final = LIBRARY.define

RANGE_MAX: Final = 1_000_000
_NEW_LIST_COST: Final = 11


# --- Costs ---------------------------------------------------------------------------------------------------


def traversal_cost(meter: Meter, value: Value) -> int:
    """Returns the cost of visiting everything in a value: one for a scalar, a tenth for a byte of text."""
    cost, pending = 0, [value]
    while pending:
        current = pending.pop()
        kind = current.__class__
        if kind is str:
            cost += int(len(current.encode("utf-8", "surrogatepass")) * 0.1)
        elif kind is bytes:
            cost += int(len(current) * 0.1)
        elif kind is list:
            meter.spend(len(current))
            pending.extend(current)
        elif kind is dict or kind is DomainMap:
            meter.spend(len(current))
            pending.extend(map_keys(current))
            pending.extend(current.values())
        else:
            cost += 1
    return cost


def _copy_cost(elements: list[Value], *_rest: Value) -> int:
    return len(elements) + _NEW_LIST_COST


def _slice_cost(elements: list[Value], start: int, end: int) -> int:
    return (end - start if 0 <= start <= end <= len(elements) else 1) + _NEW_LIST_COST


def _range_cost(size: int) -> int:
    return (size if 0 <= size <= RANGE_MAX else 1) + _NEW_LIST_COST


def _flatten_cost(elements: list[Value], depth: int = 1) -> int:
    return len(elements) * max(depth, 0) + _NEW_LIST_COST


def _pairs_cost(elements: list[Value]) -> int:
    """Each element is compared with each other, and texts cost more."""
    factor = 2.1 if elements and elements[0].__class__ in (str, bytes) else 2.0
    return int(len(elements) ** 2 * factor) + _NEW_LIST_COST


def _keys_cost(_elements: list[Value], keys: list[Value]) -> int:
    return _pairs_cost(keys)


# --- CEL's extension -----------------------------------------------------------------------------------------


@define("lists.range", int, cost=_range_cost)
def numbers(size: int) -> list[int]:
    """Returns the numbers from 0 to below `size`."""
    if size < 0:
        raise CelEvaluationError(f"lists.range: size must be non-negative, got {size}")
    if size > RANGE_MAX:
        raise CelEvaluationError(f"lists.range: size {size} exceeds maximum allowed ({RANGE_MAX})")
    return list(range(size))


@define("slice", list, int, int, cost=_slice_cost)
def slice_list(elements: list[Value], start: int, end: int) -> list[Value]:
    if start < 0 or end < 0:
        raise CelEvaluationError(f"cannot slice({start}, {end}), negative indexes not supported")
    if start > end:
        raise CelEvaluationError(f"cannot slice({start}, {end}), start index must be less than or equal to end index")
    if end > len(elements):
        raise CelEvaluationError(f"cannot slice({start}, {end}), list is length {len(elements)}")
    return elements[start:end]


@define("flatten", list, cost=_flatten_cost, metered=True)
@define("flatten", list, int, cost=_flatten_cost, metered=True)
def flatten(meter: Meter, elements: list[Value], depth: int = 1) -> list[Value]:
    """Returns the elements of nested lists, down to a depth."""
    if depth < 0:
        raise CelEvaluationError("level must be non-negative")
    for _ in range(depth):
        if not any(element.__class__ is list for element in elements):
            break
        elements = _flatten_once(meter, elements)
    return elements


def _flatten_once(meter: Meter, elements: list[Value]) -> list[Value]:
    meter.spend(len(elements))
    meter.spend_copying(sum(size_of(element) for element in elements if element.__class__ is list))
    flat: list[Value] = []
    for element in elements:
        if element.__class__ is list:
            flat.extend(element)
        else:
            flat.append(element)
    return flat


define("reverse", list, cost=_copy_cost)(lambda elements: elements[::-1])


@define("distinct", list, cost=_pairs_cost, metered=True)
def distinct(meter: Meter, elements: list[Value]) -> list[Value]:
    """Returns each distinct value at its first position."""
    kept: list[Value] = []
    for element in elements:
        if not any(is_equal(element, other, meter) for other in kept):
            kept.append(element)
    return kept


@define("@sortByAssociatedKeys", list, list, cost=_keys_cost)
def sort_by_keys(elements: list[Value], keys: list[Value]) -> list[Value]:
    """Sorts the elements by keys, which must have one ordered type."""
    if not elements:
        return elements
    if not is_ordered(keys[0]):
        raise CelEvaluationError("list elements must be comparable")
    if len(keys) > 1 and any(type_of(key) != type_of(keys[0]) for key in keys):
        raise CelEvaluationError("list elements must have the same type")
    order = sorted(range(len(elements)), key=lambda index: _sort_key(keys[index]))
    return [elements[index] for index in order]


define("sort", list, cost=_pairs_cost)(lambda elements: sort_by_keys(elements, elements))


@cmp_to_key
def _sort_key(left: Value, right: Value) -> int:
    # Values without an order (NaN) stay in place.
    try:
        return compare(left, right)
    except CelEvaluationError:
        return 0


define("first", list)(lambda elements: Optional(elements[0]) if elements else NONE)
define("last", list)(lambda elements: Optional(elements[-1]) if elements else NONE)


# --- Kubernetes' additions -----------------------------------------------------------------------------------


@define("isSorted", list, metered=True)
def is_sorted(meter: Meter, elements: list[Value]) -> bool:
    _charge_traversal(meter, elements)
    for element in elements:
        _require_order(element)
    return all(_compare_or_less(left, right) <= 0 for left, right in pairwise(elements))


define("min", list, metered=True)(lambda meter, elements: _extreme(meter, "min", elements, 1))
define("max", list, metered=True)(lambda meter, elements: _extreme(meter, "max", elements, -1))


def _extreme(meter: Meter, name: str, elements: list[Value], replaced_when: int) -> Value:
    _charge_traversal(meter, elements)
    if not elements:
        raise CelEvaluationError(f"{name} called on empty list")
    best = elements[0]
    for element in elements:
        _require_order(element)
        if _compare_or_less(best, element, undefined=0) == replaced_when:
            best = element
    return best


def _require_order(element: Value) -> None:
    if not is_ordered(element):
        raise no_such_overload("compare", element)


def _compare_or_less(left: Value, right: Value, undefined: int = -1) -> int:
    """Like `compare`; elements that cannot be compared count as ordered, as in Kubernetes."""
    try:
        return compare(left, right)
    except CelEvaluationError:
        return undefined


_ADD: Final[dict[type, Callable[..., Value]]] = {
    int: standard.add_int,
    Uint: standard.add_uint,
    float: standard.add_double,
    Duration: time.add_durations,
}


define("sum", list, metered=True)(lambda meter, elements: _sum(meter, elements, 0))
define("sum@uint", list, metered=True)(lambda meter, elements: _sum(meter, elements, Uint(0)))
define("sum@double", list, metered=True)(lambda meter, elements: _sum(meter, elements, 0.0))
define("sum@duration", list, metered=True)(lambda meter, elements: _sum(meter, elements, Duration(0)))


def _sum(meter: Meter, elements: list[Value], total: Value) -> Value:
    """Returns the sum, in the type of its start value, which the checker has determined."""
    _charge_traversal(meter, elements)
    kind = total.__class__
    add = _ADD[kind]
    for element in elements:
        if element.__class__ is not kind:
            raise no_such_overload("sum", total, element)
        total = add(total, element)
    return total


@define("indexOf", list, Anything, metered=True)
def index_of(meter: Meter, elements: list[Value], wanted: Value) -> int:
    _charge_traversal(meter, elements)
    positions = range(len(elements))
    return next((position for position in positions if is_equal(elements[position], wanted, meter)), -1)


@define("lastIndexOf", list, Anything, metered=True)
def last_index_of(meter: Meter, elements: list[Value], wanted: Value) -> int:
    _charge_traversal(meter, elements)
    positions = reversed(range(len(elements)))
    return next((position for position in positions if is_equal(elements[position], wanted, meter)), -1)


def _charge_traversal(meter: Meter, value: Value) -> None:
    # The call itself was already charged one.
    meter.charge(traversal_cost(meter, value) - 1)


@define("includes", Anything, Anything, metered=True)
def includes(meter: Meter, target: Value, wanted: Value) -> bool:
    """True if a list contains an element, or a single value equals it."""
    _charge_traversal(meter, target)
    candidates = target if target.__class__ is list else [target]
    return any(is_equal(candidate, wanted, meter) for candidate in candidates)
