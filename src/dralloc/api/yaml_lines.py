"""Reads YAML documents that are plain, line by line: block mappings and sequences of scalars on one line, as tools print them.

It takes a sixth of the time of a YAML parser, because manifests repeat lines: a line is read once. It knows less than YAML and guesses
nothing: anything else (comments behind values, folded text, anchors, tags, nested flow, errors) makes the document NOT_PLAIN, and the
parser reads it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Any, Final, NamedTuple

from dralloc.api.nesting_limit import LEVELS_MAX
from dralloc.api.yaml_scalars import resolve_plain
from dralloc.primitives.text_cache import cached_by_text

# Longer lines seldom repeat, and would fill the memory.
CACHED_LINE_MAX: Final = 200
# YAML bounds the length of names, at 1,024 characters.
NAME_MAX: Final = 500


class _NotPlain(Enum):
    NOT_PLAIN = "not plain"


# In place of a tree or a value.
NOT_PLAIN: Final = _NotPlain.NOT_PLAIN

# What follows the colon or the dash. Not an enumeration, because it is compared for every line.
_SCALAR: Final = 0
_NOTHING: Final = 1
# A flow sequence or mapping, to be copied.
_FLOW: Final = 2
# A literal block; the value says whether its last line break counts.
_BLOCK: Final = 3


class _Line(NamedTuple):
    """A line of a block mapping or sequence. Without a dash, `dash` is -1; without a name, the value is an item."""

    dash: int
    column: int
    name: str | None
    kind: int
    value: Any


# Other line breaks, and tabs, which mean something in some places.
_UNUSUAL: Final = "\t\r\x85\u2028\u2029\ufeff"
_SEPARATOR: Final = "---"


def split_documents(text: str) -> Iterator[Sequence[str]] | None:
    """The lines of every document; None if they cannot be told apart without a parser."""
    whole = f"\n{text}\n"
    # A directive, the end of a document, or a separator with something behind it.
    if "\n%" in whole or "\n..." in whole or whole.count("\n---") != whole.count("\n---\n"):
        return None
    return None if any(character in text for character in _UNUSUAL) else _documents(text)


def _documents(text: str) -> Iterator[Sequence[str]]:
    lines: list[str] = []
    is_first = True
    for line in text.split("\n"):
        if line != _SEPARATOR:
            lines.append(line)
            continue
        # What precedes the first separator is a document only if there is something.
        if not is_first or any(map(_has_content, lines)):
            # Joined, they end with the line break before the separator.
            yield [*lines, ""]
        lines, is_first = [], False
    if not is_first or any(map(_has_content, lines)):
        yield lines


def _has_content(line: str) -> bool:
    stripped = line.lstrip(" ")
    return bool(stripped) and stripped[0] != "#"


def read_plain_document(lines: Sequence[str]) -> Any:
    """Returns the tree of a document, None for an empty one, or NOT_PLAIN. This is the hot path, so it is one loop."""
    top: Any = {}
    top_column = 0
    # The open collections around `top`, each with its column.
    around: list[tuple[Any, int]] = []
    root = top
    # The name in `top` that has no value yet.
    waiting: str | None = None
    # The first line after a literal block.
    resumes = 0
    for number, text in enumerate(lines):
        if number < resumes:
            continue
        line = _read_line(text)
        if line is None:
            if _has_content(text):
                return NOT_PLAIN
            continue
        dash, column, name, kind, value = line
        start = column if dash < 0 else dash
        if waiting is not None:
            if start > top_column or (dash >= 0 and start == top_column):
                around.append((top, top_column))
                inner: Any = {} if dash < 0 else []
                top[waiting] = inner
                top, top_column = inner, start
            else:
                top[waiting] = None
            waiting = None
        while top_column > start or (dash < 0 and top_column == start and type(top) is list):
            top, top_column = around.pop()
        if top_column != start or (type(top) is list) is (dash < 0) or len(around) >= LEVELS_MAX - 1:
            return NOT_PLAIN
        if kind == _FLOW:
            value = value.copy()
        elif kind == _BLOCK:
            resumes = _end_of_block(lines, number + 1, column)
            value = _block(lines[number + 1 : resumes], keeps_break=value)
            # Without a line break at its end, a block has none to keep.
            if value is None or (resumes == len(lines) and lines[-1]):
                return NOT_PLAIN
        if name is None:
            top.append(value)
            continue
        if dash >= 0:
            around.append((top, top_column))
            member: dict[str, Any] = {}
            top.append(member)
            top, top_column = member, column
        elif name in top:
            return NOT_PLAIN
        if kind == _NOTHING:
            waiting = name
        else:
            top[name] = value
    if waiting is not None:
        top[waiting] = None
    return root or None


# --- Lines -------------------------------------------------------------------------------------------------------

_QUOTED: Final = r"""\"[^\"\\]*\"|'[^']*'"""
_WORD: Final = r"[A-Za-z0-9_][A-Za-z0-9_./-]*"
# Spaces are never given back: a line of a million of them must not take the square of that.
_LINE: Final = re.compile(rf"( *+)(?:-( ++))?(?:({_WORD}|{_QUOTED}):(?: ++(.*[^ ]))?|(.*[^ ])) *")
_PLAIN: Final = re.compile(r"[A-Za-z0-9_./+$~-].*")
_WHOLE_QUOTED: Final = re.compile(_QUOTED)
_ITEM: Final = rf"(?:{_WORD}|{_QUOTED})"
_FLOW_LIST: Final = re.compile(rf"\[(?:{_ITEM}(?:, {_ITEM})*)?\]")
_FLOW_MAPPING: Final = re.compile(rf"\{{(?:{_ITEM}: {_ITEM}(?:, {_ITEM}: {_ITEM})*)?\}}")
_ITEMS: Final = re.compile(_ITEM)
_LITERAL: Final = {"|": True, "|-": False}


