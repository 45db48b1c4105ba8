"""JSON documents as values: patches and apply work on these, so that what we do not model is kept.

No function changes a document in place: it shares what stays and copies what changes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from dralloc.primitives.errors import BadRequest

# A decoded JSON value, and one that is an object: every API object is.
Json = Any
Document = dict[str, Any]

_P = ParamSpec("_P")
_R = TypeVar("_R")


def refuses_deep_nesting(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """The function, with a refusal instead of a crash for documents that nest deeper than we can follow.

    Recursion here follows a document's nesting, which a client chooses; no real object comes near the limit.
    """

    @functools.wraps(function)
    def guarded(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return function(*args, **kwargs)
        except RecursionError:
            raise BadRequest("the document is nested too deeply") from None

    return guarded


def same_json(one: Json, other: Json) -> bool:
    """Equality as JSON has it: Python alone takes `true` for 1."""
    if one != other:
        return False
    if isinstance(one, dict):
        return all(same_json(value, other[name]) for name, value in one.items())
    if isinstance(one, list):
        return all(map(same_json, one, other))
    return isinstance(one, bool) is isinstance(other, bool)
