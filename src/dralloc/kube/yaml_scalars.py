"""The values of plain YAML scalars, as Kubernetes' tools resolve them: YAML 1.1, but `1e3` is a number and `12:30` a string."""

from __future__ import annotations

import math
import re
from functools import lru_cache
from typing import Any, Final

_WORDS: Final[dict[str, Any]] = {
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), math.inf),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), -math.inf),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
}
_INTEGER: Final = re.compile(r"[-+]?(?:0[xX][0-9a-fA-F]+|0[bB][01]+|0[oO]?[0-7]+|0|[1-9][0-9]*)", re.ASCII)
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", re.ASCII)


# Manifests repeat the same words.
@lru_cache(maxsize=4096)
def resolve_plain(text: str) -> Any:
    """Returns the value of a plain (unquoted) scalar."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in "0123456789+-.":
        return text
    digits = text.replace("_", "")
    if _INTEGER.fullmatch(digits) and len(digits) < 70:
        number = _integer(digits)
        return number if -(2**63) <= number < 2**64 else float(number)
    return _float(digits) if _FLOAT.fullmatch(digits) else text


def _integer(digits: str) -> int:
    """Parses an integer in any base of YAML 1.1; a leading zero means octal."""
    magnitude = digits.lstrip("+-")
    is_plain_octal = magnitude[0] == "0" and magnitude[1:].isdecimal()
    number = int(magnitude, 8 if is_plain_octal else 0)
    return -number if digits[0] == "-" else number


def _float(digits: str) -> int | float:
    """Kubernetes prints a whole number without a fraction, so that `1e3` can be a count."""
    number = float(digits)
    return int(number) if abs(number) < 1e21 and number.is_integer() else number
