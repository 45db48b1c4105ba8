"""CEL's standard functions and operators, but for those on time and regular expressions.

Operators that may leave an operand unevaluated (`&&`, `||`, `?:`) and field access are the evaluator's own.
"""

from __future__ import annotations

import math
import re
from typing import Final

from dralloc.cel.errors import CelEvaluationError
from dralloc.cel.library.functions import Anything, Library, size_of, tenths, text_cost
from dralloc.cel.meter import Meter, limited_text_length
from dralloc.cel.values import (
    INT_MAX,
    INT_MIN,
    UINT_MAX,
    DerivedQuantity,
    Duration,
    Map,
    Opaque,
    Timestamp,
    TypeValue,
    Uint,
    Value,
    compare,
    contains_key,
    equal,
    is_equal,
    type_of,
)
from dralloc.primitives.quantity import Quantity
from dralloc.primitives.semver import Semver

LIBRARY: Final = Library()
define: Final = LIBRARY.define

INTEGER_OVERFLOW: Final = "integer overflow"
UNSIGNED_OVERFLOW: Final = "unsigned integer overflow"


def checked_int(number: int) -> int:
    """A number that fits an int."""
    if INT_MIN <= number <= INT_MAX:
        return number
    raise CelEvaluationError(INTEGER_OVERFLOW)


def checked_uint(number: int) -> Uint:
    """A number that fits a uint."""
    if 0 <= number <= UINT_MAX:
        return Uint(number)
    raise CelEvaluationError(UNSIGNED_OVERFLOW)


def conversion_error(value: Value, target: str) -> CelEvaluationError:
    return CelEvaluationError(f"type conversion error from '{type_of(value).name}' to '{target}'")


# --- Arithmetic ----------------------------------------------------------------------------------------------


@define("_+_", int, int)
def add_int(left: int, right: int) -> int:
    return checked_int(left + right)


@define("_-_", int, int)
def subtract_int(left: int, right: int) -> int:
    return checked_int(left - right)


@define("_*_", int, int)
def multiply_int(left: int, right: int) -> int:
    return checked_int(left * right)


@define("_/_", int, int)
def divide_int(left: int, right: int) -> int:
    """Rounded towards zero."""
    if right == 0:
        raise CelEvaluationError("division by zero")
    quotient = abs(left) // abs(right)
    return checked_int(quotient if (left < 0) == (right < 0) else -quotient)


@define("_%_", int, int)
def modulo_int(left: int, right: int) -> int:
    """With the sign of the left operand."""
    if right == 0:
        raise CelEvaluationError("modulus by zero")
    if left == INT_MIN and right == -1:
        raise CelEvaluationError(INTEGER_OVERFLOW)
    rest = abs(left) % abs(right)
    return -rest if left < 0 else rest


@define("-_", int)
def negate_int(operand: int) -> int:
    return checked_int(-operand)


@define("_+_", Uint, Uint)
def add_uint(left: Uint, right: Uint) -> Uint:
    return checked_uint(int(left) + int(right))


@define("_-_", Uint, Uint)
def subtract_uint(left: Uint, right: Uint) -> Uint:
    return checked_uint(int(left) - int(right))


@define("_*_", Uint, Uint)
def multiply_uint(left: Uint, right: Uint) -> Uint:
    return checked_uint(int(left) * int(right))


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


@define("_-_", float, float)
def subtract_double(left: float, right: float) -> float:
    return left - right


@define("_*_", float, float)
def multiply_double(left: float, right: float) -> float:
    return left * right


@define("_/_", float, float)
def divide_double(left: float, right: float) -> float:
    """By the rules of IEEE 754, where dividing by zero is no error."""
    if right != 0:
        return left / right
    if left == 0 or left != left:
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1.0, right)


@define("-_", float)
def negate_double(operand: float) -> float:
    return -operand


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
    """Whatever is not equal is unequal, also where equality is not defined."""
    return not is_equal(left, right, meter)


@define("_<_", Anything, Anything, cost=_order_cost)
def is_less(left: Value, right: Value) -> bool:
    return compare(left, right) < 0


@define("_<=_", Anything, Anything, cost=_order_cost)
def is_less_or_equal(left: Value, right: Value) -> bool:
    return compare(left, right) <= 0


@define("_>_", Anything, Anything, cost=_order_cost)
def is_greater(left: Value, right: Value) -> bool:
    return compare(left, right) > 0


@define("_>=_", Anything, Anything, cost=_order_cost)
def is_greater_or_equal(left: Value, right: Value) -> bool:
    return compare(left, right) >= 0


@define("!_", bool)
def negate_bool(operand: bool) -> bool:
    return not operand


# --- Containers and texts ------------------------------------------------------------------------------------


def _list_length(_element: Value, elements: list[Value]) -> int:
    return len(elements)


@define("@in", Anything, list, cost=_list_length, metered=True)
def is_in_list(meter: Meter, element: Value, elements: list[Value]) -> bool:
    return any(is_equal(element, candidate, meter) for candidate in elements)


@define("@in", Anything, dict)
def is_in_map(key: Value, mapping: Map) -> bool:
    return contains_key(mapping, key)


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


@define("contains", str, str, cost=_contains_cost)
def contains(text: str, part: str) -> bool:
    return part in text


@define("startsWith", str, str, cost=_affix_cost)
def starts_with(text: str, prefix: str) -> bool:
    return text.startswith(prefix)


@define("endsWith", str, str, cost=_affix_cost)
def ends_with(text: str, suffix: str) -> bool:
    return text.endswith(suffix)


