"""A bound on the nesting depth of JSON, checked before any recursive code sees it.

Kubernetes allows 10,000 levels; no object has more than a few dozen, and Python's stack is not that deep.
"""

from __future__ import annotations

from itertools import accumulate, count
from operator import sub
from typing import Final

LEVELS_MAX: Final = 250

# Opening brackets count 2 and closing ones 0, so that the depth after n brackets is their sum minus n.
_WEIGHTS: Final = bytes.maketrans(b"[]{}", b"\2\0\2\0")
_ALL_BUT_BRACKETS: Final = bytes(sorted(set(range(256)) - set(b"[]{}")))


def is_nested_too_deeply(body: bytes) -> bool:
    """True if JSON has more levels than any object. The time is linear in the length."""
    if body.count(b"{") + body.count(b"[") <= LEVELS_MAX:
        return False
    # Brackets inside strings are counted at first, and excluded only if they would decide the answer.
    return _is_deep(body.translate(None, _ALL_BUT_BRACKETS)) and _is_deep(_brackets_outside_strings(body))


def _is_deep(brackets: bytes) -> bool:
    levels, brackets = _peel(brackets)
    weights = brackets.translate(_WEIGHTS).lstrip(b"\0")
    return max(map(sub, accumulate(weights), count(1)), default=0) > LEVELS_MAX - levels


def _peel(brackets: bytes) -> tuple[int, bytes]:
    """Removes innermost pairs, one level each time, while that removes most brackets: the fastest way for usual objects."""
    levels = 0
    while True:
        peeled = brackets.replace(b"[]", b"").replace(b"{}", b"")
        if 2 * len(peeled) > len(brackets):
            return levels, brackets
        levels, brackets = levels + 1, peeled
        if not brackets:
            return levels, brackets


def _brackets_outside_strings(body: bytes) -> bytes:
    if b"\\" in body:
        # Escaped quotes do not end a string.
        body = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    return b"".join(body.split(b'"')[::2]).translate(None, _ALL_BUT_BRACKETS)
