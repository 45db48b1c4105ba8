"""Constraints of a claim on an attribute: matchAttribute (devices agree) and distinctAttribute (all devices differ).

Monotonic: a device that a constraint refuses is also refused after more devices are taken. The state of a constraint is a set
of attribute values: those common to all devices (matchAttribute) or those taken (distinctAttribute); None before the first.
"""

from __future__ import annotations

from dataclasses import dataclass

from msgspec.structs import replace

from dralloc.api.request_name import RequestName
from dralloc.api.resource_v1 import Device, DeviceAttribute
from dralloc.cel.derived_attribute import compile_derived
from dralloc.cel.errors import CelError
from dralloc.snapshot.slices import DeviceShape, IndexedSlice

# A value with its type, so that 1 and "1" differ.
Value = tuple[str, object]
Values = frozenset[Value]

_SCALARS = ("string", "int", "bool", "version")
_LISTS = {"string": "strings", "int": "ints", "bool": "bools", "version": "versions"}

_NO_VALUE = DeviceAttribute()

# The value of an attribute that exists but cannot be compared. It is accepted as the first one.
_INCOMPARABLE: Values = frozenset({("", None)})


@dataclass(frozen=True, slots=True, eq=False)
class Constraint:
    attribute: str
    wants_equal: bool
    requests: frozenset[RequestName]
    accepts_lists: bool
    # The position among all constraints of a demand. A constraint has one state for all requests that it covers.
    number: int = 0
    # What a request derives the attribute from, instead of the device's own.
    expression: str | None = None

    def covers(self, request: RequestName) -> bool:
        return not self.requests or request.is_in(self.requests)

    def values_at(self, indexed: IndexedSlice, bit: int) -> Values | None:
        """The values of a device; None if the device can never satisfy the constraint. Raises CelError if a derived
        attribute cannot be evaluated."""
        if self.expression is None:
            return self.values_of(indexed.pool_id.driver, indexed.devices[bit])
        return self._values(_derived(indexed.shape(bit), self.expression))

    def known_values_at(self, indexed: IndexedSlice, bit: int) -> Values | None:
        """Like `values_at`, for explanations: None if a derived attribute cannot be evaluated."""
        try:
            return self.values_at(indexed, bit)
        except CelError:
            return None

    def values_of(self, driver: str, device: Device) -> Values | None:
        """The values of the device's own attribute."""
        return self._values(self._lookup(driver, device))

    def _values(self, attribute: DeviceAttribute | None) -> Values | None:
        if attribute is None:
            return None
        if self.accepts_lists:
            return _elements(attribute) or None
        return _scalar(attribute)

    def after(self, state: Values | None, values: Values) -> Values | None:
        """The state after a device with these values is taken; None if the constraint refuses the device."""
        if state is None:
            return values
        if values is _INCOMPARABLE:
            return None
        if self.wants_equal:
            return (state & values) or None
        return None if state & values else state | values

    def _lookup(self, driver: str, device: Device) -> DeviceAttribute | None:
        attributes = device.attributes
        found = attributes.get(self.attribute)
        if found is not None:
            return found
        domain, slash, identifier = self.attribute.partition("/")
        return attributes.get(identifier) if slash and domain == driver else None


def _derived(shape: DeviceShape, expression: str) -> DeviceAttribute:
    key = ("derived", expression)
    known: DeviceAttribute | CelError | None = shape.answers.get(key)
    if known is None:
        known = shape.answers.keep(key, _evaluate(shape, expression))
    if isinstance(known, CelError):
        raise known.with_traceback(None)
    return known


def _evaluate(shape: DeviceShape, expression: str) -> DeviceAttribute | CelError:
    try:
        member, value = compile_derived(expression).evaluate(shape.view)
    except CelError as error:
        return error
    return replace(_NO_VALUE, **{member: value})


def _scalar(attribute: DeviceAttribute) -> Values:
    for kind in _SCALARS:
        value = getattr(attribute, kind)
        if value is not None:
            return frozenset({(kind, value)})
    return _INCOMPARABLE


def _elements(attribute: DeviceAttribute) -> Values:
    found: set[Value] = set()
    for kind, plural in _LISTS.items():
        value = getattr(attribute, kind)
        if value is not None:
            found.add((kind, value))
        found.update((kind, element) for element in getattr(attribute, plural) or ())
    return frozenset(found)
