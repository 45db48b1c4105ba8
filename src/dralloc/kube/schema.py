"""Schema checks derived from the wire types: reports everything in a document that does not belong there.

msgspec decodes fast and stops at the first error; it ignores unknown fields, or stops at the first of them. Here a
plain tree (from JSON or YAML) is checked against the whole type, and every mismatch is reported with its path. That is
for errors and warnings; valid documents are decoded by `codec`.
"""

from __future__ import annotations

import difflib
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Any, Final

from msgspec import inspect

from dralloc.kube.timestamps import BadTimestamp, TimestampText, parse_timestamp
from dralloc.kube.trees import ExactNumber, RepeatedKeys
from dralloc.primitives.field_errors import FieldPath
from dralloc.primitives.quantity import Quantity, QuantityError


class MismatchKind(Enum):
    UNKNOWN_FIELD = "unknown field"
    DUPLICATE_FIELD = "duplicate field"
    WRONG_TYPE = "wrong type"


@dataclass(frozen=True, slots=True)
class SchemaMismatch:
    """A place where a document does not match the type of its kind."""

    kind: MismatchKind
    path: FieldPath | None
    message: str

    @property
    def steps(self) -> tuple[str | int, ...]:
        return self.path.steps if self.path else ()

    def __str__(self) -> str:
        """Returns the mismatch in the wording of Kubernetes' warnings, where it has one."""
        if self.kind is MismatchKind.WRONG_TYPE:
            return f"{self.path}: {self.message}" if self.path else self.message
        return f'{self.kind.value} "{_dotted(self.steps)}"'


# What a user is told of: Kubernetes lists as many unknown fields.
TOLD_MAX: Final = 100


def told(mismatches: Sequence[SchemaMismatch]) -> tuple[str, ...]:
    """The texts of the first ones, and how many more there are."""
    texts = tuple(map(str, mismatches[:TOLD_MAX]))
    return (*texts, f"and {len(mismatches) - TOLD_MAX} more") if len(mismatches) > TOLD_MAX else texts


def find_mismatches(tree: object, wire_type: type) -> list[SchemaMismatch]:
    """Returns unknown fields, repeated fields and values of the wrong type. Null equals absent.

    Types that are modelled in part list their other fields in `UNREAD`.
    """
    mismatches: list[SchemaMismatch] = []
    _checker_of(wire_type, False)(tree, None, mismatches)
    return mismatches


def find_unknown_fields(tree: object, wire_type: type) -> list[SchemaMismatch]:
    """Returns unknown fields of a tree that is known to decode as this type."""
    mismatches: list[SchemaMismatch] = []
    _checker_of(wire_type, True)(tree, None, mismatches)
    return mismatches


# --- Checkers: one function for every type, made once ----------------------------------------------------------

# The path of a value as a linked list, which costs nothing until a mismatch is found: (parent, step, is a map key).
_Path = tuple["_Path | None", str | int, bool]
_Checker = Callable[[Any, "_Path | None", list[SchemaMismatch]], None]


class _Known(dict[type, _Checker]):
    """The checkers that were made for the parts of a type."""

    def __init__(self, *, names_only: bool) -> None:
        super().__init__()
        self.names_only = names_only


@cache
def _checker_of(wire_type: type, names_only: bool) -> _Checker:
    return _make_checker(inspect.type_info(wire_type), _Known(names_only=names_only))


def _make_checker(info: inspect.Type, known: _Known) -> _Checker:
    if known.names_only and not _has_names(info):
        return _pass
    match info:
        case inspect.StructType():
            return known[info.cls] if info.cls in known else _check_object(info, known)
        case inspect.VarTupleType() | inspect.ListType():
            return _check_list(_make_checker(info.item_type, known))
        case inspect.DictType():
            return _check_map(_make_checker(info.value_type, known))
        case inspect.UnionType():
            return _make_union_checker(
                [member for member in info.types if not isinstance(member, inspect.NoneType)], known
            )
        case inspect.StrType():
            return _check_text
        case inspect.BytesType():
            return _check_base64
        case inspect.BoolType():
            return _check_boolean
        case inspect.IntType():
            return _check_integer(info)
        case inspect.FloatType():
            return _check_number
        case inspect.CustomType() if info.cls is Quantity:
            return _check_quantity
        case inspect.CustomType() if info.cls is TimestampText:
            return _check_timestamp
        case inspect.RawType() | inspect.AnyType():
            return _check_anything
    raise AssertionError(f"a wire type that has no checker: {info}")


