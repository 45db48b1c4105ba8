"""Decodes JSON into typed objects, and encodes them.

The bytes of a request are decoded straight into the wire type of its version. As in Kubernetes, null equals absent,
unknown fields are ignored (`find_stray_fields` lists them), and a value of the wrong type rejects the whole object.
Opaque parameters are kept byte for byte.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache, lru_cache
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Raw, Struct, inspect

from dralloc.kube.json_reader import read_json
from dralloc.kube.nesting_limit import LEVELS_MAX, is_nested_too_deeply
from dralloc.kube.positions import SourceError
from dralloc.kube.schema import MismatchKind, SchemaMismatch, find_mismatches, find_unknown_fields, told
from dralloc.kube.timestamps import BadTimestamp, TimestampText, canonical_timestamp
from dralloc.kube.trees import ExactNumber
from dralloc.primitives.decoders import UNREADABLE, make_decoder
from dralloc.primitives.quantity import Quantity, QuantityError

T = TypeVar("T", bound=Struct)


class DecodeError(ValueError):
    """Bytes that are not an object of the expected type; `mismatches` lists all errors."""

    def __init__(self, mismatches: tuple[SchemaMismatch, ...]) -> None:
        super().__init__("; ".join(told(mismatches)))
        self.mismatches = mismatches


def decode(body: bytes, wire_type: type[T]) -> T:
    """Returns the object in the JSON."""
    if is_nested_too_deeply(body):
        raise DecodeError(
            (SchemaMismatch(MismatchKind.WRONG_TYPE, None, f"nested more than {LEVELS_MAX} levels deep"),)
        )
    try:
        if not body.isascii():
            # Raw values are not parsed, so their text is checked here.
            body.decode()
        decoded: T = _decoder(wire_type).decode(body)
    except msgspec.ValidationError as error:
        # Null decodes directly where a field allows it; everywhere else it equals absent.
        return _decode_without_nulls(body, wire_type, error)
    except UNREADABLE as error:
        raise DecodeError(_explain(body, wire_type, error)) from None
    return decoded


def decode_again(body: bytes, wire_type: type[T]) -> T:
    """Returns the object in JSON whose depth and text were checked before: it was decoded as another type, or this program encoded it."""
    try:
        decoded: T = _decoder(wire_type).decode(body)
    except UNREADABLE:
        # It may have nulls.
        return decode(body, wire_type)
    return decoded


def decode_tree(body: bytes) -> dict[str, Any]:
    """Returns the JSON object as plain values; raises `msgspec.MsgspecError`."""
    return _decoder(dict[str, Any]).decode(body)  # type: ignore[no-any-return]


def convert(members: Mapping[str, Any], wire_type: type[T]) -> T:
    """Returns the object with these members: decoded values, or parts that have their type already."""
    _decoder(wire_type)  # Reuses what the decoder learned about the type.
    return msgspec.convert(members, wire_type, dec_hook=_decode_custom)


def find_stray_fields(
    body: bytes, wire_type: type[Struct], tree: dict[str, Any] | None = None
) -> tuple[SchemaMismatch, ...]:
    """Returns fields that the type does not have and fields that occur twice, for a body that decodes; `tree` is what it decodes to."""
    with suppress(msgspec.MsgspecError):
        members = tree or decode_tree(body)
        # Go's programs print a line break after the object.
        if _AS_READ.encode(members) == body.rstrip():
            # A field that occurs twice would be printed once. Programs print JSON like this; people do not.
            return tuple(find_unknown_fields(members, wire_type))
    shown = read_json(body.decode())
    return tuple(
        mismatch for mismatch in find_mismatches(shown, wire_type) if mismatch.kind is not MismatchKind.WRONG_TYPE
    )


# --- Quantities, numbers and times --------------------------------------------------------------------------------------


def _decode_custom(wanted: type, value: Any) -> Quantity | TimestampText:
    if wanted is TimestampText:
        if not isinstance(value, str):
            raise BadTimestamp("a timestamp is text")
        return _decode_timestamp(value)
    assert wanted is Quantity, f"a type that no wire type has: {wanted}"
    if isinstance(value, str):
        return Quantity.parse(value.strip())
    if value is None:
        return Quantity.ZERO
    if isinstance(value, ExactNumber):
        return Quantity.parse(value.text)
    if isinstance(value, int) and not isinstance(value, bool):
        return Quantity.parse(value)
    raise QuantityError("a quantity is text or a number")


# Many objects have the times of one second, and each is read at every change.
@lru_cache(maxsize=1024)
def _decode_timestamp(value: str) -> TimestampText:
    return TimestampText(canonical_timestamp(value))


def _encode_custom(value: Any) -> str | Raw:
    if isinstance(value, ExactNumber):
        return Raw(value.text.encode())
    assert isinstance(value, Quantity), f"not a part of an API object: {type(value).__name__}"
    return value.exact_text


_AS_READ: Final = msgspec.json.Encoder(enc_hook=_encode_custom)

# Returns JSON as Kubernetes prints it: fields in the order of their type, map keys sorted. No function around it: it runs often.
encode: Final[Callable[[object], bytes]] = msgspec.json.Encoder(enc_hook=_encode_custom, order="deterministic").encode


@cache
def _decoder(wire_type: Any) -> msgspec.json.Decoder[Any]:
    return make_decoder(wire_type, dec_hook=_decode_custom, float_hook=ExactNumber)


_type_info: Final = cache(inspect.type_info)


# --- Null --------------------------------------------------------------------------------------------------------

_MEMBERS: Final = msgspec.json.Decoder(dict[str, Raw])
_ITEMS: Final = msgspec.json.Decoder(list[Raw])


def _decode_without_nulls(body: bytes, wire_type: type[T], error: Exception) -> T:
    """Returns the object if nulls were the only reason that it did not decode."""
    if b"null" not in body:
        raise DecodeError(_explain(body, wire_type, error)) from None
    try:
        decoded: T = _decoder(wire_type).decode(_without_nulls(body, _type_info(wire_type)))
    except UNREADABLE as fault:
        raise DecodeError(_explain(body, wire_type, fault)) from None
    return decoded


def _without_nulls(body: bytes, info: inspect.Type) -> bytes:
    """Returns the JSON without members that are null, and with an empty value for items that are null."""
    if b"null" not in body:
        return body
    match info:
        case inspect.StructType():
            fields = {field.encode_name: field.type for field in info.fields}
            members = {name: bytes(value) for name, value in _MEMBERS.decode(body).items() if name in fields}
            return _object(
                {name: _without_nulls(value, fields[name]) for name, value in members.items() if value != b"null"}
            )
        case inspect.DictType():
            return _object(
                {name: _filled(bytes(value), info.value_type) for name, value in _MEMBERS.decode(body).items()}
            )
        case inspect.VarTupleType() | inspect.ListType():
            return msgspec.json.encode([Raw(_filled(bytes(item), info.item_type)) for item in _ITEMS.decode(body)])
        case inspect.UnionType():
            return _without_nulls(body, _set_member(info))
        case _:
            return body


def _object(members: dict[str, bytes]) -> bytes:
    return msgspec.json.encode({name: Raw(value) for name, value in members.items()})


def _filled(body: bytes, info: inspect.Type) -> bytes:
    return _empty(info) if body == b"null" else _without_nulls(body, info)


def _empty(info: inspect.Type) -> bytes:
    """The zero value that Go puts into a list or map in place of null."""
    match info:
        case inspect.StructType() | inspect.DictType():
            return b"{}"
        case inspect.VarTupleType() | inspect.ListType():
            return b"[]"
        case inspect.StrType() | inspect.BytesType():
            return b'""'
        case inspect.CustomType() if info.cls is TimestampText:
            return b'"0001-01-01T00:00:00Z"'
        case inspect.IntType() | inspect.FloatType() | inspect.CustomType():
            return b"0"
        case inspect.BoolType():
            return b"false"
        case _:
            return b"null"


def fill_nulls(tree: Any, wire_type: type[Struct]) -> Any:
    """Returns the tree with empty values in place of nulls in lists and maps, as far as the type says what they are."""
    return _fill(tree, _type_info(wire_type))


def _fill(tree: Any, info: inspect.Type) -> Any:
    match info:
        case inspect.StructType() if isinstance(tree, dict):
            types = {field.encode_name: field.type for field in info.fields}
            return {name: _fill(value, types[name]) if name in types else value for name, value in tree.items()}
        case inspect.DictType() if isinstance(tree, dict):
            return {name: _fill_item(value, info.value_type) for name, value in tree.items()}
        case inspect.VarTupleType() | inspect.ListType() if isinstance(tree, list):
            return [_fill_item(item, info.item_type) for item in tree]
        case inspect.UnionType():
            return _fill(tree, _set_member(info))
        case _:
            return tree


def _fill_item(item: Any, info: inspect.Type) -> Any:
    return msgspec.json.decode(_empty(info)) if item is None else _fill(item, info)


def _set_member(union: inspect.UnionType) -> inspect.Type:
    return next(member for member in union.types if not isinstance(member, inspect.NoneType))


# --- Faults ------------------------------------------------------------------------------------------------------


def _explain(body: bytes, wire_type: type[Struct], error: Exception) -> tuple[SchemaMismatch, ...]:
    """Returns all values of the wrong type; the decoder reports only the first."""
    try:
        tree = read_json(body.decode())
    except SourceError as fault:
        place = f"line {fault.position.line}, column {fault.position.column}"
        return (SchemaMismatch(MismatchKind.WRONG_TYPE, None, f"{fault} ({place})"),)
    except UnicodeDecodeError as fault:
        return (SchemaMismatch(MismatchKind.WRONG_TYPE, None, f"not UTF-8 text: bad byte at offset {fault.start}"),)
    mismatches = tuple(
        mismatch for mismatch in find_mismatches(tree, wire_type) if mismatch.kind is MismatchKind.WRONG_TYPE
    )
    return mismatches or (SchemaMismatch(MismatchKind.WRONG_TYPE, None, str(error)),)
