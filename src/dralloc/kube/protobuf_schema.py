"""The messages of Kubernetes' protobuf encoding, from `protobuf_messages.txt`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from threading import RLock
from types import GenericAlias
from typing import Any, Final

import msgspec

from dralloc.kube.timestamps import TimestampText
from dralloc.kube.wire import Int64
from dralloc.primitives.quantity import Quantity

Document = dict[str, Any]

MAGIC: Final = b"k8s\x00"

SCALARS: Final = frozenset(
    [
        "string",
        "int",
        "uint",
        "bool",
        "double",
        "bytes",
        "time",
        "microtime",
        "quantity",
        "int-or-string",
        "json",
        "strings",
    ]
)
NUMBERS: Final = frozenset({"int", "uint", "bool", "double"})

# Groups whose package in Kubernetes has another name than the first part of the group.
_PACKAGES: Final = {"": "core", "rbac.authorization.k8s.io": "rbac"}
# Options and results that every group uses.
_META_KINDS: Final = frozenset({"DeleteOptions", "Status", "PartialObjectMetadata", "PartialObjectMetadataList"})


@dataclass(frozen=True, slots=True)
class MessageField:
    name: str
    # A scalar, or the full name of a message.
    type: str
    is_list: bool = False
    is_map: bool = False
    # Its fields are inlined into the containing message.
    is_inlined: bool = False
    # An empty value means absence.
    omits_empty: bool = False


@cache
def messages() -> Mapping[str, Mapping[int, MessageField]]:
    """Every message by its full name. No message contains itself, which bounds the recursion."""
    text = resources.files("dralloc.kube").joinpath("protobuf_messages.txt").read_text()
    found: dict[str, dict[int, MessageField]] = {}
    package = ""
    for line in text.splitlines():
        if line.startswith("["):
            package = line.strip("[]")
        elif line and not line.startswith("#"):
            name, _, members = line.partition(":")
            found[f"{package}.{name}"] = dict(
                _parse_member(member, package) for member in members.split(", ") if member.strip()
            )
    return found


def message_name(api_version: str, kind: str) -> str | None:
    """The message of a kind; `None` if it has none."""
    group, _, version = api_version.rpartition("/")
    package = _PACKAGES.get(group, group.partition(".")[0])
    name = f"meta.v1.{kind}" if kind in _META_KINDS else f"{package}.{version}.{kind}"
    return name if name in messages() else None


def _parse_member(text: str, package: str) -> tuple[int, MessageField]:
    number, name, type_ = text.split()
    plain = type_.strip("*%?")
    full = plain if plain in SCALARS or "." in plain else f"{package}.{plain}"
    return int(number), MessageField(
        name=name.lstrip("^"),
        type=full,
        is_list=type_.startswith("*"),
        is_map=type_.startswith("%"),
        is_inlined=name.startswith("^"),
        omits_empty=type_.endswith("?"),
    )


# --- Message types --------------------------------------------------------------------------------------------------
# The types of kinds that we model only in part: every field that Kubernetes has, with the type that it has there.
#
# The server decodes what it stores by these types and keeps the document itself, so that every object that it
# serves has the form that clients expect, also where no code of ours reads it. They are made from the table of
# Kubernetes' messages.


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
