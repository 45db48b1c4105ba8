"""JSON documents as values. Patches and apply work on documents, so that fields without a model are kept.

Functions on documents never change them in place; results share unchanged parts.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from dralloc.primitives.errors import BadRequest

# A decoded JSON value, and a decoded JSON object.
Json = Any
Document = dict[str, Any]

_P = ParamSpec("_P")
_R = TypeVar("_R")


def refuses_deep_nesting(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """The function, with `BadRequest` instead of a `RecursionError` for documents that a client nests too deeply."""

    @functools.wraps(function)
    def guarded(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return function(*args, **kwargs)
        except RecursionError:
            raise BadRequest("the document is nested too deeply") from None

    return guarded


def same_json(one: Json, other: Json) -> bool:
    """Equality of JSON values; in Python, `True == 1`."""
    if one != other:
        return False
    if isinstance(one, dict):
        return all(same_json(value, other[name]) for name, value in one.items())
    if isinstance(one, list):
        return all(map(same_json, one, other))
    return isinstance(one, bool) is isinstance(other, bool)
