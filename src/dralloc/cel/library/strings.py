"""CEL's string extension. Positions count code points."""

from __future__ import annotations

from typing import Final

from dralloc.cel.errors import CelEvaluationError
from dralloc.cel.library.functions import Library, tenths, text_cost, text_rewriting_cost
from dralloc.cel.meter import Meter, limited_text_length
from dralloc.cel.values import Value, no_such_overload

LIBRARY: Final = Library()
define: Final = LIBRARY.define

_UPPER: Final = {code: code - 32 for code in range(ord("a"), ord("z") + 1)}
_LOWER: Final = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
# Unicode white space, without the separators U+001C to U+001F, which only Python includes.
_SPACE: Final = "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
ESCAPES: Final = {
    "\a": r"\a", "\b": r"\b", "\f": r"\f", "\n": r"\n", "\r": r"\r", "\t": r"\t", "\v": r"\v", "\\": r"\\", '"': r"\"",
}  # fmt: skip
_QUOTED: Final = str.maketrans(ESCAPES)


def _search_cost(text: str, *_rest: Value) -> int:
    return int(len(text.encode("utf-8", "surrogatepass")) * 0.1)


@define("charAt", str, int)
def char_at(text: str, index: int) -> str:
    """Returns one code point; an empty string right after the last one."""
    if not 0 <= index <= len(text):
        raise CelEvaluationError(f"index out of range: {index}")
    return text[index : index + 1]


@define("substring", str, int, cost=text_cost)
def substring_from(text: str, start: int) -> str:
    if not 0 <= start <= len(text):
        raise CelEvaluationError(f"index out of range: {start}")
    return text[start:]


@define("substring", str, int, int, cost=text_cost)
def substring(text: str, start: int, end: int) -> str:
    if start > end:
        raise CelEvaluationError(f"invalid substring range. start: {start}, end: {end}")
    for index in (start, end):
        if not 0 <= index <= len(text):
            raise CelEvaluationError(f"index out of range: {index}")
    return text[start:end]


define("indexOf", str, str, cost=_search_cost)(lambda text, part: text.find(part))


@define("indexOf", str, str, int, cost=_search_cost)
def index_of_from(text: str, part: str, start: int) -> int:
    if not part:
        return start
    if start < 0:
        raise CelEvaluationError(f"index out of range: {start}")
    return text.find(part, start)


define("lastIndexOf", str, str, cost=_search_cost)(lambda text, part: text.rfind(part))


@define("lastIndexOf", str, str, int, cost=_search_cost)
def last_index_of_from(text: str, part: str, start: int) -> int:
    """Returns the last position of the part, at or before `start`."""
    if not part:
        return start
    if start < 0:
        raise CelEvaluationError(f"index out of range: {start}")
    return -1 if start >= len(text) else text.rfind(part, 0, start + len(part))


define("trim", str, cost=text_cost)(lambda text: text.strip(_SPACE))


@define("split", str, str, cost=text_rewriting_cost, metered=True)
@define("split", str, str, int, cost=text_rewriting_cost, metered=True)
def split(meter: Meter, text: str, separator: str, limit: int = -1) -> list[str]:
    """Returns the parts between separators; with a limit, the last part holds the rest."""
    meter.spend_copying(len(text))
    if limit == 0:
        return []
    if separator:
        return text.split(separator, limit - 1 if limit > 0 else -1)
    if limit < 0 or limit >= len(text):
        return list(text)
    return [*text[: limit - 1], text[limit - 1 :]]


define("lowerAscii", str, cost=text_cost)(lambda text: text.translate(_LOWER))
define("upperAscii", str, cost=text_cost)(lambda text: text.translate(_UPPER))


@define("replace", str, str, str, cost=text_rewriting_cost, metered=True)
@define("replace", str, str, str, int, cost=text_rewriting_cost, metered=True)
def replace(meter: Meter, text: str, old: str, new: str, limit: int = -1) -> str:
    """Replaces from the left, at most `limit` times unless it is negative. An empty string matches around every
    character.
    """
    count = text.count(old)
    replaced = count if limit < 0 else min(count, limit)
    meter.spend_copying(limited_text_length(len(text) + replaced * (len(new) - len(old))))
    return text.replace(old, new, replaced)


def _join_cost(texts: list[Value], separator: str = "") -> int:
    return tenths(2 * _joined_length(texts, separator))


def _joined_length(texts: list[Value], separator: str) -> int:
    length = sum(len(text) for text in texts if text.__class__ is str) + len(separator) * max(len(texts) - 1, 0)
    return limited_text_length(length)


@define("join", list, cost=_join_cost)
@define("join", list, str, cost=_join_cost)
def join(texts: list[Value], separator: str = "") -> str:
    for text in texts:
        if text.__class__ is not str:
            raise no_such_overload("join", texts, text)
    return separator.join(texts)


@define("strings.quote", str, cost=text_cost, metered=True)
def quote(meter: Meter, text: str) -> str:
    """Returns the text as a literal."""
    meter.spend_copying(limited_text_length(2 * len(text) + 2))
    return f'"{text.translate(_QUOTED)}"'
