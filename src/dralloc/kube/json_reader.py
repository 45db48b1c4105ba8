"""Parses JSON into plain trees with what a decoder drops: repeated keys, exact numbers, and positions.

Only for diagnostics; objects are decoded from the bytes by `codec`.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterator
from typing import Any, Final

from dralloc.kube.positions import Position, PositionTracker, SourceError, Steps, position_of
from dralloc.kube.trees import ExactNumber, RepeatedKeys, repeated_names


def read_json(text: str) -> Any:
    """Returns the tree of the one JSON value in the text."""
    tree, end = _read(text, _skip_space(text, 0))
    rest = _skip_space(text, end)
    if rest != len(text):
        raise SourceError(position_of(text, rest), "not JSON: unexpected text after the value")
    return tree


def read_json_stream(text: str) -> Iterator[tuple[Any, int, int]]:
    """Yields tree, start and end of every JSON value in a text of concatenated values."""
    start = _skip_space(text, 0)
    while start < len(text):
        tree, end = _read(text, start)
        yield tree, start, end
        start = _skip_space(text, end)


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) == len(pairs):
        return members
    return RepeatedKeys(members, repeated_names(name for name, _ in pairs))


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


_DECODER: Final = json.JSONDecoder(object_pairs_hook=_members, parse_float=ExactNumber, parse_constant=_refuse_constant)
_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")
_SPACE: Final = re.compile(r"[ \t\r\n]*")


def _skip_space(text: str, offset: int) -> int:
    match = _SPACE.match(text, offset)
    assert match is not None, "the pattern matches the empty string"
    return match.end()


def _refuse_half_characters(tree: Any) -> None:
    """JSON can escape a lone surrogate, which no string can hold."""
    pending = [tree]
    for node in pending:
        if isinstance(node, str):
            node.encode()
        elif isinstance(node, dict):
            pending.extend(node)
            pending.extend(node.values())
        elif isinstance(node, list):
            pending.extend(node)


def _read(text: str, start: int) -> tuple[Any, int]:
    try:
        tree, end = _DECODER.raw_decode(text, start)
        if _SURROGATE.search(text, start, end):
            _refuse_half_characters(tree)
        return tree, end
    except json.JSONDecodeError as error:
        raise SourceError(position_of(text, error.pos), f"not JSON: {error.msg}") from None
    except RecursionError:
        raise SourceError(position_of(text, start), "the value is nested too deeply") from None
    except UnicodeEncodeError:
        raise SourceError(position_of(text, start), "not JSON: a string contains a lone surrogate") from None
    except ValueError as error:
        raise SourceError(position_of(text, start), f"not JSON: {error}") from None


_TOKEN: Final = re.compile(r'([{\[])|([}\]])|("(?:[^"\\]|\\.)*")|([^\s,:\[\]{}"]+)')


def locate_json(text: str, start: int) -> dict[Steps, Position]:
    """Returns the positions of everything in the value at `start`. The text is known to be JSON."""
    tracker = PositionTracker()
    line_starts = [0, *(match.end() for match in re.finditer("\n", text))]
    for token in _TOKEN.finditer(text, start):
        line = bisect_right(line_starts, token.start())
        position = Position(line, token.start() - line_starts[line - 1] + 1)
        opening, closing, string, _ = token.groups()
        if opening:
            (tracker.begin_object if opening == "{" else tracker.begin_list)(position)
        elif closing:
            if tracker.end():
                break
        else:
            tracker.scalar(json.loads(string) if string else token[0], position)
    return tracker.positions
