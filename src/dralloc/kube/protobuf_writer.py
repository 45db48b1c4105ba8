"""Writes Kubernetes' protobuf encoding: what Go components ask for.

Fields that a message does not have are left out, as an older server would not know them.
"""

from __future__ import annotations

import struct
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Any, Final

from dralloc.kube.codec import encode
from dralloc.kube.protobuf_reader import read_envelope, wire_members
from dralloc.kube.protobuf_schema import MAGIC, SCALARS, Document, MessageField, message_name, messages
from dralloc.kube.timestamps import parse_timestamp

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_VARINT, _FIXED64, _BYTES = 0, 1, 2
_FIXED_SIZES: Final = {_FIXED64: 8, 5: 4}


class UnencodableValue(ValueError):
    """A value that its field cannot have: not every field of every kind is validated."""


def has_message(api_version: str, kind: str) -> bool:
    """True if objects of the kind can be written."""
    return message_name(api_version, kind) is not None


def to_protobuf(document: Document) -> bytes:
    """The object in its envelope, which names its type. Raises `UnencodableValue`."""
    api_version, kind = document["apiVersion"], document["kind"]
    return in_envelope(api_version, kind, content_of(api_version, kind, document))


def in_envelope(api_version: str, kind: str, content: bytes) -> bytes:
    """The content of an object after its type."""
    type_ = _field(1, api_version.encode()) + _field(2, kind.encode())
    return MAGIC + _field(1, type_) + _field(2, content)


def content_of(api_version: str, kind: str, members: Document) -> bytes:
    """These members of an object. Contents of the same object can be joined. Raises `UnencodableValue`."""
    name = message_name(api_version, kind)
    assert name is not None, f"{kind} of {api_version} has no message"
    try:
        return _write_message(name, members)
    except (ValueError, TypeError, AttributeError) as error:
        raise UnencodableValue(f"{kind} of {api_version}: {error}") from None


def watch_frame(type_: str, document: Document) -> bytes:
    """An event of a watch: its length, then the message."""
    event = _field(1, type_.encode()) + _field(2, _field(1, to_protobuf(document)))
    return len(event).to_bytes(4, "big") + event


# --- Messages -----------------------------------------------------------------------------------------------------------

# The number of a field, how it is written, and the number of the inlined message that it belongs to.
_Writer = tuple[int, MessageField, int | None]


@cache
def _writers(name: str) -> Mapping[str, _Writer]:
    """The fields of the message by their names in JSON."""
    found: dict[str, _Writer] = {}
    for number, field in messages()[name].items():
        if field.is_inlined:
            found.update(dict.fromkeys(_writers(field.type), (number, field, number)))
        else:
            found[field.name] = (number, field, None)
    return found


def _write_message(name: str, document: Mapping[str, Any]) -> bytes:
    writers = _writers(name)
    written: list[bytes] = []
    inlined: dict[int, Document] = {}
    for key, value in document.items():
        writer = writers.get(key)
        if writer is None or value is None:
            continue
        number, field, inside = writer
        if inside is not None:
            inlined.setdefault(inside, {})[key] = value
        else:
            written += write_field(number, field, value)
    for number, part in inlined.items():
        written.append(_field(number, _write_message(messages()[name][number].type, part)))
    return b"".join(written)


def write_field(number: int, field: MessageField, value: Any) -> Iterator[bytes]:
    """Every occurrence of the field with this value."""
    if field.is_map:
        for key, item in value.items():
            yield _field(number, _field(1, str(key).encode()) + _write_value(2, field.type, item))
    elif field.is_list:
        for item in value:
            yield _write_value(number, field.type, item)
    else:
        yield _write_value(number, field.type, value)


def _write_value(number: int, type_: str, value: Any) -> bytes:
    if (write := _PLAIN.get(type_)) is not None:
        return write(number, value)
    content = _CONTENTS.get(type_)
    return _field(number, content(value) if content is not None else _write_message(type_, value or {}))


# --- Scalars ------------------------------------------------------------------------------------------------------------


def _number(number: int, value: int) -> bytes:
    return _varint(number << 3 | _VARINT) + _varint(int(value) & 0xFFFF_FFFF_FFFF_FFFF)


def _time(value: str) -> bytes:
    since = parse_timestamp(value) - _EPOCH
    return _number(1, since.days * 86400 + since.seconds) + _number(2, since.microseconds * 1000)


def _int_or_string(value: int | str) -> bytes:
    return _number(1, 0) + _number(2, value) if isinstance(value, int) else _number(1, 1) + _field(3, value.encode())


_PLAIN: Final[Mapping[str, Callable[[int, Any], bytes]]] = {
    "int": _number,
    "uint": _number,
    "bool": _number,
    "double": lambda number, value: _varint(number << 3 | _FIXED64) + struct.pack("<d", value),
}
_CONTENTS: Final[Mapping[str, Callable[[Any], bytes]]] = {
    "string": lambda value: str(value).encode(),
    "bytes": b64decode,
    "time": _time,
    "microtime": _time,
    "quantity": lambda value: _field(1, str(value).encode()),
    "int-or-string": _int_or_string,
    "json": lambda value: _field(1, encode(value)),
    "strings": lambda values: b"".join(_field(1, value.encode()) for value in values),
}


# --- The wire -----------------------------------------------------------------------------------------------------------


def wire_field(number: int, wire_type: int, value: int | bytes) -> bytes:
    """A field as it was read: its number, wire type and value."""
    if isinstance(value, bytes):
        return _field(number, value)
    tag = _varint(number << 3 | wire_type)
    return tag + (_varint(value) if wire_type == _VARINT else value.to_bytes(_FIXED_SIZES[wire_type], "little"))


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | _BYTES) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    if value < 0x80:
        return bytes((value,))
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


# --- Protobuf merge -------------------------------------------------------------------------------------------------
# Merge patches of objects in protobuf: what the patch does not name keeps its bytes, also fields that we do not
# know.


def merge_protobuf(body: bytes, patch: Document) -> bytes:
    """The object with the members of the patch; a member that is None is removed, an object is merged."""
    api_version, kind, _ = read_envelope(body)
    name = message_name(api_version, kind)
    assert name is not None, f"{kind} of {api_version} has no message"
    return MAGIC + b"".join(
        wire_field(
            number, wire_type, _merged(name, value, patch) if number == 2 and isinstance(value, bytes) else value
        )
        for number, wire_type, value in wire_members(body[len(MAGIC) :])
    )


def _merged(name: str, content: bytes, patch: Mapping[str, Any]) -> bytes:
    fields = {field.name: (number, field) for number, field in messages()[name].items()}
    changed = dict(fields[member] for member in patch)
    kept: list[bytes] = []
    before: dict[int, bytes] = {}
    for number, wire_type, value in wire_members(content):
        field = changed.get(number)
        if field is None:
            kept.append(wire_field(number, wire_type, value))
        elif _is_object(field) and isinstance(value, bytes):
            before[number] = value
    for number, field in changed.items():
        wanted = patch[field.name]
        if wanted is None:
            continue
        if _is_object(field):
            merged = _merged(field.type, before.get(number, b""), wanted)
            kept.append(wire_field(number, 2, merged))
        else:
            kept += write_field(number, field, wanted)
    return b"".join(kept)


def _is_object(field: MessageField) -> bool:
    return field.type not in SCALARS and not field.is_list and not field.is_map
