"""Regular expressions with RE2, whose running time is linear in the text."""

from __future__ import annotations

import math
from typing import Any, Final

import re2

from dralloc.cel.errors import CelEvaluationError
from dralloc.cel.library.functions import Library, tenths
from dralloc.cel.limits import LENGTH_MAX_BYTES
from dralloc.primitives.text_cache import cached_by_text

LIBRARY: Final = Library()
define: Final = LIBRARY.define

# The memory limit of one compiled expression, in bytes.
MEMORY_MAX: Final = 8 << 20


def _options() -> Any:
    options = re2.Options()
    options.max_mem = MEMORY_MAX
    # By default the library writes to standard error.
    options.log_errors = False
    return options


_OPTIONS: Final = _options()


@cached_by_text(1024, LENGTH_MAX_BYTES)
def compile_pattern(pattern: str) -> Any:
    """Returns the compiled expression; raises if it is invalid."""
    try:
        return re2.compile(pattern, _OPTIONS)
    except (re2.error, UnicodeEncodeError) as fault:
        raise CelEvaluationError(f"error parsing regexp: {_reason(fault)}") from None


def _reason(fault: Exception) -> str:
    reason = fault.args[0] if fault.args else fault
    return reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)


def _cost(text: str, pattern: str, *_limit: int) -> int:
    return tenths(len(text) + 1) * math.ceil(len(pattern) * 0.25)


def _encodable(text: str) -> str:
    """Returns the text if it is valid UTF-8 for RE2; lone surrogates are not."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise CelEvaluationError("the text is not valid Unicode") from None
    return text


@define("matches", str, str, cost=_cost)
def matches(text: str, pattern: str) -> bool:
    """True if the expression matches anywhere in the text."""
    return compile_pattern(pattern).search(_encodable(text)) is not None


@define("find", str, str, cost=_cost)
def find(text: str, pattern: str) -> str:
    """Returns the first match, or an empty string."""
    match = compile_pattern(pattern).search(_encodable(text))
    found: str = match.group(0) if match else ""
    return found


@define("findAll", str, str, cost=_cost)
def find_all(text: str, pattern: str, limit: int = -1) -> list[str]:
    """Returns non-overlapping matches from the left; at most `limit` of them unless it is negative."""
    found: list[str] = []
    end_of_last = -1
    for match in compile_pattern(pattern).finditer(_encodable(text)):
        if len(found) == limit:
            break
        # An empty match right after the previous one does not count.
        if match.end() > match.start() or match.start() != end_of_last:
            found.append(match.group(0))
        end_of_last = match.end()
    return found


LIBRARY.define("findAll", str, str, int, cost=_cost)(find_all)