def _make_union_checker(members: list[inspect.Type], known: _Known) -> _Checker:
    if len(members) == 1:
        return _make_checker(members[0], known)
    assert {type(member) for member in members} == {inspect.IntType, inspect.StrType}, (
        f"no other choice exists: {members}"
    )
    return _check_number_or_text


def _check_object(info: inspect.StructType, known: _Known) -> _Checker:
    fields: dict[str, _Checker] = {}

    def check(value: Any, path: _Path | None, mismatches: list[SchemaMismatch]) -> None:
        if type(value) is not dict and not _is_repeating(value, path, mismatches):
            mismatches.append(_wrong_type(path, "an object", value))
            return
        for name, member in value.items():
            check_member = fields.get(name)
            if check_member is None:
                message = f'unknown field "{name}"{_suggestion(name, shape)}'
                mismatches.append(SchemaMismatch(MismatchKind.UNKNOWN_FIELD, _field_path((path, name, False)), message))
            elif check_member is not _pass and member is not None:
                check_member(member, (path, name, False), mismatches)

    # A type may contain itself, so it is registered before its fields.
    known[info.cls] = check
    fields.update((field.encode_name, _make_checker(field.type, known)) for field in info.fields)
    fields.update(dict.fromkeys(_unread(info), _pass if known.names_only else _check_anything))
    shape = _shape_of(info)
    return check


def _unread(info: inspect.StructType) -> tuple[str, ...]:
    """The fields that exist but that the type does not model."""
    return getattr(info.cls, "UNREAD", ())


def _check_list(check_item: _Checker) -> _Checker:
    def check(value: Any, path: _Path | None, mismatches: list[SchemaMismatch]) -> None:
        if not isinstance(value, list):
            mismatches.append(_wrong_type(path, "a list", value))
            return
        for index, item in enumerate(value):
            if item is not None:
                check_item(item, (path, index, False), mismatches)

    return check


def _check_map(check_value: _Checker) -> _Checker:
    def check(value: Any, path: _Path | None, mismatches: list[SchemaMismatch]) -> None:
        if type(value) is not dict and not _is_repeating(value, path, mismatches):
            mismatches.append(_wrong_type(path, "a map", value))
            return
        for name, member in value.items():
            if member is not None:
                check_value(member, (path, name, True), mismatches)

    return check


def _check_integer(info: inspect.IntType) -> _Checker:
    least, most = info.ge, info.le

    def check(value: Any, path: _Path | None, mismatches: list[SchemaMismatch]) -> None:
        if type(value) is not int:
            mismatches.append(_wrong_type(path, "a whole number", value))
        elif (least is not None and value < least) or (most is not None and value > most):
            mismatches.append(
                SchemaMismatch(
                    MismatchKind.WRONG_TYPE, _field_path(path), f"{value} is out of range: {least} to {most}"
                )
            )

    return check


def _has_names(info: inspect.Type) -> bool:
    """True if a value of the type contains an object anywhere: only objects have field names to check."""
    match info:
        case inspect.VarTupleType() | inspect.ListType():
            return _has_names(info.item_type)
        case inspect.DictType():
            return _has_names(info.value_type)
        case inspect.UnionType():
            return any(map(_has_names, info.types))
    return isinstance(info, inspect.StructType)


def _pass(value: Any, path: _Path | None, mismatches: list[SchemaMismatch]) -> None:
    """Accepts everything."""


def _check_text(value: Any, path: _Path | None, mismatches: list[SchemaMismatch]) -> None:
    if type(value) is not str:
        mismatches.append(_wrong_type(path, "text", value))


def _check_base64(value: Any, path: _Path | None, mismatches: list[SchemaMismatch]) -> None:
    try:
        b64decode(value, validate=True)
    except (TypeError, ValueError):
        # The value may be a secret.
        mismatches.append(SchemaMismatch(MismatchKind.WRONG_TYPE, _field_path(path), "illegal base64 data"))


def _check_boolean(value: Any, path: _Path | None, mismatches: list[SchemaMismatch]) -> None:
    if type(value) is not bool:
        mismatches.append(_wrong_type(path, "true or false", value))


def _check_number(value: Any, path: _Path | None, mismatches: list[SchemaMismatch]) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool):
        mismatches.append(_wrong_type(path, "a number", value))


def _check_number_or_text(value: Any, path: _Path | None, mismatches: list[SchemaMismatch]) -> None:
    if type(value) not in (int, str):
        mismatches.append(_wrong_type(path, "a whole number or text", value))


