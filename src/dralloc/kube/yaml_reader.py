"""Parses YAML into plain trees, the way Kubernetes' tools do.

PyYAML parses, and its events are turned into trees here, because its own loaders resolve scalars differently, drop repeated keys, recurse,
and take three times as long. Depth and aliases are bounded, so that a small text cannot exhaust the memory.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any, Final, NoReturn

import yaml
from yaml import events

from dralloc.kube.nesting_limit import LEVELS_MAX
from dralloc.kube.positions import Position, PositionTracker, SourceError, Steps, position_of
from dralloc.kube.trees import RepeatedKeys, repeated_names
from dralloc.kube.yaml_scalars import resolve_plain

# What all aliases of a document stand for, as characters of JSON: as much as etcd stores of an object.
ALIASED_SIZE_MAX: Final = 3 << 19
# The least that a value takes in JSON, such as `1,`.
VALUE_SIZE_MIN: Final = 2

Parser: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_yaml_stream(text: str) -> Iterator[Any]:
    """Yields the tree of every document, `None` for an empty one."""
    parser = Parser(_checked(text))
    try:
        while True:
            event = parser.get_event()
            if isinstance(event, events.DocumentStartEvent):
                yield _build(parser)
            elif isinstance(event, events.StreamEndEvent):
                return
    except yaml.YAMLError as error:
        raise _source_error(text, error) from None
    finally:
        parser.dispose()


def locate_yaml(text: str, wanted: frozenset[int]) -> dict[int, dict[Steps, Position]]:
    """Returns the positions in the wanted documents. They were parsed before, so they are valid YAML."""
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

_MAP_TAGS: Final = (None, "!", "tag:yaml.org,2002:map")
_LIST_TAGS: Final = (None, "!", "tag:yaml.org,2002:seq")


class _MergeName:
    """The name `<<`, unless it is quoted."""

    def __str__(self) -> str:
        return "<<"


_MERGE: Final = _MergeName()


def _build(parser: Any) -> Any:
    """Builds the tree of the next document. This is the hot path, so it is one loop."""
    get_event = parser.get_event
    # Contents of the innermost open collection, names and values of a mapping in turn.
    items: list[Any] = []
    # For every open collection: the contents of its parent, its first event, and the size of everything before it.
    around: list[tuple[list[Any], Any, int]] = []
    anchors = _Anchors()
    size = 0
    while True:
        event = get_event()
        kind = type(event)
        if kind is events.ScalarEvent:
            value = event.value
            size += VALUE_SIZE_MIN + len(value)
            if event.tag is not None:
                value = _tagged(event)
            elif event.implicit[0]:
                value = resolve_plain(value)
                if value == "<<" and around and type(around[-1][1]) is events.MappingStartEvent and not len(items) % 2:
                    value = _MERGE
                if type(value) is float and not math.isfinite(value):
                    _refuse(event, f"{event.value[:40]} is not a number that JSON allows")
            if event.anchor:
                anchors.define(event.anchor, value, VALUE_SIZE_MIN + len(event.value))
            items.append(value)
        elif kind is events.MappingStartEvent or kind is events.SequenceStartEvent:
            if len(around) == LEVELS_MAX:
                _refuse(event, f"nested more than {LEVELS_MAX} levels deep")
            if event.tag not in (_MAP_TAGS if kind is events.MappingStartEvent else _LIST_TAGS):
                _refuse(event, f"the tag {event.tag} is not supported here")
            around.append((items, event, size))
            items = []
        elif kind is events.MappingEndEvent or kind is events.SequenceEndEvent:
            outer, start, size_before = around.pop()
            value = _mapping(items, start) if kind is events.MappingEndEvent else items
            size += VALUE_SIZE_MIN
            if start.anchor:
                anchors.define(start.anchor, value, size - size_before)
            outer.append(value)
            items = outer
        elif kind is events.AliasEvent:
            value, aliased_size = anchors.take(event)
            size += aliased_size
            items.append(value)
        else:
            return items[0] if items else None


def _mapping(items: list[Any], start: Any) -> dict[str, Any]:
    names = items[::2]
    sources = []
    if not all(type(name) is str for name in names):
        sources = [value for name, value in zip(names, items[1::2], strict=True) if name is _MERGE]
        names = [name if name is _MERGE else _name(name, start) for name in names]
    members = dict(zip(names, items[1::2], strict=True))
    repeated = repeated_names(map(str, names)) if len(members) < len(names) else ()
    if sources:
        del members[_MERGE]
        members = _merged(sources[-1], start) | members
    return RepeatedKeys(members, repeated) if repeated else members


def _name(value: Any, start: Any) -> str:
    """Returns the key as a JSON member name."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str | int | float):
        _refuse(start, "a key of this mapping is not a string")
    return str(value)


def _merged(value: Any, start: Any) -> dict[str, Any]:
    """Returns the members that `<<` adds; the first of several mappings wins."""
    merged: dict[str, Any] = {}
    for source in value if isinstance(value, list) else [value]:
        if not isinstance(source, dict):
            _refuse(start, "<< in this mapping must refer to a mapping")
        merged = source | merged
    return merged


class _Anchors:
    """The values of anchors, and a bound on the total expansion of aliases."""

    def __init__(self) -> None:
        self._defined: dict[str, tuple[Any, int]] = {}
        self._taken_size = 0

    def define(self, name: str, value: Any, size: int) -> None:
        self._defined[name] = (value, size)

    def take(self, event: Any) -> tuple[Any, int]:
        if event.anchor not in self._defined:
            _refuse(event, f"the alias *{event.anchor} refers to an anchor that is not complete before it")
        value, size = self._defined[event.anchor]
        self._taken_size += size
        if self._taken_size > ALIASED_SIZE_MAX:
            _refuse(event, "aliases expand to too much data")
        return value, size


# --- Scalars -----------------------------------------------------------------------------------------------------

_TAG_PREFIX: Final = "tag:yaml.org,2002:"


def _tagged(event: Any) -> Any:
    name = event.tag.removeprefix(_TAG_PREFIX)
    if name in ("!", "str"):
        return event.value
    wanted = {"int": int, "float": float, "bool": bool, "null": type(None)}.get(name)
    value = resolve_plain(event.value)
    if wanted is float and type(value) is int:
        value = float(value)
    if wanted is None or type(value) is not wanted:
        _refuse(event, f"the tag {event.tag} is not supported for {event.value[:40]!r}")
    return value


# --- Faults ------------------------------------------------------------------------------------------------------

# YAML allows no other control characters, and JSON no lone surrogates.
_FORBIDDEN: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\ufffe\uffff]")


def _checked(text: str) -> str:
    found = _FORBIDDEN.search(text)
    if found:
        position = position_of(text, found.start())
        raise SourceError(position, f"the character U+{ord(found[0]):04X} is not allowed in a manifest")
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
