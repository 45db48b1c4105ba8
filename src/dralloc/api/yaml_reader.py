"""YAML as plain trees, read the way Kubernetes' tools read it.

PyYAML parses, and its events are turned into trees here, because its own loaders resolve scalars differently
(`1e3` and `12:30` are a number and a text in a manifest), drop repeated keys, recurse, and take three times as
long. Depth and aliases are bounded, so that a small text cannot fill the memory.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final, NoReturn

import yaml
from yaml import events

from dralloc.api.positions import Position, PositionTracker, SourceError, Steps
from dralloc.api.trees import RepeatedKeys

DEPTH_MAX: Final = 250
# What aliases may stand for together, in nodes and characters.
ALIASED_SIZE_MAX: Final = 10_000_000

Parser: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_yaml_stream(text: str) -> Iterator[Any]:
    """The tree of every document, `None` for an empty one."""
    parser = Parser(_checked(text))
    try:
        while True:
            event = parser.get_event()
            if isinstance(event, events.DocumentStartEvent):
                yield _Builder().build(parser)
            elif isinstance(event, events.StreamEndEvent):
                return
    except yaml.YAMLError as error:
        raise _source_error(text, error) from None
    finally:
        parser.dispose()


def locate_yaml(text: str, wanted: frozenset[int]) -> dict[int, dict[Steps, Position]]:
    """Where everything in the wanted documents stands. They were read before, so they are YAML."""
    located: dict[int, dict[Steps, Position]] = {}
    index = -1
    last = max(wanted, default=-1)
    for event in yaml.parse(text, Loader=Parser) if wanted else ():
        if isinstance(event, events.DocumentStartEvent):
            index += 1
            tracker = PositionTracker()
            located |= {index: tracker.positions} if index in wanted else {}
        elif index in wanted:
            _track(event, tracker)
        if index == last and isinstance(event, events.DocumentEndEvent):
            break
    return located


def _track(event: Any, tracker: PositionTracker) -> None:
    position = _position(event.start_mark)
    match event:
        case events.MappingStartEvent():
            tracker.begin_object(position)
        case events.SequenceStartEvent():
            tracker.begin_list(position)
        case events.CollectionEndEvent():
            tracker.end()
        case events.ScalarEvent():
            tracker.scalar(event.value, position)
        case events.AliasEvent():
            tracker.scalar(event.anchor or "", position)


# --- Trees -------------------------------------------------------------------------------------------------------

_NO_KEY: Final = object()
_MERGE: Final = object()


class _Collection:
    """A list or mapping that is being read."""

    __slots__ = ("anchor", "key", "merged", "repeated", "size_before", "value")

    def __init__(self, value: list[Any] | dict[str, Any], anchor: str | None, size_before: int) -> None:
        self.value = value
        self.anchor = anchor
        self.size_before = size_before
        self.key: Any = _NO_KEY
        self.repeated: list[str] = []
        self.merged: list[dict[str, Any]] = []


class _Builder:
    """Builds the tree of one document from its events."""

    __slots__ = ("aliased_size", "anchors", "open", "size")

    def __init__(self) -> None:
        self.open: list[_Collection] = []
        # What an anchor names, and how much an alias of it adds.
        self.anchors: dict[str, tuple[Any, int]] = {}
        self.size = 0
        self.aliased_size = 0

    def build(self, parser: Any) -> Any:
        root: Any = None
        while True:
            event = parser.get_event()
            kind = type(event)
            if kind is events.ScalarEvent:
                value = _scalar(event)
                self.size += 1 + len(event.value)
                if event.anchor:
                    self.anchors[event.anchor] = (value, 1 + len(event.value))
            elif kind is events.MappingStartEvent or kind is events.SequenceStartEvent:
                self._begin(event)
                continue
            elif kind is events.MappingEndEvent or kind is events.SequenceEndEvent:
                value = self._end()
            elif kind is events.AliasEvent:
                value = self._alias(event)
            else:
                return root
            if self.open:
                self._place(value, event)
            else:
                root = value

    def _begin(self, event: Any) -> None:
        if len(self.open) == DEPTH_MAX:
            _refuse(event, f"nested more than {DEPTH_MAX} levels deep")
        is_mapping = type(event) is events.MappingStartEvent
        wanted = "tag:yaml.org,2002:map" if is_mapping else "tag:yaml.org,2002:seq"
        if event.tag not in (None, "!", wanted):
            _refuse(event, f"the tag {event.tag} has no meaning here")
        self.size += 1
        self.open.append(_Collection({} if is_mapping else [], event.anchor, self.size))

    def _end(self) -> Any:
        done = self.open.pop()
        value = done.value
        if isinstance(value, dict):
            for merged in done.merged:
                value |= {name: member for name, member in merged.items() if name not in value}
            if done.repeated:
                value = RepeatedKeys(value, tuple(dict.fromkeys(done.repeated)))
        if done.anchor:
            self.anchors[done.anchor] = (value, self.size - done.size_before + 1)
        return value

    def _alias(self, event: Any) -> Any:
        if event.anchor not in self.anchors:
            _refuse(event, f"the alias *{event.anchor} refers to nothing that is complete before it")
        value, size = self.anchors[event.anchor]
        self.size += size
        self.aliased_size += size
        if self.aliased_size > ALIASED_SIZE_MAX:
            _refuse(event, "aliases stand for too much: write less, or write it out")
        return value

    def _place(self, value: Any, event: Any) -> None:
        top = self.open[-1]
        container = top.value
        if isinstance(container, list):
            container.append(value)
        elif top.key is _NO_KEY:
            top.key = value if type(value) is str and value != "<<" else _key(value, event)
            if top.key in container:
                top.repeated.append(top.key)
        else:
            if top.key is _MERGE:
                top.merged.extend(_merged(value, event))
            else:
                container[top.key] = value
            top.key = _NO_KEY


def _key(value: Any, event: Any) -> Any:
    """The text that a JSON object can have as the name of a member."""
    if value == "<<":
        is_plain = isinstance(event, events.ScalarEvent) and event.implicit[0]
        return _MERGE if is_plain else value
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, int | float):
        _refuse(event, "the name of an entry must be text")
    return str(value)


def _merged(value: Any, event: Any) -> list[dict[str, Any]]:
    sources = value if isinstance(value, list) else [value]
    if not all(isinstance(source, dict) for source in sources):
        _refuse(event, "<< merges mappings, and this is none")
    return sources


# --- Scalars -----------------------------------------------------------------------------------------------------

_WORDS: Final[dict[str, Any]] = {
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), math.inf),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), -math.inf),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
}
_INTEGER: Final = re.compile(r"[-+]?(?:0[xX][0-9a-fA-F]+|0[bB][01]+|0[oO]?[0-7]+|0|[1-9][0-9]*)", re.ASCII)
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", re.ASCII)
_TAG_PREFIX: Final = "tag:yaml.org,2002:"


def _scalar(event: Any) -> Any:
    if event.tag is not None:
        return _tagged(event)
    value = resolve_plain(event.value) if event.implicit[0] else event.value
    if type(value) is float and not math.isfinite(value):
        _refuse(event, f"{event.value[:40]} is not a number that an object can hold")
    return value


def _tagged(event: Any) -> Any:
    name = event.tag.removeprefix(_TAG_PREFIX)
    if name in ("!", "str"):
        return event.value
    wanted = {"int": int, "float": float, "bool": bool, "null": type(None)}.get(name)
    value = resolve_plain(event.value)
    if wanted is float and type(value) is int:
        value = float(value)
    if wanted is None or type(value) is not wanted:
        _refuse(event, f"the tag {event.tag} has no meaning for {event.value[:40]!r}")
    return value


# Manifests repeat the same words; the bound keeps a hostile text from growing the cache.
@lru_cache(maxsize=4096)
def resolve_plain(text: str) -> Any:
    """What a scalar without quotes means."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in "0123456789+-.":
        return text
    digits = text.replace("_", "")
    if _INTEGER.fullmatch(digits) and len(digits) < 70:
        number = _integer(digits)
        return number if -(2**63) <= number < 2**64 else float(number)
    return _float(digits) if _FLOAT.fullmatch(digits) else text


