"""CEL's standard functions and operators, except those on time and regular expressions.

The evaluator implements operators that may skip an operand (`&&`, `||`, `?:`), and field access.
"""

from __future__ import annotations

import math
from typing import Final

from dralloc.cel.errors import CelEvaluationError
from dralloc.cel.library.functions import Anything, Library, size_of, tenths
from dralloc.cel.meter import Meter, limited_text_length
from dralloc.cel.values import (
    INT_MAX,
    INT_MIN,
    UINT_MAX,
    DerivedQuantity,
    Map,
    Opaque,
    Uint,
    Value,
    compare,
    contains_key,
    equal,
    is_equal,
)
from dralloc.primitives.quantity import Quantity
from dralloc.primitives.semver import Semver

LIBRARY: Final = Library()
define: Final = LIBRARY.define

INTEGER_OVERFLOW: Final = "integer overflow"
UNSIGNED_OVERFLOW: Final = "unsigned integer overflow"


def checked_int(number: int) -> int:
    """Returns the number if it fits an int; raises otherwise."""
    if INT_MIN <= number <= INT_MAX:
        return number
    raise CelEvaluationError(INTEGER_OVERFLOW)


def checked_uint(number: int) -> Uint:
    """Returns the number if it fits a uint; raises otherwise."""
    if 0 <= number <= UINT_MAX:
        return Uint(number)
    raise CelEvaluationError(UNSIGNED_OVERFLOW)


# --- Arithmetic ----------------------------------------------------------------------------------------------


@define("_+_", int, int)
def add_int(left: int, right: int) -> int:
    return checked_int(left + right)


define("_-_", int, int)(lambda left, right: checked_int(left - right))
define("_*_", int, int)(lambda left, right: checked_int(left * right))


@define("_/_", int, int)
def divide_int(left: int, right: int) -> int:
    """Rounds towards zero."""
    if right == 0:
        raise CelEvaluationError("division by zero")
    quotient = abs(left) // abs(right)
    return checked_int(quotient if (left < 0) == (right < 0) else -quotient)


@define("_%_", int, int)
def modulo_int(left: int, right: int) -> int:
    """Has the sign of the left operand."""
    if right == 0:
        raise CelEvaluationError("modulus by zero")
    if left == INT_MIN and right == -1:
        raise CelEvaluationError(INTEGER_OVERFLOW)
    rest = abs(left) % abs(right)
    return -rest if left < 0 else rest


define("-_", int)(lambda operand: checked_int(-operand))


@define("_+_", Uint, Uint)
def add_uint(left: Uint, right: Uint) -> Uint:
    return checked_uint(int(left) + int(right))


define("_-_", Uint, Uint)(lambda left, right: checked_uint(int(left) - int(right)))
define("_*_", Uint, Uint)(lambda left, right: checked_uint(int(left) * int(right)))


@define("_/_", Uint, Uint)
def divide_uint(left: Uint, right: Uint) -> Uint:
    if right == 0:
        raise CelEvaluationError("division by zero")
    return Uint(int(left) // int(right))


@define("_%_", Uint, Uint)
def modulo_uint(left: Uint, right: Uint) -> Uint:
    if right == 0:
        raise CelEvaluationError("modulus by zero")
    return Uint(int(left) % int(right))


@define("_+_", float, float)
def add_double(left: float, right: float) -> float:
    return left + right


define("_-_", float, float)(lambda left, right: left - right)
define("_*_", float, float)(lambda left, right: left * right)


@define("_/_", float, float)
def divide_double(left: float, right: float) -> float:
    """Follows IEEE 754: division by zero is not an error."""
    if right != 0:
        return left / right
    if left == 0 or left != left:
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1.0, right)


define("-_", float)(lambda operand: -operand)


def _concatenation_cost(left: str | bytes, right: str | bytes) -> int:
    return tenths(len(left) + len(right))


@define("_+_", str, str, cost=_concatenation_cost)
def concatenate_text(left: str, right: str) -> str:
    limited_text_length(len(left) + len(right))
    return left + right


@define("_+_", bytes, bytes, cost=_concatenation_cost)
def concatenate_bytes(left: bytes, right: bytes) -> bytes:
    limited_text_length(len(left) + len(right))
    return left + right


@define("_+_", list, list, metered=True)
def concatenate_lists(meter: Meter, left: list[Value], right: list[Value]) -> list[Value]:
    meter.spend_copying(len(left) + len(right))
    return left + right


# --- Comparison ----------------------------------------------------------------------------------------------


def _equality_cost(left: Value, right: Value) -> int:
    if left.__class__ in (Quantity, DerivedQuantity, Semver) or isinstance(left, Opaque):
        return 1
    return tenths(min(size_of(left), size_of(right)))


def _order_cost(left: Value, right: Value) -> int:
    if left.__class__ is str or left.__class__ is bytes:
        return tenths(min(size_of(left), size_of(right)))
    return 1


@define("_==_", Anything, Anything, cost=_equality_cost, metered=True)
def are_equal(meter: Meter, left: Value, right: Value) -> bool:
    return equal(left, right, meter)


@define("_!=_", Anything, Anything, cost=_equality_cost, metered=True)
def are_unequal(meter: Meter, left: Value, right: Value) -> bool:
    """True unless the operands are equal, even if equality is undefined."""
    return not is_equal(left, right, meter)


define("_<_", Anything, Anything, cost=_order_cost)(lambda left, right: compare(left, right) < 0)
define("_<=_", Anything, Anything, cost=_order_cost)(lambda left, right: compare(left, right) <= 0)
define("_>_", Anything, Anything, cost=_order_cost)(lambda left, right: compare(left, right) > 0)
define("_>=_", Anything, Anything, cost=_order_cost)(lambda left, right: compare(left, right) >= 0)
define("!_", bool)(lambda operand: not operand)


# --- Containers and texts ------------------------------------------------------------------------------------


def _list_length(_element: Value, elements: list[Value]) -> int:
    return len(elements)


@define("@in", Anything, list, cost=_list_length, metered=True)
def is_in_list(meter: Meter, element: Value, elements: list[Value]) -> bool:
    return any(is_equal(element, candidate, meter) for candidate in elements)


define("@in", Anything, dict)(lambda key, mapping: contains_key(mapping, key))


@define("size", str)
@define("size", bytes)
@define("size", list)
@define("size", dict)
def size(value: str | bytes | list[Value] | Map) -> int:
    return len(value)


def _contains_cost(text: str, part: str) -> int:
    return tenths(len(text)) * tenths(len(part))


def _affix_cost(_text: str, affix: str) -> int:
    return tenths(len(affix))


define("contains", str, str, cost=_contains_cost)(lambda text, part: part in text)
define("startsWith", str, str, cost=_affix_cost)(lambda text, prefix: text.startswith(prefix))
define("endsWith", str, str, cost=_affix_cost)(lambda text, suffix: text.endswith(suffix))