# --- Conversions ---------------------------------------------------------------------------------------------


@define("dyn", Anything)
@define("int", int)
@define("uint", Uint)
@define("double", float)
@define("bool", bool)
@define("string", str)
@define("bytes", bytes)
@define("timestamp", Timestamp)
@define("duration", Duration)
def identity(value: Value) -> Value:
    return value


@define("type", Anything)
def type_value(value: Value) -> TypeValue:
    return type_of(value)


@define("int", Uint)
def int_of_uint(number: Uint) -> int:
    return checked_int(int(number))


@define("int", float)
def int_of_double(number: float) -> int:
    # The bounds are doubles: 2**63 - 1 is not one of them, and the lower one is left out, as Kubernetes does.
    if -(2.0**63) < number < 2.0**63:
        return int(number)
    raise CelEvaluationError(INTEGER_OVERFLOW)


_SIGNED: Final = re.compile(r"[+-]?[0-9]+", re.ASCII)
_UNSIGNED: Final = re.compile(r"[0-9]+", re.ASCII)
_DOUBLE: Final = re.compile(
    r"nan|[+-]?(?:inf|infinity|(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9][0-9_]*)(?:e[+-]?[0-9][0-9_]*)?)",
    re.ASCII | re.IGNORECASE,
)
_HEX_DOUBLE: Final = re.compile(r"[+-]?0x[0-9a-f]*\.?[0-9a-f]*p[+-]?[0-9]{1,9}", re.ASCII | re.IGNORECASE)


@define("int", str)
def int_of_text(text: str) -> int:
    number = _whole_number(text, _SIGNED)
    if number is None or not INT_MIN <= number <= INT_MAX:
        raise conversion_error(text, "int")
    return number


@define("uint", str)
def uint_of_text(text: str) -> Uint:
    number = _whole_number(text, _UNSIGNED)
    if number is None or number > UINT_MAX:
        raise conversion_error(text, "uint")
    return Uint(number)


def _whole_number(text: str, form: re.Pattern[str]) -> int | None:
    """The number that a text states, or None. Only digits that can matter are read: Python refuses thousands of them."""
    if not form.fullmatch(text):
        return None
    sign, digits = ("-", text[1:]) if text[0] == "-" else ("", text.lstrip("+"))
    digits = digits.lstrip("0") or "0"
    return int(sign + digits) if len(digits) <= 20 else UINT_MAX + 1


@define("uint", int)
def uint_of_int(number: int) -> Uint:
    return checked_uint(number)


@define("uint", float)
def uint_of_double(number: float) -> Uint:
    if 0 <= number < 2.0**64:
        return Uint(int(number))
    raise CelEvaluationError(UNSIGNED_OVERFLOW)


@define("double", int)
@define("double", Uint)
def double_of_integer(number: int) -> float:
    return float(number)


@define("double", str)
def double_of_text(text: str) -> float:
    try:
        if _HEX_DOUBLE.fullmatch(text):
            return float.fromhex(text)
        if not _DOUBLE.fullmatch(text):
            raise conversion_error(text, "double")
        number = float(text)
    except (ValueError, OverflowError):
        raise conversion_error(text, "double") from None
    if math.isinf(number) and "n" not in text.lower():
        raise conversion_error(text, "double")
    return number


_BOOLS: Final = {
    **dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True),
    **dict.fromkeys(("0", "f", "F", "false", "FALSE", "False"), False),
}


@define("bool", str)
def bool_of_text(text: str) -> bool:
    if text not in _BOOLS:
        raise conversion_error(text, "bool")
    return _BOOLS[text]


@define("string", int)
@define("string", Uint)
def text_of_integer(number: int) -> str:
    return str(int(number))


@define("string", bool)
def text_of_bool(value: bool) -> str:
    return "true" if value else "false"


@define("string", float)
def text_of_double(number: float) -> str:
    """The shortest text that reads back as the number, with an exponent below 1e-4 and from 1e6 on."""
    if number != number:
        return "NaN"
    if math.isinf(number):
        return "+Inf" if number > 0 else "-Inf"
    digits, exponent = _significant_digits(abs(number))
    if -4 <= exponent < 6:
        return positional_text(number)
    fraction = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{'-' if number < 0 else ''}{digits[0]}{fraction}e{exponent:+03}"


def positional_text(number: float) -> str:
    """The shortest text that reads back as the finite number, without an exponent."""
    digits, exponent = _significant_digits(abs(number))
    sign = "-" if math.copysign(1.0, number) < 0 else ""
    if exponent < 0:
        return f"{sign}0.{'0' * (-exponent - 1)}{digits}"
    whole, fraction = digits[: exponent + 1].ljust(exponent + 1, "0"), digits[exponent + 1 :]
    return f"{sign}{whole}.{fraction}" if fraction else sign + whole


def _significant_digits(number: float) -> tuple[str, int]:
    """The fewest digits that identify a finite number, and the power of ten of the first of them."""
    mantissa, _, exponent = repr(number).partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    if not digits:
        return "0", 0
    # The first digit stands in the whole part, or behind as many places as zeros were dropped.
    place = len(whole) - 1 if whole != "0" else len(digits) - len(fraction) - 1
    return digits.rstrip("0"), place + int(exponent or 0)


@define("string", bytes, cost=text_cost)
def text_of_bytes(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise CelEvaluationError("invalid UTF-8 in bytes, cannot convert to string") from None


@define("bytes", str, cost=text_cost)
def bytes_of_text(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
