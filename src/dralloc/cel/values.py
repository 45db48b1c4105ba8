"""Runtime values, and their equality and order.

A CEL value is the Python value of the same kind if there is one: bool, int, float, str, bytes, None, list and dict.
Other kinds have a class here; Kubernetes' libraries define their own classes, subclasses of `Opaque`. Python's equality
is never used across kinds, because `True == 1` and `1 == 1.0` hold in Python.

Dict keys are encoded (`map_key`) for the same reason: in CEL `1`, `1u`, `1.0` and `true` are four keys.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from dralloc.cel.errors import CelEvaluationError, CostLimitError
from dralloc.cel.meter import Meter
from dralloc.primitives.quantity import Quantity
from dralloc.primitives.semver import Semver

# A value has one of the classes in `type_of`; a union of them all would only add casts.
Value = Any
Map = dict[Hashable, Value]

INT_MIN: Final = -(2**63)
INT_MAX: Final = 2**63 - 1
UINT_MAX: Final = 2**64 - 1


class Uint(int):
    """An unsigned 64-bit integer. It is an int to Python, so kinds are distinguished by exact class."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"{int(self)}u"


@dataclass(frozen=True, slots=True, order=True)
class Duration:
    """A duration in nanoseconds, at most 64 bits."""

    nanos: int


@dataclass(frozen=True, slots=True)
class Timestamp:
    """An instant, in nanoseconds since 1970. The offset is the one it was written with; only its text shows it."""

    nanos: int
    offset_s: int = 0


@dataclass(frozen=True, slots=True)
class TypeValue:
    """A type as a value, the result of `type(x)`. Parameters are dropped: every list has the type `list`."""

    name: str


@dataclass(frozen=True, slots=True, eq=False)
class Optional:
    """A value that may be absent."""

    value: Value
    is_present: bool = True


NONE: Final = Optional(None, is_present=False)


class Opaque:
    """A value of a library. Comparing it with another type is an error."""

    __slots__ = ()
    type_value: ClassVar[TypeValue]


class DerivedQuantity(Quantity):
    """A computed quantity. In Kubernetes it never equals another one if it is on the right of `==`."""

    __slots__ = ()

    @classmethod
    def of_quantity(cls, quantity: Quantity) -> DerivedQuantity:
        return cls(quantity.nanos, quantity.format, quantity._storage)


class DomainMap(dict[str, Map]):
    """The domains of a device's attributes or capacity: a missing domain is found, and empty."""

    __slots__ = ()

    def __missing__(self, _domain: str) -> Map:
        return {}


BOOL: Final = TypeValue("bool")
INT: Final = TypeValue("int")
UINT: Final = TypeValue("uint")
DOUBLE: Final = TypeValue("double")
STRING: Final = TypeValue("string")
BYTES: Final = TypeValue("bytes")
NULL: Final = TypeValue("null_type")
LIST: Final = TypeValue("list")
MAP: Final = TypeValue("map")
TYPE: Final = TypeValue("type")
DURATION: Final = TypeValue("google.protobuf.Duration")
TIMESTAMP: Final = TypeValue("google.protobuf.Timestamp")
OPTIONAL: Final = TypeValue("optional_type")
QUANTITY: Final = TypeValue("kubernetes.Quantity")
SEMVER: Final = TypeValue("kubernetes.Semver")

_TYPES: Final[dict[type, TypeValue]] = {
    bool: BOOL,
    int: INT,
    Uint: UINT,
    float: DOUBLE,
    str: STRING,
    bytes: BYTES,
    type(None): NULL,
    list: LIST,
    dict: MAP,
    DomainMap: MAP,
    TypeValue: TYPE,
    Duration: DURATION,
    Timestamp: TIMESTAMP,
    Optional: OPTIONAL,
    Quantity: QUANTITY,
    DerivedQuantity: QUANTITY,
    Semver: SEMVER,
}


def type_of(value: Value) -> TypeValue:
    found = _TYPES.get(value.__class__)
    if found is not None:
        return found
    assert isinstance(value, Opaque), f"not a CEL value: {value!r}"
    return value.type_value


def no_such_overload(function: str, *arguments: Value) -> CelEvaluationError:
    """The error of a function that is not defined for these types."""
    types = ", ".join(type_of(argument).name for argument in arguments)
    return CelEvaluationError(f"no such overload: {function}({types})")


# --- Maps ----------------------------------------------------------------------------------------------------

_UNHASHABLE: Final = (bytes, Semver)


def map_key(value: Value) -> Hashable:
    """Returns the dict key of a value: strings and ints unchanged, all others with their class."""
    kind = value.__class__
    if kind is str or kind is int:
        key: Hashable = value
        return key
    if kind in _UNHASHABLE:
        raise HashError(f"internal error: a value of type {type_of(value).name} cannot be looked up")
    if kind is list or kind is dict or kind is Optional:
        # Kubernetes compares by identity here, so such a key is never found again.
        return (kind, _Identity(value))
    return (kind, value)


