"""Regular expressions with RE2, whose running time is linear in the text."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, Final

import re2

from dralloc.cel.errors import CelEvaluationError
from dralloc.cel.library.functions import Library, tenths

LIBRARY: Final = Library()
define: Final = LIBRARY.define

# The memory limit of one compiled expression, in bytes. Compiling keeps Python's lock: 40 ms up to this limit.
MEMORY_MAX: Final = 4 << 20
# Of the constant patterns of one expression together: RE2's instructions, of which `\pL` has 1,200, and Unicode classes, each of which
# takes 0.1 ms to read.
INSTRUCTIONS_MAX: Final = 1 << 17
CLASSES_MAX: Final = 256
# Those of constants are also kept by their selectors.
COMPILED_KEPT: Final = 128

TOO_LARGE: Final = "pattern too large"


def _options() -> Any:
    options = re2.Options()
    options.max_mem = MEMORY_MAX
    # By default the library writes to standard error.
    options.log_errors = False
    return options


_OPTIONS: Final = _options()


@lru_cache(maxsize=COMPILED_KEPT)
def compile_pattern(pattern: str) -> Any:
    """Returns the compiled expression; raises if it is invalid."""
    try:
        return re2.compile(pattern, _OPTIONS)
    except (re2.error, UnicodeEncodeError) as fault:
        raise CelEvaluationError(f"error parsing regexp: {_reason(fault)}") from None


class PatternBudget:
    """Bounds the work for the constant patterns of one expression, which has room for hundreds."""

    def __init__(self) -> None:
        self._known: set[str] = set()
        self._classes_left = CLASSES_MAX
        self._instructions_left = INSTRUCTIONS_MAX

    def check(self, pattern: str) -> None:
        """Raises if the pattern is invalid, or too large with those before it."""
        if pattern in self._known:
            return
        self._classes_left -= pattern.count("\\p") + pattern.count("\\P")
        if self._classes_left >= 0 and self._instructions_left >= 0:
            try:
                self._instructions_left -= compile_pattern(pattern).programsize
            except CelEvaluationError as fault:
                if TOO_LARGE in str(fault):
                    self._instructions_left = -1
                raise
        if self._classes_left < 0 or self._instructions_left < 0:
            raise CelEvaluationError(f"error parsing regexp: {TOO_LARGE} with those before it")
        self._known.add(pattern)


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