def _parse_line(text: str) -> _Line | None:
    """Returns what the line says; None if it is empty, a comment, or not plain."""
    found = _LINE.fullmatch(text)
    if found is None or len(found[3] or "") > NAME_MAX:
        return None
    indentation, gap, name, value, item = found.groups()
    column, dash = len(indentation), -1
    if gap is not None:
        column, dash = column + 1 + len(gap), column
    if name is not None:
        name = _scalar(name)
        if type(name) is not str:
            return None
        read = (_NOTHING, None) if value is None else _value(value)
    else:
        read = _value(item) if dash >= 0 and item not in _LITERAL else None
    return None if read is None else _Line(dash, column, name, *read)


_read_line = cached_by_text(1 << 14, CACHED_LINE_MAX)(_parse_line)


def _value(text: str) -> tuple[int, Any] | None:
    if text in _LITERAL:
        return _BLOCK, _LITERAL[text]
    if text[0] == "[":
        return _flow_list(text) if _FLOW_LIST.fullmatch(text) else None
    if text[0] == "{":
        return _flow_mapping(text) if len(text) < NAME_MAX and _FLOW_MAPPING.fullmatch(text) else None
    value = _scalar(text)
    return None if value is NOT_PLAIN else (_SCALAR, value)


def _flow_mapping(text: str) -> tuple[int, Any] | None:
    items = _items(text)
    names = items[::2]
    is_plain = all(type(name) is str for name in names) and len(set(names)) == len(names)
    return (_FLOW, dict(zip(names, items[1::2], strict=True))) if is_plain and NOT_PLAIN not in items else None


def _flow_list(text: str) -> tuple[int, Any] | None:
    items = _items(text)
    return (_FLOW, items) if NOT_PLAIN not in items else None


def _items(text: str) -> list[Any]:
    return [_scalar(item) for item in _ITEMS.findall(text)]


def _scalar(text: str) -> Any:
    """Returns the value of a scalar, or NOT_PLAIN."""
    if _WHOLE_QUOTED.fullmatch(text):
        return text[1:-1]
    if not _PLAIN.fullmatch(text) or ": " in text or " #" in text or text[-1] == ":" or text[:2] in ("-", "- "):
        return NOT_PLAIN
    value = resolve_plain(text)
    return NOT_PLAIN if type(value) is float and not math.isfinite(value) else value


# --- Literal blocks ----------------------------------------------------------------------------------------------


def _end_of_block(lines: Sequence[str], start: int, column: int) -> int:
    """The index of the first line that is not more indented than the name of the block; empty lines belong to the block."""
    for index in range(start, len(lines)):
        if _indentation(lines[index]) <= column and lines[index].strip(" "):
            return index
    return len(lines)


def _indentation(text: str) -> int:
    return len(text) - len(text.lstrip(" "))


def _block(lines: Sequence[str], *, keeps_break: bool) -> str | None:
    """Returns the text of a literal block; None if it is not plain."""
    texts = [text for text in lines if text.strip(" ")]
    if not texts or not lines[0].strip(" "):
        return None
    indentation = _indentation(texts[0])
    if any(_indentation(text) < indentation for text in texts):
        return None
    if any(text and not text.strip(" ") and len(text) > indentation for text in lines):
        return None
    text = "\n".join(text[indentation:] for text in lines).rstrip("\n")
    return text + "\n" if keeps_break else text