def key_value(key: Hashable) -> Value:
    """Returns the value of a dict key."""
    if key.__class__ is tuple:
        value = key[1]
        return value.value if value.__class__ is _Identity else value
    return key


def map_keys(mapping: Map) -> Iterator[Value]:
    """Yields the keys of a map as values."""
    return map(key_value, mapping)


class HashError(CelEvaluationError):
    """Kubernetes' evaluation aborts here, because Go cannot hash such a value."""


# Errors that end an evaluation at once: `||`, `&&` and macros absorb every other error.
FATAL_ERRORS: Final = (CostLimitError, HashError)


class _Identity:
    """A key that equals only itself."""

    __slots__ = ("value",)

    def __init__(self, value: Value) -> None:
        self.value = value


MISSING: Final = object()


def find(mapping: Map, key: Value) -> Value:
    """Returns the value of a key in a map, or MISSING. Numbers are found across types if the conversion is exact."""
    kind = key.__class__
    if kind is str:
        value = mapping.get(key, MISSING)
        return {} if value is MISSING and mapping.__class__ is DomainMap else value
    value = mapping.get(map_key(key), MISSING)
    if value is MISSING:
        for alternative in _numeric_alternatives(key):
            value = mapping.get(alternative, MISSING)
            if value is not MISSING:
                return value
        if mapping.__class__ is DomainMap:
            return {}
    return value


def _numeric_alternatives(key: Value) -> tuple[Hashable, ...]:
    kind = key.__class__
    if kind is int:
        return ((Uint, Uint(key)),) if key >= 0 else ()
    if kind is Uint:
        return (int(key),) if key <= INT_MAX else ()
    if kind is float and key.is_integer() and INT_MIN <= key <= UINT_MAX:
        whole = int(key)
        return (whole, (Uint, Uint(whole))) if whole >= 0 else (whole,)
    return ()


def contains_key(mapping: Map, key: Value) -> bool:
    """True if a map has a key; unlike a lookup, this is false for missing domains."""
    if key.__class__ is str:
        return key in mapping
    return map_key(key) in mapping or any(alternative in mapping for alternative in _numeric_alternatives(key))


# --- Equality ------------------------------------------------------------------------------------------------

# Kinds whose Python equality is CEL's, if both sides have the same exact class.
_PLAIN: Final = frozenset({str, int, bool, Uint, float, bytes, Duration, TypeValue})
_NUMBERS: Final = frozenset({int, Uint, float})


def equal(left: Value, right: Value, meter: Meter) -> bool:
    """`left == right`. Raises if the comparison is undefined in Kubernetes, which depends on the left side."""
    kind, other = left.__class__, right.__class__
    if kind is other and kind in _PLAIN:
        answer: bool = left == right
        return answer
    if left is None or right is None:
        return left is right
    if kind in _NUMBERS:
        return other in _NUMBERS and _numbers_equal(left, right)
    if kind is list:
        return other is list and _lists_equal(left, right, meter)
    if kind is dict or kind is DomainMap:
        return (other is dict or other is DomainMap) and _maps_equal(left, right, meter)
    if kind is Timestamp:
        return other is Timestamp and left.nanos == right.nanos
    if kind is Optional:
        return other is Optional and _optionals_equal(left, right, meter)
    if kind is Quantity or kind is DerivedQuantity:
        if other is not Quantity:
            raise CelEvaluationError(f"no such overload: {QUANTITY.name} == {_described(right)}")
        return bool(left.nanos == right.nanos)
    if kind is Semver or isinstance(left, Opaque):
        if other is not kind:
            raise CelEvaluationError(f"no such overload: {type_of(left).name} == {_described(right)}")
        return bool(left == right)
    return False


def is_equal(left: Value, right: Value, meter: Meter) -> bool:
    """True if `left == right` is true; false if the comparison is undefined."""
    try:
        return equal(left, right, meter)
    except FATAL_ERRORS:
        raise
    except CelEvaluationError:
        return False


def _not_unequal(left: Value, right: Value, meter: Meter) -> bool:
    """Inside lists and maps Kubernetes treats elements as equal unless their comparison is false: errors count as
    equal.
    """
    try:
        return equal(left, right, meter)
    except FATAL_ERRORS:
        raise
    except CelEvaluationError:
        return True


def _numbers_equal(left: Value, right: Value) -> bool:
    """Compares across number types; against a double, an integer is converted to the nearest double."""
    if left.__class__ is float or right.__class__ is float:
        return float(left) == float(right)
    return int(left) == int(right)


# The work of descending into a list or map, in visited elements.
_ENTERING_WORK: Final = 5


