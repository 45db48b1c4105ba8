"""Conversions between types, and the texts of numbers."""

from __future__ import annotations

import math
import re
from typing import Final

from dralloc.cel.errors import CelEvaluationError
from dralloc.cel.library.functions import Anything, Library, text_cost
from dralloc.cel.library.standard import INTEGER_OVERFLOW, UNSIGNED_OVERFLOW, checked_int, checked_uint
from dralloc.cel.values import INT_MAX, INT_MIN, UINT_MAX, Duration, Timestamp, Uint, Value, type_of

LIBRARY: Final = Library()
define: Final = LIBRARY.define


def conversion_error(value: Value, target: str) -> CelEvaluationError:
    return CelEvaluationError(f"type conversion error from '{type_of(value).name}' to '{target}'")


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


define("type", Anything)(type_of)
define("int", Uint)(lambda number: checked_int(int(number)))


@define("int", float)
def int_of_double(number: float) -> int:
    # The bounds are doubles: 2**63 - 1 is not one of them, and the lower one is excluded, as in Kubernetes.
    if -(2.0**63) < number < 2.0**63:
        return int(number)
    raise CelEvaluationError(INTEGER_OVERFLOW)


_SIGNED: Final = re.compile(r"[+-]?[0-9]+", re.ASCII)
_UNSIGNED: Final = re.compile(r"[0-9]+", re.ASCII)
# Of two runs of digits, the second has a point before it: otherwise each place would be tried as the end of the first.
_DOUBLE: Final = re.compile(
    r"nan|[+-]?(?:inf|infinity|(?:[0-9][0-9_]*(?:\.[0-9_]*)?|\.[0-9][0-9_]*)(?:e[+-]?[0-9][0-9_]*)?)",
    re.ASCII | re.IGNORECASE,
)
_HEX_DOUBLE: Final = re.compile(r"[+-]?0x[0-9a-f]*(?:\.[0-9a-f]*)?p[+-]?[0-9]{1,9}", re.ASCII | re.IGNORECASE)


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
    """Returns the number in a text, or None. Only significant digits are parsed: Python refuses thousands of them."""
    if not form.fullmatch(text):
        return None
    sign, digits = ("-", text[1:]) if text[0] == "-" else ("", text.lstrip("+"))
    digits = digits.lstrip("0") or "0"
    return int(sign + digits) if len(digits) <= 20 else UINT_MAX + 1


define("uint", int)(checked_uint)


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
    """Returns the shortest text that parses back to the number, with an exponent below 1e-4 and from 1e6 on."""
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
    """Returns the shortest text that parses back to the finite number, without an exponent."""
    digits, exponent = _significant_digits(abs(number))
    sign = "-" if math.copysign(1.0, number) < 0 else ""
    if exponent < 0:
        return f"{sign}0.{'0' * (-exponent - 1)}{digits}"
    whole, fraction = digits[: exponent + 1].ljust(exponent + 1, "0"), digits[exponent + 1 :]
    return f"{sign}{whole}.{fraction}" if fraction else sign + whole


def _significant_digits(number: float) -> tuple[str, int]:
    """Returns the fewest digits that identify a finite number, and the power of ten of the first digit."""
    mantissa, _, exponent = repr(number).partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    if not digits:
        return "0", 0
    # The first digit is in the integer part, or after as many places as zeros were dropped.
    place = len(whole) - 1 if whole != "0" else len(digits) - len(fraction) - 1
    return digits.rstrip("0"), place + int(exponent or 0)


@define("string", bytes, cost=text_cost)
def text_of_bytes(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise CelEvaluationError("invalid UTF-8 in bytes, cannot convert to string") from None


define("bytes", str, cost=text_cost)(lambda text: text.encode("utf-8", "surrogatepass"))
