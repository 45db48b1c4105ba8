"""Access to the contents of values: fields, keys and positions.

Only maps and lists have contents. Access to any other value is the same error as a missing key: attributes are dynamic,
and Kubernetes does not distinguish a wrong type from a missing key here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from dralloc.cel.errors import CelEvaluationError
from dralloc.cel.values import MISSING, NONE, DomainMap, Optional, Uint, Value, find, type_of

_KEY_KINDS: Final = frozenset({str, int, Uint, bool, float})


class MissingKeyError(CelEvaluationError):
    """A key does not exist; the message says how to read it safely."""

    def __init__(self, key: Value) -> None:
        super().__init__(f"no such key: {_shown(key)}{_hint(key)}")
        self.key = key


def get_value(value: Value, key: Value) -> Value:
    """Returns the value at a key. Raises if there is none."""
    found = find_value(value, key)
    if found is not MISSING:
        return found
    if value.__class__ is list:
        raise CelEvaluationError(f"index out of bounds: {_shown(key)}")
    raise MissingKeyError(key)


def find_value(value: Value, key: Value) -> Value:
    """Returns the value at a key, or MISSING."""
    kind = value.__class__
    if kind is dict or kind is DomainMap:
        return find(value, key)
    if kind is list:
        position = _position(key)
        return value[position] if 0 <= position < len(value) else MISSING
    return MISSING


def access_optionally(value: Value, keys: Iterable[Value]) -> Optional:
    """Returns the value at a path of keys as an optional; every step may find nothing."""
    if value.__class__ is Optional:
        if not value.is_present:
            return NONE
        # A value from an optional loses the default for missing domains.
        value = dict(value.value) if value.value.__class__ is DomainMap else value.value
    for key in keys:
        value = find_value(value, index_key(key))
        if value is MISSING:
            return NONE
    return Optional(value)


def index_key(key: Value) -> Value:
    """Returns the key if its type is valid for keys; raises otherwise."""
    if key.__class__ in _KEY_KINDS:
        return key
    raise CelEvaluationError(f"invalid qualifier type: {type_of(key).name}")


def _position(key: Value) -> int:
    kind = key.__class__
    if kind is int or kind is Uint:
        return int(key)
    if kind is float and key.is_integer():
        return int(key)
    raise CelEvaluationError(f"unsupported index value {_shown(key)} in list")


def _shown(key: Value) -> str:
    return str(int(key)) if key.__class__ is Uint else str(key).lower() if key.__class__ is bool else str(key)


def _hint(key: Value) -> str:
    if key.__class__ is not str:
        return ""
    how = f".?{key}.orValue(…)" if key.isidentifier() and key.isascii() else f'[?"{key}"].orValue(…)'
    return f"; if it may be missing, read it with {how} or check has(…) first"
