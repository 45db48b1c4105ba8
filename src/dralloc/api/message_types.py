"""The types of kinds that we model only in part: every field that Kubernetes has, with the type that it has there.

The server decodes what it stores by these types and keeps the document itself, so that every object that it serves has the form
that clients expect, also where no code of ours reads it. They are made from the table of Kubernetes' messages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from threading import RLock
from types import GenericAlias
from typing import Any, Final

import msgspec

from dralloc.api.protobuf_schema import MessageField, message_name, messages
from dralloc.api.timestamps import TimestampText
from dralloc.api.wire import Int64
from dralloc.primitives.quantity import Quantity

_SCALARS: Final[Mapping[str, Any]] = {
    "string": str,
    "int": Int64,
    "uint": Int64,
    "bool": bool,
    "double": float,
    "bytes": bytes,
    "time": TimestampText,
    "microtime": TimestampText,
    "quantity": Quantity,
    "int-or-string": int | str,
    "json": Any,
    "strings": list[str],
}
# What every object has besides the fields of its message.
_HEAD: Final = (("apiVersion", str), ("kind", str))

_making: Final = RLock()


@cache
def message_type(api_version: str, kind: str) -> type[msgspec.Struct]:
    """The type of the kind's objects in this version. A test shows that every kind of the registry has one."""
    name = message_name(api_version, kind)
    assert name is not None, f"the table has no {kind} of {api_version}"
    with _making:
        return _struct(kind, [*_HEAD, *_fields(name)])


@cache
def _part(name: str) -> type[msgspec.Struct]:
    return _struct(name.rpartition(".")[2], _fields(name))


def _struct(name: str, fields: Iterator[tuple[str, Any]] | list[tuple[str, Any]]) -> type[msgspec.Struct]:
    """Attributes are numbered, because names of fields may be words of Python. Null equals absent."""
    attributes = [
        (f"field_{position}", wanted | None, msgspec.field(default=None, name=field))
        for position, (field, wanted) in enumerate(fields)
    ]
    return msgspec.defstruct(name, attributes, frozen=True, gc=False)


def _fields(message: str) -> Iterator[tuple[str, Any]]:
    for field in messages()[message].values():
        if field.is_inlined:
            yield from _fields(field.type)
        else:
            yield field.name, _type_of(field)


def _type_of(field: MessageField) -> Any:
    scalar = _SCALARS.get(field.type)
    one = _part(field.type) if scalar is None else scalar
    if field.is_list:
        return GenericAlias(list, (one,))
    return GenericAlias(dict, (str, one)) if field.is_map else one
