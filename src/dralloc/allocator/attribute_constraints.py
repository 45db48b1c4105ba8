"""Constraints of a claim on an attribute: matchAttribute (devices agree) and distinctAttribute (all devices differ).

Monotonic: a device that a constraint refuses is also refused after more devices are taken. The state of a constraint is a set
of attribute values: those common to all devices (matchAttribute) or those taken (distinctAttribute); None before the first.
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

# The value of an attribute that exists but cannot be compared. It is accepted as the first one.
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
        """The device's values of the attribute; None if the device can never satisfy the constraint."""
        attribute = self._lookup(driver, device)
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
