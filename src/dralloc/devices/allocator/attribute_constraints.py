"""Constraints of a claim on attributes: matchAttribute (devices agree), distinctAttribute (all devices differ) and
distinctAttributes (all devices differ in at least one of several attributes).

Monotonic: a device that a constraint refuses is also refused after more devices are taken. The state of a constraint is a set
of attribute values: those common to all devices (matchAttribute) or those taken (the others); None before the first. With
several attributes, a value is a tuple with the values of each attribute.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import starmap
from operator import and_

from msgspec.structs import replace

from dralloc.cel.derived_attribute import compile_derived
from dralloc.cel.errors import CelError
from dralloc.devices.slices import DeviceShape, IndexedSlice
from dralloc.kube.request_name import RequestName
from dralloc.kube.resource_v1 import Device, DeviceAttribute

# A value with its type, so that 1 and "1" differ; for several attributes, the values of each.
Value = tuple[object, ...]
Values = frozenset[Value]

_SCALARS = ("string", "int", "bool", "version")
_LISTS = {"string": "strings", "int": "ints", "bool": "bools", "version": "versions"}

_NO_VALUE = DeviceAttribute()

# The value of an attribute that exists but cannot be compared. It is accepted as the first one.
_INCOMPARABLE: Values = frozenset({("", None)})


@dataclass(frozen=True, slots=True, eq=False)
class Constraint:
    attributes: tuple[str, ...]
    wants_equal: bool
    requests: frozenset[RequestName]
    accepts_lists: bool
    # The position among all constraints of a demand. A constraint has one state for all requests that it covers.
    number: int = 0
    # What a request derives the attributes from, instead of the device's own; None for those that it does not derive.
    expressions: tuple[str | None, ...] = ()

    def covers(self, request: RequestName) -> bool:
        return not self.requests or request.is_in(self.requests)

    @property
    def label(self) -> str:
        return ", ".join(self.attributes)

    @property
    def is_derived(self) -> bool:
        return any(expression is not None for expression in self.expressions)

    def values_at(self, indexed: IndexedSlice, bit: int) -> Values | None:
        """The values of a device; None if the device can never satisfy the constraint. Raises CelError if a derived
        attribute cannot be evaluated."""
        if not self.is_derived:
            return self.values_of(indexed.pool_id.driver, indexed.devices[bit])
        driver, device, shape = indexed.pool_id.driver, indexed.devices[bit], indexed.shape(bit)
        return self._values(
            [
                _lookup(driver, device, attribute) if expression is None else _derived(shape, expression)
                for attribute, expression in zip(self.attributes, self.expressions, strict=True)
            ]
        )

    def values_of(self, driver: str, device: Device) -> Values | None:
        """The values of the device's own attributes."""
        return self._values([_lookup(driver, device, attribute) for attribute in self.attributes])

    def known_values_at(self, indexed: IndexedSlice, bit: int) -> Values | None:
        """Like `values_at`, for explanations: None if a derived attribute cannot be evaluated."""
        try:
            return self.values_at(indexed, bit)
        except CelError:
            return None

    def unknown_values(self, position: int) -> Values:
        """Values for a device whose attributes cannot be derived: no other device has them."""
        unknown: Value = ("", position)
        return frozenset({unknown if len(self.attributes) == 1 else (frozenset({unknown}),) * len(self.attributes)})

    def after(self, state: Values | None, values: Values) -> Values | None:
        """The state after a device with these values is taken; None if the constraint refuses the device."""
        if state is None:
            return values
        if values is _INCOMPARABLE:
            return None
        if self.wants_equal:
            return (state & values) or None
        is_refused = state & values if len(self.attributes) == 1 else _has_equals(state, values)
        return None if is_refused else state | values

    def _values(self, found: Sequence[DeviceAttribute | None]) -> Values | None:
        values = [self._values_of_one(attribute) for attribute in found]
        if len(values) == 1:
            return values[0]
        return None if None in values or _INCOMPARABLE in values else frozenset({tuple(values)})

    def _values_of_one(self, attribute: DeviceAttribute | None) -> Values | None:
        if attribute is None:
            return None
        if self.accepts_lists:
            return _elements(attribute) or None
        return _scalar(attribute)


def _has_equals(state: Values, values: Values) -> bool:
    """True if a device that is taken has values in common with this one in every attribute."""
    return any(all(starmap(and_, zip(taken, value, strict=True))) for value in values for taken in state)


def _lookup(driver: str, device: Device, attribute: str) -> DeviceAttribute | None:
    attributes = device.attributes
    found = attributes.get(attribute)
    if found is not None:
        return found
    domain, slash, identifier = attribute.partition("/")
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
