"""Decodes large JSON piece by piece.

The decoder keeps Python's lock until it is done, for 40 to 80 ms with a body of 3 MB, and requests of other clients wait for it. A large
value is therefore split into its members or items first, which is fast because they are skipped, and these are decoded one by one. Each level
is read once more, in some milliseconds, and not copied.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final, Union

import msgspec
from msgspec import Raw, Struct

# A piece of this size takes less than 2 ms.
PIECE_BYTES: Final = 64 * 1024

DecoderOf = Callable[[Any], msgspec.json.Decoder[Any]]

_CONTAINERS: Final = {b"{": dict, b"[": list}
_MEMBERS: Final = msgspec.json.Decoder(dict[str, Raw])
_ITEMS: Final = msgspec.json.Decoder(list[Raw])


def decode_large(body: bytes | Raw, wanted: Any, decoder_of: DecoderOf) -> Any:
    """Returns what the decoder of the type returns for the JSON, which is not nested too deeply; raises what it raises."""
    kind, item = _shape_of(wanted) if len(body) > PIECE_BYTES else (None, None)
    if kind is Any:
        kind = _CONTAINERS.get(bytes(memoryview(body)[:1]))
    if kind is None:
        # Copied, because raw values in the result would keep all of the body.
        return decoder_of(wanted).decode(bytes(body))
    if kind is dict:
        return {name: decode_large(value, item, decoder_of) for name, value in _MEMBERS.decode(body).items()}
    if kind is list or kind is tuple:
        return kind(decode_large(each, item, decoder_of) for each in _ITEMS.decode(body))
    sent = _MEMBERS.decode(body)
    members = {
        name: decode_large(sent[encoded], field_type, decoder_of)
        for encoded, (name, field_type) in _fields_of(kind).items()
        if encoded in sent
    }
    return kind(**members)


@cache
def _shape_of(wanted: Any) -> tuple[Any, Any]:
    """How a value is split: as the members of a struct, or of a map or list with one type of items; `None` if it is not."""
    if typing.get_origin(wanted) in (Union, types.UnionType):
        others = [each for each in typing.get_args(wanted) if each is not type(None)]
        return _shape_of(others[0]) if len(others) == 1 else (None, None)
    if wanted is Any:
        return Any, Any
    if isinstance(wanted, type) and issubclass(wanted, Struct):
        return wanted, None
    arguments = typing.get_args(wanted)
    match typing.get_origin(wanted):
        case builtin if builtin is dict:
            return dict, arguments[1]
        case builtin if builtin is list or (builtin is tuple and arguments[1:] == (...,)):
            return builtin, arguments[0]
    return None, None


@cache
def _fields_of(struct: type[Struct]) -> Mapping[str, tuple[str, Any]]:
    return {field.encode_name: (field.name, field.type) for field in msgspec.structs.fields(struct)}
