"""`"%d of %s".format([…])`: formats values into a text, in English regardless of the locale."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Final

from dralloc.cel.errors import CelEvaluationError
from dralloc.cel.library import conversions, time
from dralloc.cel.library.functions import Library
from dralloc.cel.library.strings import ESCAPES
from dralloc.cel.meter import Meter, limited_text_length
from dralloc.cel.values import (
    DomainMap,
    Duration,
    Map,
    Timestamp,
    TypeValue,
    Uint,
    Value,
    key_value,
    type_of,
)

LIBRARY: Final = Library()
define: Final = LIBRARY.define

DECIMALS_DEFAULT: Final = 6
# More decimals than any double has.
DECIMALS_MAX: Final = 1_100

_CLAUSE: Final = re.compile(r"%(?:%|(?:\.([0-9]*))?(.)?)", re.DOTALL | re.ASCII)


@define("format", str, list, metered=True)
def format_text(meter: Meter, template: str, arguments: list[Value]) -> str:
    """Returns the template with one argument for every clause."""
    parts: list[str] = []
    position = used = 0
    for match in _CLAUSE.finditer(template):
        parts.append(template[position : match.start()])
        position = match.end()
        if match[0] == "%%":
            parts.append("%")
            continue
        if used >= len(arguments):
            raise CelEvaluationError(f"index {used} out of range")
        parts.append(_format_clause(meter, match[2], match[1], arguments[used]))
        meter.spend_copying(len(parts[-1]))
        used += 1
    parts.append(template[position:])
    limited_text_length(sum(map(len, parts)))
    return "".join(parts)


def _format_clause(meter: Meter, letter: str | None, decimals: str | None, argument: Value) -> str:
    if letter is None:
        raise CelEvaluationError("unexpected end of string")
    if decimals is not None and (not decimals or len(decimals) > 9):
        raise CelEvaluationError("could not parse formatting clause: error while parsing precision")
    try:
        if letter in ("f", "e"):
            places = DECIMALS_DEFAULT if decimals is None else int(decimals)
            return _format_fixed(argument, places) if letter == "f" else _format_scientific(argument, places)
        if letter == "s":
            return text_of(meter, argument)
        if letter in _CLAUSES:
            return _CLAUSES[letter](argument)
    except CelEvaluationError as fault:
        raise type(fault)(f"error during formatting: {fault}") from None
    raise CelEvaluationError(f'could not parse formatting clause: unrecognized formatting clause "{letter}"')


# --- Numbers -------------------------------------------------------------------------------------------------


def _format_decimal(argument: Value) -> str:
    if argument.__class__ is int or argument.__class__ is Uint:
        return str(int(argument))
    raise CelEvaluationError(f"decimal clause can only be used on integers, was given {type_of(argument).name}")


def _format_binary(argument: Value) -> str:
    if argument.__class__ in (int, Uint, bool):
        return f"{int(argument):b}"
    raise CelEvaluationError(f"only integers and bools can be formatted as binary, was given {type_of(argument).name}")


def _format_octal(argument: Value) -> str:
    if argument.__class__ is int or argument.__class__ is Uint:
        return f"{int(argument):o}"
    raise CelEvaluationError(f"octal clause can only be used on integers, was given {type_of(argument).name}")


def _format_hex(argument: Value) -> str:
    kind = argument.__class__
    if kind is int or kind is Uint:
        return f"{int(argument):x}"
    if kind is str:
        return str(argument.encode("utf-8", "surrogatepass").hex())
    if kind is bytes:
        return str(argument.hex())
    name = type_of(argument).name
    raise CelEvaluationError(f"only integers, byte buffers, and strings can be formatted as hex, was given {name}")


_CLAUSES: Final[dict[str, Callable[[Value], str]]] = {
    "d": _format_decimal,
    "b": _format_binary,
    "o": _format_octal,
    "x": _format_hex,
    "X": lambda argument: _format_hex(argument).upper(),
}

_SUPERSCRIPT: Final = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def _format_fixed(argument: Value, places: int) -> str:
    number = _double(argument, "fixed-point")
    if not math.isfinite(number):
        return _endless(number)
    return f"{number:,.{min(places, DECIMALS_MAX)}f}"


def _format_scientific(argument: Value, width: int) -> str:
    """Always with six decimals: Kubernetes uses the number in the clause as the total width."""
    number = _double(argument, "scientific")
    if not math.isfinite(number):
        return _endless(number)
    mantissa, _, exponent = f"{number:.6e}".partition("e")
    text = f"{mantissa}×10{exponent.lstrip('+').translate(_SUPERSCRIPT)}"
    return text.rjust(limited_text_length(width))


def _double(argument: Value, clause: str) -> float:
    if argument.__class__ is float:
        number: float = argument
        return number
    if argument.__class__ is str and argument in ("NaN", "Infinity", "-Infinity"):
        return conversions.double_of_text(argument)
    raise CelEvaluationError(f"{clause} clause can only be used on doubles, was given {type_of(argument).name}")


def _endless(number: float) -> str:
    return "NaN" if number != number else "∞" if number > 0 else "-∞"


# --- Everything as text --------------------------------------------------------------------------------------

_TEXT_OF: Final[dict[type, Callable[[Value], str]]] = {
    str: conversions.identity,
    int: conversions.text_of_integer,
    Uint: conversions.text_of_integer,
    float: conversions.text_of_double,
    bool: conversions.text_of_bool,
    bytes: conversions.text_of_bytes,
    Timestamp: time.text_of_timestamp,
    Duration: time.text_of_duration,
    TypeValue: lambda value: str(value.name),
    type(None): lambda _value: "null",
}


def text_of(meter: Meter, value: Value) -> str:
    """Returns the text of a value; elements of lists and maps are written as literals."""
    kind = value.__class__
    if kind is list:
        return _text_of_list(meter, value)
    if kind is dict or kind is DomainMap:
        return _text_of_map(meter, value)
    if kind in _TEXT_OF:
        return _TEXT_OF[kind](value)
    raise CelEvaluationError(
        "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, "
        f"and timestamps, was given {type_of(value).name}"
    )


def _text_of_list(meter: Meter, elements: list[Value]) -> str:
    return f"[{', '.join([_literal(meter, element) for element in elements])}]"


def _text_of_map(meter: Meter, mapping: Map) -> str:
    entries = [(_literal_key(meter, key_value(key)), _literal(meter, value)) for key, value in mapping.items()]
    entries.sort(key=lambda entry: entry[0])
    return f"{{{', '.join([f'{key}:{value}' for key, value in entries])}}}"


def _literal_key(meter: Meter, key: Value) -> str:
    if key.__class__ in (str, bool, int, Uint):
        return _literal(meter, key)
    raise CelEvaluationError(f"no formatting function for map key of type {type_of(key).name}")


def _literal(meter: Meter, value: Value) -> str:
    kind = value.__class__
    # Every character is checked for escaping.
    meter.spend(len(value) + 2 if kind is str or kind is bytes else 2)
    if kind is str:
        return go_quoted(value)
    if kind is bytes:
        return f"b{go_quoted(conversions.text_of_bytes(value))}"
    if kind is Timestamp:
        return f'timestamp("{time.text_of_timestamp(value)}")'
    if kind is Duration:
        return f'duration("{time.text_of_duration(value)}")'
    if kind is float:
        return f"{value:.6f}" if math.isfinite(value) else f'"{conversions.text_of_double(value)}"'
    if kind in (list, dict, DomainMap) or kind in _TEXT_OF:
        return text_of(meter, value)
    raise CelEvaluationError(f"no formatting function for {type_of(value).name}")


def go_quoted(text: str) -> str:
    """Returns the text in double quotes, with non-printing characters escaped."""
    return f'"{"".join([_escaped(character) for character in text])}"'


def _escaped(character: str) -> str:
    if character in ESCAPES:
        return ESCAPES[character]
    if character.isprintable():
        return character
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x80 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
