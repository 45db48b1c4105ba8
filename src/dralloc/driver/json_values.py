"""Values of drivers that are kept as JSON, and read back when the driver has started again. Drivers need not have types.

The encoder takes more than JSON has, and writes it as something else: `nan` as null, bytes and keys that are numbers as text.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite
from typing import Any, Final

import msgspec

INTEGER_MIN: Final = -(2**63)
INTEGER_MAX: Final = 2**64 - 1
SHOWN_LENGTH_MAX: Final = 60


def find_json_faults(value: Any, path: str, *, parts: type[msgspec.Struct] | tuple[()] = ()) -> Iterator[str]:
    """What would not be read back as it is. `parts`: the type of the objects of ours that are allowed."""
    pending = [(value, path)]
    while pending:
        one, place = pending.pop()
        match one:
            case dict():
                yield from (
                    f"the key {told(key)} of {place} is not JSON: use a str" for key in one if not _is_text(key)
                )
                pending.extend((each, f"{place}.{key}") for key, each in one.items())
            case list() | tuple():
                pending.extend((each, f"{place}[{index}]") for index, each in enumerate(one))
            case None | bool() | msgspec.Raw():
                continue
            case _ if parts and isinstance(one, parts):
                pending.extend((getattr(one, name), f"{place}.{name}".lstrip(".")) for name in one.__struct_fields__)
            case _ if not _is_plain(one):
                yield f"{place} is {told(one)}, which is not JSON: use a str, a number, a bool, None, a list or a dict"


def told(value: Any) -> str:
    """A value with its type, as messages show it."""
    if value is None:
        return "None"
    shown = repr(value)
    shown = shown if len(shown) <= SHOWN_LENGTH_MAX else f"{shown[:SHOWN_LENGTH_MAX]}…"
    return f"the {type(value).__name__} {shown}"


def _is_plain(value: Any) -> bool:
    match value:
        case int():
            return INTEGER_MIN <= value <= INTEGER_MAX
        case float():
            return isfinite(value)
        case _:
            return _is_text(value)


def _is_text(value: Any) -> bool:
    """False for text that is not UTF-8, too, such as names of files may be."""
    try:
        return isinstance(value, str) and value.encode() is not None
    except UnicodeEncodeError:
        return False
