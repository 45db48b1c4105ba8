"""A bound on how deeply JSON is nested, checked before anything that recurses sees it.

Kubernetes' bound is 10,000 levels; no object has more than a few dozen, and Python's stack is not that deep.
"""

from __future__ import annotations

import re
from typing import Final

LEVELS_MAX: Final = 250

_ALL_BUT_BRACKETS: Final = bytes(sorted(set(range(256)) - set(b"[]{}")))
# A text that does not end reaches to the end, so that looking for its end once is enough.
_TEXT: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)


def is_nested_too_deeply(body: bytes) -> bool:
    """Whether JSON has more levels than anything that is an object. Fast, because nearly nothing has."""
    if body.count(b"{") + body.count(b"[") <= LEVELS_MAX:
        return False
    # Brackets inside texts are counted first, too, and taken out only where they would make the difference.
    return _outlasts_peeling(body) and _outlasts_peeling(_TEXT.sub(b"", body))


def _outlasts_peeling(body: bytes) -> bool:
    """Whether brackets are left when the innermost pairs have been taken away again and again."""
    brackets = body.translate(None, _ALL_BUT_BRACKETS)
    for _ in range(LEVELS_MAX):
        peeled = brackets.replace(b"[]", b"").replace(b"{}", b"")
        if len(peeled) == len(brackets):
            break
        brackets = peeled
    return len(brackets) > LEVELS_MAX
