"""Constraints of a claim: devices that must agree in an attribute, or must all differ in it.

Monotonic: once a constraint refuses a device, taking more devices cannot please it. Its state is a set of attribute
values: those that are still common to all (equal), or those already taken (distinct). None means no device so far.
"""

from __future__ import annotations

from dataclasses import dataclass

from dralloc.api.request_name import RequestName
from dralloc.api.resource_v1 import Device, DeviceAttribute

# A value with its type, so that 1 and "1" differ.
Value = tuple[str, object]
Values = frozenset[Value]

_SCALARS = ("string", "int", "bool", "version")
_LISTS = {"string": "strings", "int": "ints", "bool": "bools", "version": "versions"}

# Stands for an attribute that is there but cannot be compared: as the first it is as good as any.
_INCOMPARABLE: Values = frozenset({("", None)})


@dataclass(frozen=True, slots=True, eq=False)
class Constraint:
    attribute: str
    wants_equal: bool
    requests: frozenset[RequestName]
    accepts_lists: bool

    def covers(self, request: RequestName) -> bool:
        return not self.requests or request.is_in(self.requests)

    def values_of(self, driver: str, device: Device) -> Values | None:
        """What the constraint sees of a device; None where the device can never satisfy it."""
        attribute = self._lookup(driver, device)
        if attribute is None:
            return None
        if self.accepts_lists:
            return _elements(attribute) or None
        return _scalar(attribute)

    def after(self, state: Values | None, values: Values) -> Values | None:
        """The state with a device of these values taken, or None where it must not be taken."""
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
