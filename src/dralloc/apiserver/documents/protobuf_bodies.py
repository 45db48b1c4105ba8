"""Converts bodies in Kubernetes' protobuf encoding to JSON.

Clients built on client-go 1.32 or later send built-in kinds in protobuf and accept JSON in return, so it is read and never
written. `protobuf_messages.txt` lists the fields of each message. An unknown field number is refused, because its value would be
lost.
"""

from __future__ import annotations

import struct
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib import resources
from typing import Any, Final

import msgspec

from dralloc.api.codec import encode
from dralloc.apiserver.documents.json_documents import Document
from dralloc.primitives.errors import BadRequest

PROTOBUF: Final = "application/vnd.kubernetes.protobuf"

_MAGIC: Final = b"k8s\x00"
_GROUPS: Final = {
    "": "core",
    "authentication.k8s.io": "authentication",
    "authorization.k8s.io": "authorization",
    "rbac.authorization.k8s.io": "rbac",
    "resource.k8s.io": "resource",
    "coordination.k8s.io": "coordination",
    "scheduling.k8s.io": "scheduling",
}

_BYTES: Final = 2


def protobuf_to_json(body: bytes) -> bytes:
    """The JSON of the object that the body holds."""
    if not body.startswith(_MAGIC):
        raise BadRequest("the body does not start with the prefix of Kubernetes' protobuf encoding")
    envelope = {number: value for number, _, value in _members(body[len(_MAGIC) :])}
    type_ = {number: _text(value) for number, _, value in _members(_bytes(envelope.get(1, b"")))}
    api_version, kind = type_.get(1, ""), type_.get(2, "")
    document = _read_message(_message_name(api_version, kind), _bytes(envelope.get(2, b"")))
    return encode({"apiVersion": api_version, "kind": kind, **document})


def _message_name(api_version: str, kind: str) -> str:
    group, _, version = api_version.rpartition("/")
    name = "meta.v1.DeleteOptions" if kind == "DeleteOptions" else f"{_GROUPS.get(group, group)}.{version}.{kind}"
    if name not in _messages():
        raise BadRequest(f"{kind} of {api_version} is not supported in protobuf; send it as JSON")
    return name


# --- messages -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    type: str
    is_list: bool = False
    is_map: bool = False
    # Its fields are inlined into the containing message.
    is_inlined: bool = False


@cache
def _messages() -> Mapping[str, Mapping[int, _Field]]:
    """Every message by its full name. No message contains itself, which bounds the recursion."""
    text = resources.files("dralloc.apiserver.documents").joinpath("protobuf_messages.txt").read_text()
    messages: dict[str, dict[int, _Field]] = {}
    package = ""
    for line in text.splitlines():
        if line.startswith("["):
            package = line.strip("[]")
        elif line and not line.startswith("#"):
            name, _, members = line.partition(":")
            messages[f"{package}.{name}"] = dict(
                _parse_member(member, package) for member in members.split(", ") if member.strip()
            )
    return messages


def _parse_member(text: str, package: str) -> tuple[int, _Field]:
    number, name, type_ = text.split()
    plain = type_.lstrip("*%")
    full = plain if plain in _SCALARS or "." in plain else f"{package}.{plain}"
    field = _Field(
        name.lstrip("^"), full, type_.startswith("*"), type_.startswith("%"), is_inlined=name.startswith("^")
    )
    return int(number), field


def _read_message(name: str, content: bytes) -> Document:
    fields = _messages()[name]
    document: Document = {}
    for number, wire_type, raw in _members(content):
        field = fields.get(number)
        if field is None:
            raise BadRequest(f"field {number} of {name} is not supported in protobuf; send the object as JSON")
        if field.is_map:
            key, value = _read_entry(field.type, _bytes(raw))
            document.setdefault(field.name, {})[key] = value
        elif field.is_list:
            document.setdefault(field.name, []).extend(_read_items(field.type, wire_type, raw))
        elif field.is_inlined:
            document.update(_read_message(field.type, _bytes(raw)))
        else:
            value = _read_value(field.type, raw)
            # Go clients send unset strings as empty ones. Only the resource group has fields in which an empty string matters.
            if value is not None and (value != "" or name.startswith("resource.")):
                document[field.name] = value
    return document


def _read_entry(type_: str, content: bytes) -> tuple[str, Any]:
    members = {number: value for number, _, value in _members(content)}
    empty: Any = b"" if type_ not in _NUMBERS else 0
    return _text(members.get(1, b"")), _read_value(type_, members.get(2, empty))


