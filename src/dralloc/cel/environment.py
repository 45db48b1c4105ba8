"""The names available to an expression: variables, types and functions.

Kubernetes has two environments. The scheduler runs stored expressions with all features; the API server checks new ones
against the enabled features, and declares attributes as `any`, which macros cannot iterate over.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final

from dralloc.cel import declarations_kubernetes, declarations_standard, types
from dralloc.cel.declarations import Functions, declare
from dralloc.cel.types import Type


@dataclass(frozen=True, slots=True)
class MessageType:
    """A type that `Name{field: value}` constructs; `type` is the result type."""

    type: Type
    fields: Mapping[str, Type]


@dataclass(frozen=True, slots=True, eq=False)
class Environment:
    """`is_stored` is true for the scheduler's environment."""

    is_stored: bool
    allows_lists: bool
    attribute: Type
    variables: Mapping[str, Type]
    messages: Mapping[str, MessageType]
    functions: Functions


def stored_environment() -> Environment:
    """The scheduler's environment: all features, regardless of gates, because an expression outlives the gate it was
    created under.
    """
    return _environment(is_stored=True, has_multiple_allocations=True, has_list_attributes=True)


def new_environment(*, has_multiple_allocations: bool, has_list_attributes: bool) -> Environment:
    """The API server's environment, by the gates DRAConsumableCapacity and DRAListTypeAttributes."""
    return _environment(
        is_stored=False,
        has_multiple_allocations=has_multiple_allocations,
        has_list_attributes=has_list_attributes,
    )


@cache
def _environment(*, is_stored: bool, has_multiple_allocations: bool, has_list_attributes: bool) -> Environment:
    attribute = types.DYN if has_list_attributes else types.ANY
    device = {
        "driver": types.STRING,
        "attributes": types.map_of(types.STRING, types.map_of(types.STRING, attribute)),
        "capacity": types.map_of(types.STRING, types.map_of(types.STRING, types.QUANTITY)),
    }
    if has_multiple_allocations:
        device["allowMultipleAllocations"] = types.BOOL
    messages = {**_WELL_KNOWN, types.DEVICE.name: MessageType(types.DEVICE, device)}
    type_names = {name: types.type_of(named) for name, named in _TYPE_NAMES.items()}
    message_names = {name: types.type_of(message.type) for name, message in messages.items()}
    return Environment(
        is_stored=is_stored,
        allows_lists=is_stored or has_list_attributes,
        attribute=attribute,
        variables={**message_names, **type_names, "device": types.DEVICE},
        messages=messages,
        functions=_functions_with_includes() if has_list_attributes else _functions(),
    )


@cache
def _functions() -> Functions:
    return declare(*declarations_standard.TABLES, *declarations_kubernetes.TABLES)


@cache
def _functions_with_includes() -> Functions:
    return {**_functions(), **declare(declarations_kubernetes.LIST_ATTRIBUTES)}


_TYPE_NAMES: Final = {
    "bool": types.BOOL,
    "bytes": types.BYTES,
    "double": types.DOUBLE,
    "int": types.INT,
    "uint": types.UINT,
    "string": types.STRING,
    "null_type": types.NULL,
    "list": types.list_of(types.DYN),
    "map": types.map_of(types.DYN, types.DYN),
    "type": Type(types.TypeKind.TYPE, "type"),
    "optional_type": types.optional_of(types.DYN),
    "google.protobuf.Duration": types.DURATION,
    "google.protobuf.Timestamp": types.TIMESTAMP,
    "net.IP": types.IP,
    "net.CIDR": types.CIDR,
}


def _wrapper(primitive: Type) -> MessageType:
    return MessageType(types.wrapper_of(primitive), {"value": primitive})


# CEL's own message types.
_WELL_KNOWN: Final = {
    "google.protobuf.BoolValue": _wrapper(types.BOOL),
    "google.protobuf.BytesValue": _wrapper(types.BYTES),
    "google.protobuf.DoubleValue": _wrapper(types.DOUBLE),
    "google.protobuf.FloatValue": _wrapper(types.DOUBLE),
    "google.protobuf.Int32Value": _wrapper(types.INT),
    "google.protobuf.Int64Value": _wrapper(types.INT),
    "google.protobuf.StringValue": _wrapper(types.STRING),
    "google.protobuf.UInt32Value": _wrapper(types.UINT),
    "google.protobuf.UInt64Value": _wrapper(types.UINT),
    "google.protobuf.Duration": MessageType(types.DURATION, {"seconds": types.INT, "nanos": types.INT}),
    "google.protobuf.Timestamp": MessageType(types.TIMESTAMP, {"seconds": types.INT, "nanos": types.INT}),
    "google.protobuf.Any": MessageType(types.ANY, {"type_url": types.STRING, "value": types.BYTES}),
    "google.protobuf.Empty": MessageType(Type(types.TypeKind.OBJECT, "google.protobuf.Empty"), {}),
    "google.protobuf.Struct": MessageType(
        types.map_of(types.STRING, types.DYN), {"fields": types.map_of(types.STRING, types.DYN)}
    ),
    "google.protobuf.ListValue": MessageType(types.list_of(types.DYN), {"values": types.list_of(types.DYN)}),
    "google.protobuf.Value": MessageType(
        types.DYN,
        {
            "null_value": types.INT,
            "number_value": types.DOUBLE,
            "string_value": types.STRING,
            "bool_value": types.BOOL,
            "struct_value": types.map_of(types.STRING, types.DYN),
            "list_value": types.list_of(types.DYN),
        },
    ),
}
