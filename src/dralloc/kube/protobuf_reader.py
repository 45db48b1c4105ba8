"""Reads Kubernetes' protobuf encoding: converts bodies to the JSON that the client could have sent.

A field that `protobuf_messages.txt` does not list is skipped, as by every reader of protobuf.
"""

from __future__ import annotations

import struct
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

from dralloc.kube.codec import encode
from dralloc.kube.protobuf_schema import MAGIC, NUMBERS, Document, message_name, messages
from dralloc.primitives.decoders import UNREADABLE
from dralloc.primitives.errors import BadRequest

_BYTES: Final = 2


def protobuf_to_json(body: bytes) -> bytes:
    """The JSON of the object that the body holds."""
    api_version, kind, content = read_envelope(body)
    name = message_name(api_version, kind)
    if name is None:
        raise BadRequest(f"{kind} of {api_version} is not supported in protobuf; send it as JSON")
    return encode({"apiVersion": api_version, "kind": kind, **_read_message(name, content)})


def read_envelope(body: bytes) -> tuple[str, str, bytes]:
    """The API version and kind of the object, and its message."""
    if not body.startswith(MAGIC):
        raise BadRequest("the body does not start with the prefix of Kubernetes' protobuf encoding")
    envelope = {number: value for number, _, value in wire_members(body[len(MAGIC) :])}
    type_ = {number: _text(value) for number, _, value in wire_members(_bytes(envelope.get(1, b"")))}
    return type_.get(1, ""), type_.get(2, ""), _bytes(envelope.get(2, b""))


def _read_message(name: str, content: bytes) -> Document:
    fields = messages()[name]
    document: Document = {}
    for number, wire_type, raw in wire_members(content):
        field = fields.get(number)
        if field is None:
            continue
        if field.is_map:
            key, value = _read_entry(field.type, _bytes(raw))
            document.setdefault(field.name, {})[key] = value
        elif field.is_list:
            document.setdefault(field.name, []).extend(_read_items(field.type, wire_type, raw))
        elif field.is_inlined:
            document.update(_read_message(field.type, _bytes(raw)))
        else:
            value = _read_value(field.type, raw)
            # Go clients send unset fields as empty ones.
            if value is not None and (value or not field.omits_empty):
                document[field.name] = value
    return document


def _read_entry(type_: str, content: bytes) -> tuple[str, Any]:
    members = {number: value for number, _, value in wire_members(content)}
    empty: Any = b"" if type_ not in NUMBERS else 0
    return _text(members.get(1, b"")), _read_value(type_, members.get(2, empty))


def _read_items(type_: str, wire_type: int, raw: int | bytes) -> Iterator[Any]:
    if type_ in NUMBERS and wire_type == _BYTES:
        content = _bytes(raw)
        place = 0
        while place < len(content):
            number, place = _varint(content, place)
            yield _read_value(type_, number)
    else:
        yield _read_value(type_, raw)


def _read_value(type_: str, raw: int | bytes) -> Any:
    reader = _SCALARS.get(type_)
    if reader is None:
        return _read_message(type_, _bytes(raw))
    return reader(raw)


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
    members = {number: value for number, _, value in wire_members(_bytes(raw))}
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
    members = {number: value for number, _, value in wire_members(_bytes(raw))}
    return _text(members.get(1, b"0")) or "0"


def _int_or_string(raw: int | bytes) -> int | str:
    members = {number: value for number, _, value in wire_members(_bytes(raw))}
    return _text(members.get(3, b"")) if members.get(1) else _signed(members.get(2, 0))


def _json(raw: int | bytes) -> msgspec.Raw | None:
    members = {number: value for number, _, value in wire_members(_bytes(raw))}
    content = _bytes(members.get(1, b""))
    if not content:
        return None
    try:
        msgspec.json.format(content)
    except UNREADABLE:
        raise BadRequest("invalid protobuf body: an embedded value is not JSON") from None
    return msgspec.Raw(content)


_SCALARS: Final[Mapping[str, Callable[[int | bytes], Any]]] = {
    "string": _text,
    "int": _signed,
    "uint": _number,
    "bool": lambda raw: bool(_number(raw)),
    "double": _double,
    "bytes": lambda raw: b64encode(_bytes(raw)).decode("ascii"),
    "time": _time,
    "microtime": lambda raw: _time(raw, "microseconds"),
    "quantity": _quantity,
    "int-or-string": _int_or_string,
    "json": _json,
    "strings": lambda raw: [_text(value) for _, _, value in wire_members(_bytes(raw))],
}


# --- the wire -----------------------------------------------------------------------------------------------


def wire_members(content: bytes) -> Iterator[tuple[int, int, int | bytes]]:
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
