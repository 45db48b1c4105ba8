"""A bound on the nesting depth of JSON, checked before any recursive code sees it.

Kubernetes allows 10,000 levels; no object has more than a few dozen, and Python's stack is not that deep.
"""

from __future__ import annotations

import re
from typing import Final

LEVELS_MAX: Final = 250

_ALL_BUT_BRACKETS: Final = bytes(sorted(set(range(256)) - set(b"[]{}")))
# An unterminated string extends to the end, so that one search for its end suffices.
_TEXT: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)


def is_nested_too_deeply(body: bytes) -> bool:
    """True if JSON has more levels than any object. Fast for the usual case."""
    if body.count(b"{") + body.count(b"[") <= LEVELS_MAX:
        return False
    # Brackets inside strings are counted at first, and excluded only if they would decide the answer.
    return _outlasts_peeling(body) and _outlasts_peeling(_TEXT.sub(b"", body))


def _outlasts_peeling(body: bytes) -> bool:
    """True if brackets are left after repeatedly removing the innermost pairs."""
    brackets = body.translate(None, _ALL_BUT_BRACKETS)
    for _ in range(LEVELS_MAX):
        peeled = brackets.replace(b"[]", b"").replace(b"{}", b"")
        if len(peeled) == len(brackets):
            break
        brackets = peeled
    return len(brackets) > LEVELS_MAX