def _read_items(type_: str, wire_type: int, raw: int | bytes) -> Iterator[Any]:
    if type_ in _NUMBERS and wire_type == _BYTES:
        content = _bytes(raw)
        place = 0
        while place < len(content):
            number, place = _varint(content, place)
            yield _read_value(type_, number)
    else:
        yield _read_value(type_, raw)


def _read_value(type_: str, raw: int | bytes) -> Any:
    reader = _SCALARS.get(type_)
    if reader is not None:
        return reader(raw)
    message = _read_message(type_, _bytes(raw))
    return message.get("-", message)


# --- scalars ------------------------------------------------------------------------------------------------


def _bytes(raw: int | bytes) -> bytes:
    if isinstance(raw, int):
        raise BadRequest("invalid protobuf body: a number instead of a string or message")
    return raw


def _text(raw: int | bytes) -> str:
    try:
        return _bytes(raw).decode()
    except UnicodeDecodeError:
        raise BadRequest("invalid protobuf body: a string is not UTF-8") from None


def _number(raw: int | bytes) -> int:
    if not isinstance(raw, int):
        raise BadRequest("invalid protobuf body: a string or message instead of a number")
    return raw


def _signed(raw: int | bytes) -> int:
    number = _number(raw)
    return number - (1 << 64) if number >= 1 << 63 else number


def _double(raw: int | bytes) -> float:
    value: float = struct.unpack("<d", _number(raw).to_bytes(8, "little"))[0]
    return value


def _time(raw: int | bytes, digits: str = "seconds") -> str | None:
    """The time of seconds and nanoseconds since 1970; `None` for an empty message."""
    members = {number: value for number, _, value in _members(_bytes(raw))}
    if not members:
        return None
    try:
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(
            seconds=_signed(members.get(1, 0)), microseconds=_signed(members.get(2, 0)) // 1000
        )
    except OverflowError:
        raise BadRequest("invalid protobuf body: a time is out of range") from None
    return moment.replace(tzinfo=None).isoformat(timespec=digits) + "Z"


def _quantity(raw: int | bytes) -> str:
    members = {number: value for number, _, value in _members(_bytes(raw))}
    return _text(members.get(1, b"0")) or "0"


def _int_or_string(raw: int | bytes) -> int | str:
    members = {number: value for number, _, value in _members(_bytes(raw))}
    return _text(members.get(3, b"")) if members.get(1) else _signed(members.get(2, 0))


def _json(raw: int | bytes) -> msgspec.Raw | None:
    members = {number: value for number, _, value in _members(_bytes(raw))}
    content = _bytes(members.get(1, b""))
    if not content:
        return None
    try:
        msgspec.json.format(content)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise BadRequest("invalid protobuf body: an embedded value is not JSON") from None
    return msgspec.Raw(content)


_SCALARS: Final[Mapping[str, Callable[[int | bytes], Any]]] = {
    "string": _text,
    "int": _signed,
    # A number whose zero value equals absence.
    "count": lambda raw: _signed(raw) or None,
    "uint": _number,
    "bool": lambda raw: bool(_number(raw)),
    "double": _double,
    "bytes": lambda raw: b64encode(_bytes(raw)).decode("ascii"),
    "time": _time,
    "microtime": lambda raw: _time(raw, "microseconds"),
    "quantity": _quantity,
    "int-or-string": _int_or_string,
    "json": _json,
}
_NUMBERS: Final = frozenset({"int", "count", "uint", "bool", "double"})


# --- the wire -----------------------------------------------------------------------------------------------


def _members(content: bytes) -> Iterator[tuple[int, int, int | bytes]]:
    """Number, wire type and value of every field, in order."""
    place = 0
    while place < len(content):
        tag, place = _varint(content, place)
        number, wire_type = tag >> 3, tag & 7
        match wire_type:
            case 0:
                value, place = _varint(content, place)
                yield number, wire_type, value
                continue
            case 2:
                length, place = _varint(content, place)
            case 1:
                length = 8
            case 5:
                length = 4
            case _:
                raise BadRequest("invalid protobuf body: unknown wire type")
        end = place + length
        if end > len(content):
            raise BadRequest("invalid protobuf body: truncated")
        piece = content[place:end]
        yield number, wire_type, piece if wire_type == _BYTES else int.from_bytes(piece, "little")
        place = end


def _varint(content: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while place < len(content) and shift < 70:
        byte = content[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, place
        shift += 7
    raise BadRequest("invalid protobuf body: truncated number")
