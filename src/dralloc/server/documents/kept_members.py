"""Members of ours in objects that a client replaces without knowing them.

Clients of released Kubernetes read objects into types that lack our fields, and send them back without. What they cannot have meant to remove
is kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from functools import cache
from operator import is_
from typing import Any, Final

from dralloc.kube.codec import encode
from dralloc.kube.protobuf_schema import SCALARS, MessageField, message_name, messages
from dralloc.server.documents.json_documents import Document

# Numbers of fields that no released Kubernetes has.
OWN_NUMBERS: Final = 1001


def with_kept_members(sent: Document, stored: Document) -> Document:
    """The sent object with the members of ours that it lacks; the same object if it lacks none. Both have the type and version of the sent one."""
    name = message_name(stored["apiVersion"], stored["kind"])
    return sent if name is None else _merged(name, sent, stored)


def has_own_members(api_version: str, kind: str) -> bool:
    """True if objects of the kind can have members of ours."""
    name = message_name(api_version, kind)
    return name is not None and _may_have_own(name)


@cache
def _may_have_own(name: str) -> bool:
    return any(
        number >= OWN_NUMBERS or (field.type not in SCALARS and _may_have_own(field.type))
        for number, field in messages()[name].items()
    )


def _merged(name: str, sent: Document, stored: Document) -> Document:
    kept: Document = {}
    for number, field in messages()[name].items():
        before, now = stored.get(field.name), sent.get(field.name)
        if before is None:
            continue
        if number >= OWN_NUMBERS:
            if now is None:
                kept[field.name] = before
        elif now is not None and field.type not in SCALARS and _may_have_own(field.type):
            merged = _merged_value(field, now, before)
            if merged is not now:
                kept[field.name] = merged
    return {**sent, **kept} if kept else sent


def _merged_value(field: MessageField, now: Any, before: Any) -> Any:
    """The value with the members of ours; the same value if it lacks none, or if it is not of the field's type."""
    if field.is_list:
        if not isinstance(now, list):
            return now
        items = _merged_items(field.type, now, before)
        return now if all(map(is_, items, now)) else items
    if not isinstance(now, dict):
        return now
    if field.is_map:
        values = {
            key: _merged(field.type, value, before[key])
            if isinstance(value, dict) and isinstance(before.get(key), dict)
            else value
            for key, value in now.items()
        }
        return now if all(value is now[key] for key, value in values.items()) else values
    return _merged(field.type, now, before)


def _merged_items(name: str, now: list[Any], before: list[Document]) -> list[Any]:
    """Each item with the members of the first stored item that has the same simple values, such as its name."""
    unused: dict[bytes, deque[Document]] = {}
    for stored in before:
        unused.setdefault(_simple(name, stored), deque()).append(stored)
    return [
        _merged(name, item, found.popleft())
        if isinstance(item, dict) and (found := unused.get(_simple(name, item)))
        else item
        for item in now
    ]


def _simple(name: str, item: Mapping[str, Any]) -> bytes:
    fields = _simple_fields(name)
    values = sorted((key, value) for key, value in item.items() if key in fields and value not in (None, [], {}, ""))
    return encode(values)


@cache
def _simple_fields(name: str) -> frozenset[str]:
    return frozenset(
        field.name for number, field in messages()[name].items() if number < OWN_NUMBERS and field.type in SCALARS
    )