def _lists_equal(left: list[Value], right: list[Value], meter: Meter) -> bool:
    if len(left) != len(right):
        return False
    meter.spend(len(left) + _ENTERING_WORK)
    for mine, theirs in zip(left, right, strict=True):
        kind = mine.__class__
        if kind is theirs.__class__ and kind in _PLAIN:
            if mine != theirs:
                return False
        elif not _not_unequal(mine, theirs, meter):
            return False
    return True


def _maps_equal(left: Map, right: Map, meter: Meter) -> bool:
    if len(left) != len(right):
        return False
    meter.spend(len(left) + _ENTERING_WORK)
    for key, value in left.items():
        other = find(right, key_value(key))
        if other is MISSING or not _not_unequal(value, other, meter):
            return False
    return True


def _optionals_equal(left: Optional, right: Optional, meter: Meter) -> bool:
    if not (left.is_present and right.is_present):
        return left.is_present == right.is_present
    return equal(left.value, right.value, meter)


def _described(value: Value) -> str:
    return "a calculated quantity" if value.__class__ is DerivedQuantity else type_of(value).name


# --- Order ---------------------------------------------------------------------------------------------------

_ORDERED: Final = frozenset({str, bytes, bool})


def compare(left: Value, right: Value) -> int:
    """Returns -1, 0 or 1. Only values of one type have an order, and numbers across their types."""
    kind, other = left.__class__, right.__class__
    if kind is other:
        if kind is int or kind is Uint or kind in _ORDERED:
            return int(left > right) - int(left < right)
        if kind is Duration or kind is Timestamp:
            return int(left.nanos > right.nanos) - int(left.nanos < right.nanos)
    if kind in _NUMBERS and other in _NUMBERS:
        return _compare_numbers(left, right)
    raise CelEvaluationError(f"no such overload: {type_of(left).name} has no order with {type_of(right).name}")


def _compare_numbers(left: Value, right: Value) -> int:
    if left.__class__ is float or right.__class__ is float:
        left, right = float(left), float(right)
        if left != left or right != right:
            raise CelEvaluationError("NaN values cannot be ordered")
    return int(left > right) - int(left < right)


def is_ordered(value: Value) -> bool:
    """True if values of this type can be sorted."""
    kind = value.__class__
    return kind in _ORDERED or kind in _NUMBERS or kind is Duration or kind is Timestamp


# --- Value access ---------------------------------------------------------------------------------------------------
# Access to the contents of values: fields, keys and positions.
#
# Only maps and lists have contents. Access to any other value is the same error as a missing key: attributes are
# dynamic, and Kubernetes does not distinguish a wrong type from a missing key here.


_KEY_KINDS: Final = frozenset({str, int, Uint, bool, float})


class MissingKeyError(CelEvaluationError):
    """A key does not exist; the message says how to read it safely."""

    def __init__(self, key: Value) -> None:
        super().__init__(f"no such key: {_shown(key)}{_hint(key)}")
        self.key = key


def get_value(value: Value, key: Value) -> Value:
    """Returns the value at a key. Raises if there is none."""
    found = find_value(value, key)
    if found is not MISSING:
        return found
    if value.__class__ is list:
        raise CelEvaluationError(f"index out of bounds: {_shown(key)}")
    raise MissingKeyError(key)


def find_value(value: Value, key: Value) -> Value:
    """Returns the value at a key, or MISSING."""
    kind = value.__class__
    if kind is dict or kind is DomainMap:
        return find(value, key)
    if kind is list:
        position = _position(key)
        return value[position] if 0 <= position < len(value) else MISSING
    return MISSING


def access_optionally(value: Value, keys: Iterable[Value]) -> Optional:
    """Returns the value at a path of keys as an optional; every step may find nothing."""
    if value.__class__ is Optional:
        if not value.is_present:
            return NONE
        # A value from an optional loses the default for missing domains.
        value = dict(value.value) if value.value.__class__ is DomainMap else value.value
    for key in keys:
        value = find_value(value, index_key(key))
        if value is MISSING:
            return NONE
    return Optional(value)


def index_key(key: Value) -> Value:
    """Returns the key if its type is valid for keys; raises otherwise."""
    if key.__class__ in _KEY_KINDS:
        return key
    raise CelEvaluationError(f"invalid qualifier type: {type_of(key).name}")


def _position(key: Value) -> int:
    kind = key.__class__
    if kind is int or kind is Uint:
        return int(key)
    if kind is float and key.is_integer():
        return int(key)
    raise CelEvaluationError(f"unsupported index value {_shown(key)} in list")


def _shown(key: Value) -> str:
    return str(int(key)) if key.__class__ is Uint else str(key).lower() if key.__class__ is bool else str(key)


def _hint(key: Value) -> str:
    if key.__class__ is not str:
        return ""
    how = f".?{key}.orValue(…)" if key.isidentifier() and key.isascii() else f'[?"{key}"].orValue(…)'
    return f"; if it may be missing, read it with {how} or check has(…) first"
