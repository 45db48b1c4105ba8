"""Merge patches of objects in protobuf: what the patch does not name keeps its bytes, also fields that we do not know."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dralloc.api.protobuf_reader import read_envelope, wire_members
from dralloc.api.protobuf_schema import MAGIC, SCALARS, Document, MessageField, message_name, messages
from dralloc.api.protobuf_writer import wire_field, write_field


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