def _check_timestamp(value: Any, path: _Path | None, mismatches: list[SchemaMismatch]) -> None:
    if type(value) is not str:
        mismatches.append(_wrong_type(path, "a timestamp", value))
        return
    try:
        parse_timestamp(value)
    except BadTimestamp as error:
        mismatches.append(SchemaMismatch(MismatchKind.WRONG_TYPE, _field_path(path), str(error)))


def _check_quantity(value: Any, path: _Path | None, mismatches: list[SchemaMismatch]) -> None:
    if not isinstance(value, str | int | float) or isinstance(value, bool):
        mismatches.append(_wrong_type(path, "a quantity", value))
        return
    try:
        Quantity.parse(_quantity_text(value))
    except QuantityError as error:
        mismatches.append(SchemaMismatch(MismatchKind.WRONG_TYPE, _field_path(path), str(error)))


def _quantity_text(value: str | int | float) -> str:
    if isinstance(value, str):
        return value.strip()
    return value.text if isinstance(value, ExactNumber) else str(value)


def _check_anything(value: Any, path: _Path | None, mismatches: list[SchemaMismatch]) -> None:
    """Accepts every value, except repeated keys."""
    pending: list[tuple[Any, _Path | None]] = [(value, path)]
    for node, way in pending:
        if isinstance(node, dict):
            _is_repeating(node, way, mismatches)
            pending.extend((member, (way, name, False)) for name, member in node.items())
        elif isinstance(node, list):
            pending.extend((item, (way, index, False)) for index, item in enumerate(node))


def _is_repeating(value: Any, path: _Path | None, mismatches: list[SchemaMismatch]) -> bool:
    """Records the keys that a mapping repeats; true if there are any."""
    if not isinstance(value, RepeatedKeys):
        return False
    for name in value.repeated:
        message = f'"{name}" is stated more than once'
        mismatches.append(SchemaMismatch(MismatchKind.DUPLICATE_FIELD, _field_path((path, name, False)), message))
    return True


# --- Messages ----------------------------------------------------------------------------------------------------

_SHOWN_LENGTH_MAX: Final = 60


def _wrong_type(path: _Path | None, wanted: str, value: object) -> SchemaMismatch:
    hint = " (put it in quotes)" if wanted == "text" and isinstance(value, int | float) else ""
    return SchemaMismatch(
        MismatchKind.WRONG_TYPE, _field_path(path), f"expected {wanted}, got {_described(value)}{hint}"
    )


def _described(value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return f"the number {value}"
        case str():
            return (
                f'the text "{value}"' if len(value) <= _SHOWN_LENGTH_MAX else f'the text "{value[:_SHOWN_LENGTH_MAX]}…"'
            )
        case list():
            return "a list"
        case dict():
            return "an object"
        case _:
            return "nothing"


@dataclass(frozen=True, slots=True)
class _Shape:
    """The field names of an object, and the shapes of those fields that contain objects."""

    names: tuple[str, ...]
    nested: Mapping[str, str]


def _shape_of(info: inspect.StructType) -> _Shape:
    nested = {
        inner.encode_name: f"{field.encode_name}.{inner.encode_name}"
        for field in info.fields
        for member in _members(field.type)
        if isinstance(member, inspect.StructType)
        for inner in member.fields
    }
    return _Shape((*(field.encode_name for field in info.fields), *_unread(info)), nested)


def _members(info: inspect.Type) -> Iterator[inspect.Type]:
    if isinstance(info, inspect.UnionType):
        yield from info.types
    else:
        yield info


def _suggestion(name: str, shape: _Shape) -> str:
    by_lower_case = {known.lower(): known for known in shape.names}
    close = difflib.get_close_matches(name.lower(), by_lower_case, n=1, cutoff=0.7)
    meant = by_lower_case[close[0]] if close else shape.nested.get(name)
    return f', did you mean "{meant}"?' if meant else f"; known: {', '.join(shape.names)}"


def _field_path(path: _Path | None) -> FieldPath | None:
    chain: list[tuple[str | int, bool]] = []
    while path is not None:
        path, step, is_key = path
        chain.append((step, is_key))
    result: FieldPath | None = None
    for step, is_key in reversed(chain):
        result = FieldPath(result, step, is_key)
    return result


def _dotted(steps: tuple[str | int, ...]) -> str:
    parts = [f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps]
    return "".join(parts).removeprefix(".")
