"""Derived attributes: values that a request computes from devices for use in constraints."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dralloc.api.expression_checker import check_expression
from dralloc.api.request_name import RequestName
from dralloc.api.resource_v1 import DeviceClaim, DeviceConstraint, DeviceDerivedAttribute
from dralloc.api.validation.context import ValidationContext
from dralloc.api.validation.formats import validate_fully_qualified_name, validate_unique
from dralloc.api.validation.selectors import validate_check, validate_total_cost
from dralloc.cel.limits import LENGTH_MAX_BYTES
from dralloc.primitives.field_errors import FieldError, FieldPath, invalid, required, too_long, too_many
from dralloc.primitives.names import length_in_bytes

DERIVED_ATTRIBUTES_COUNT_MAX: Final = 32


def validate_derived_attributes(
    devices: DeviceClaim, path: FieldPath, context: ValidationContext
) -> Iterator[FieldError]:
    costs: list[int] = []
    for position, request in enumerate(devices.requests or ()):
        where = path.child("requests").index(position)
        if request.exactly is not None and request.exactly.derived_attributes:
            attributes = _Attributes(request.exactly.derived_attributes, (request.name,), devices.constraints)
            declared = context.declared_request(where).child("derivedAttributes")
            yield from attributes.validate(where.child("exactly", "derivedAttributes"), declared, context, costs)
        for index, sub in enumerate(request.first_available):
            if sub.derived_attributes:
                references = (request.name, str(RequestName(request.name, sub.name)))
                attributes = _Attributes(sub.derived_attributes, references, devices.constraints)
                place = where.child("firstAvailable").index(index).child("derivedAttributes")
                yield from attributes.validate(place, place, context, costs)
    yield from validate_total_cost(costs, path)


class _Attributes:
    """The attributes of one request, and the constraints that apply to it under one of its names."""

    __slots__ = ("_attributes", "_compared")

    def __init__(
        self,
        attributes: tuple[DeviceDerivedAttribute, ...],
        references: tuple[str, ...],
        constraints: tuple[DeviceConstraint, ...],
    ) -> None:
        self._attributes = attributes
        self._compared = {
            name
            for constraint in constraints
            if not constraint.requests or any(reference in constraint.requests for reference in references)
            for name in (constraint.match_attribute, constraint.distinct_attribute)
            if name is not None
        }

    def validate(
        self, path: FieldPath, declared: FieldPath, context: ValidationContext, costs: list[int]
    ) -> Iterator[FieldError]:
        if len(self._attributes) > DERIVED_ATTRIBUTES_COUNT_MAX:
            yield too_many(declared, len(self._attributes), DERIVED_ATTRIBUTES_COUNT_MAX)
            return
        yield from validate_unique(self._attributes, declared, lambda attribute: attribute.name)
        for position, attribute in enumerate(self._attributes):
            yield from self._validate_name(attribute.name, path.index(position), declared.index(position))
            yield from _validate_expression(
                attribute.expression, path.index(position), declared.index(position), context, costs
            )

    def _validate_name(self, name: str, path: FieldPath, declared: FieldPath) -> Iterator[FieldError]:
        if not name:
            yield required(declared.child("name"))
            return
        yield from validate_fully_qualified_name(name, declared.child("name"))
        if name not in self._compared:
            yield invalid(path.child("name"), name, "no constraint of this request uses it")


def _validate_expression(
    expression: str, path: FieldPath, declared: FieldPath, context: ValidationContext, costs: list[int]
) -> Iterator[FieldError]:
    if not expression:
        yield required(declared.child("expression"))
    elif length_in_bytes(expression) > LENGTH_MAX_BYTES:
        yield too_long(path.child("expression"), LENGTH_MAX_BYTES)
    else:
        check = check_expression(expression, context.gates, is_selector=False)
        costs.append(check.cost)
        yield from validate_check(expression, path.child("expression"), check)
