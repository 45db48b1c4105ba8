"""The message types that an expression can construct: protobuf's own, which represent plain values.

Other names pass the type checker, because a device is declared as an object, and fail when constructed.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Final

from dralloc.cel.errors import CelEvaluationError
from dralloc.cel.library.time import SECOND, checked_duration, checked_timestamp
from dralloc.cel.values import Timestamp, Uint, Value, no_such_overload

Fields = Mapping[str, Value]


def build_message(type_name: str, fields: Fields) -> Value:
    """Returns the value of a message of that type with these fields."""
    build = _BUILDERS.get(type_name)
    if build is None:
        raise CelEvaluationError(f"unknown type '{type_name}'")
    return build(fields)


def _wrapper(default: Value, low: int | None = None, high: int | None = None) -> Callable[[Fields], Value]:
    """A wrapper of a primitive: its value must have the type of the default and be within bounds."""

    def build(fields: Fields) -> Value:
        value = fields.get("value", default)
        if value.__class__ is not default.__class__:
            raise no_such_overload("field value", value)
        if low is not None and high is not None and not low <= value <= high:
            raise CelEvaluationError("integer overflow")
        return value

    return build


def _float_wrapper(fields: Fields) -> float:
    value = _wrapper(0.0)(fields)
    try:
        rounded: float = struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
    return rounded


def _seconds_and_nanos(fields: Fields) -> int:
    return int(fields.get("seconds", 0)) * SECOND + int(fields.get("nanos", 0))


def _timestamp(fields: Fields) -> Timestamp:
    return checked_timestamp(_seconds_and_nanos(fields))


def _json_value(fields: Fields) -> Value:
    return next(iter(fields.values()), None)


_BUILDERS: Final[dict[str, Callable[[Fields], Value]]] = {
    "google.protobuf.BoolValue": _wrapper(False),
    "google.protobuf.BytesValue": _wrapper(b""),
    "google.protobuf.StringValue": _wrapper(""),
    "google.protobuf.DoubleValue": _wrapper(0.0),
    "google.protobuf.FloatValue": _float_wrapper,
    "google.protobuf.Int64Value": _wrapper(0),
    "google.protobuf.Int32Value": _wrapper(0, -(2**31), 2**31 - 1),
    "google.protobuf.UInt64Value": _wrapper(Uint(0)),
    "google.protobuf.UInt32Value": _wrapper(Uint(0), 0, 2**32 - 1),
    "google.protobuf.Duration": lambda fields: checked_duration(_seconds_and_nanos(fields)),
    "google.protobuf.Timestamp": _timestamp,
    "google.protobuf.Struct": lambda fields: fields.get("fields", {}),
    "google.protobuf.ListValue": lambda fields: fields.get("values", []),
    "google.protobuf.Value": _json_value,
}