def _integer(digits: str) -> int:
    """A number in any of the bases that YAML 1.1 has; a leading zero means octal."""
    magnitude = digits.lstrip("+-")
    is_plain_octal = magnitude[0] == "0" and magnitude[1:].isdecimal()
    number = int(magnitude, 8 if is_plain_octal else 0)
    return -number if digits[0] == "-" else number


def _float(digits: str) -> int | float:
    """Kubernetes prints a whole number without a fraction, so that `1e3` can be a count."""
    number = float(digits)
    return int(number) if abs(number) < 1e21 and number.is_integer() else number


# --- Faults ------------------------------------------------------------------------------------------------------

# YAML allows no other control characters, and JSON no lone surrogates.
_FORBIDDEN: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")


def _checked(text: str) -> str:
    found = _FORBIDDEN.search(text)
    if found:
        line = text.count("\n", 0, found.start()) + 1
        column = found.start() - text.rfind("\n", 0, found.start())
        raise SourceError(Position(line, column), f"the character U+{ord(found[0]):04X} is not allowed in a manifest")
    return text


def _refuse(event: Any, message: str) -> NoReturn:
    raise SourceError(_position(event.start_mark), message)


def _position(mark: Any) -> Position:
    return Position(mark.line + 1, mark.column + 1)


def _source_error(text: str, error: yaml.YAMLError) -> SourceError:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    said = " ".join(str(part) for part in (getattr(error, "context", None), getattr(error, "problem", None)) if part)
    position = _position(mark) if mark else Position(text.count("\n") + 1, 1)
    return SourceError(position, f"not YAML: {said or error}")
