"""ResourceClaim and ResourceClaimTemplate: the spec. The status is in `resource_claim_status`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace

from dralloc.cel.meter import LENGTH_MAX_BYTES
from dralloc.kube.codec import encode
from dralloc.kube.gated_fields import uses_aggregated_capacity
from dralloc.kube.request_name import RequestName
from dralloc.kube.resource_v1 import (
    AGGREGATED_CAPACITY,
    ALL,
    EXACT_COUNT,
    ConsumerReference,
    DeviceClaim,
    DeviceClaimConfiguration,
    DeviceConstraint,
    DeviceDerivedAttribute,
    DeviceRequest,
    DeviceSubRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
    ResourceClaimTemplate,
)
from dralloc.kube.validation import formats
from dralloc.kube.validation.configuration import CONFIG_COUNT_MAX, validate_opaque
from dralloc.kube.validation.context import ValidationContext
from dralloc.kube.validation.formats import validate_fully_qualified_name, validate_unique
from dralloc.kube.validation.metadata import validate_metadata, validate_metadata_update, validate_template_metadata
from dralloc.kube.validation.request_policy import validate_requested_capacity
from dralloc.kube.validation.selectors import (
    check_expression,
    validate_check,
    validate_selectors,
    validate_selectors_size,
    validate_total_cost,
)
from dralloc.kube.validation.taints import validate_toleration_choices, validate_toleration_value
from dralloc.primitives.features import FeatureGates
from dralloc.primitives.field_errors import (
    FieldError,
    FieldPath,
    forbidden,
    invalid,
    not_supported,
    required,
    too_long,
    too_many,
)
from dralloc.primitives.names import length_in_bytes

REQUESTS_COUNT_MAX: Final = 32
CONSTRAINTS_COUNT_MAX: Final = 32
ALTERNATIVES_COUNT_MAX: Final = 8
DISTINCT_ATTRIBUTES_COUNT_MIN: Final = 2
DISTINCT_ATTRIBUTES_COUNT_MAX: Final = 8

SPEC: Final = FieldPath.of("spec")

# Valid specs that are remembered.
SPECS_KEPT_MAX: Final = 256
# As they are printed: not all of a spec can be hashed.
_valid_specs: Final = set[tuple[bytes, ValidationContext]]()


def validate_resource_claim(claim: ResourceClaim, context: ValidationContext) -> Iterator[FieldError]:
    yield from validate_metadata(claim.metadata, namespaced=True)
    yield from validate_claim_spec(claim.spec, SPEC, context)


def validate_resource_claim_update(new: ResourceClaim, old: ResourceClaim) -> Iterator[FieldError]:
    """The spec is immutable, so it is not validated again: rules may have become stricter since it was stored."""
    yield from validate_metadata(new.metadata, namespaced=True)
    yield from validate_metadata_update(new.metadata, old.metadata)
    if new.spec != old.spec:
        yield invalid(SPEC, None, "field is immutable")


def validate_resource_claim_template(
    template: ResourceClaimTemplate, context: ValidationContext
) -> Iterator[FieldError]:
    yield from validate_metadata(template.metadata, namespaced=True)
    yield from validate_template_metadata(template.spec.metadata, SPEC.child("metadata"))
    yield from validate_claim_spec(template.spec.spec, SPEC.child("spec"), context)


def validate_resource_claim_template_update(
    new: ResourceClaimTemplate, old: ResourceClaimTemplate, *, spec_changed: bool, context: ValidationContext
) -> Iterator[FieldError]:
    """Unlike a claim, a template is validated again as if it were new, although its spec is immutable. A mode that it
    uses stays valid while the gate is off.
    """
    if uses_aggregated_capacity(old.spec.spec):
        context = replace(context, gates=FeatureGates(context.gates.enabled | {"DRAAggregatedCapacity"}))
    yield from validate_resource_claim_template(new, context)
    yield from validate_metadata_update(new.metadata, old.metadata)
    if spec_changed:
        yield invalid(SPEC, None, "field is immutable")


def validate_claim_spec(spec: ResourceClaimSpec, path: FieldPath, context: ValidationContext) -> Iterator[FieldError]:
    """Claims of one template are alike: a spec that was found valid is not validated again."""
    seen = (encode(spec), context)
    if seen in _valid_specs:
        return
    is_valid = True
    for fault in _validate_spec(spec, path, context):
        is_valid = False
        yield fault
    if is_valid:
        if len(_valid_specs) >= SPECS_KEPT_MAX:
            _valid_specs.clear()
        _valid_specs.add(seen)


def _validate_spec(spec: ResourceClaimSpec, path: FieldPath, context: ValidationContext) -> Iterator[FieldError]:
    devices, where = spec.devices, path.child("devices")
    yield from _validate_requests(devices.requests or (), where.child("requests"), context)
    yield from validate_derived_attributes(devices, where, context)
    if devices.constraints or devices.config:
        names = RequestNames(devices)
        yield from _validate_constraints(devices.constraints, where.child("constraints"), names, context)
        yield from _validate_config(devices.config, where.child("config"), names)
    if spec.reserved_for is not None:
        yield from validate_consumer(spec.reserved_for, path.child("reservedFor"))


def validate_consumer(consumer: ConsumerReference, path: FieldPath) -> Iterator[FieldError]:
    for field in ("resource", "name", "uid"):
        if not getattr(consumer, field):
            yield required(path.child(field))


# --- Requests --------------------------------------------------------------------------------------------------


def _validate_requests(
    requests: tuple[DeviceRequest, ...], path: FieldPath, context: ValidationContext
) -> Iterator[FieldError]:
    if len(requests) > REQUESTS_COUNT_MAX:
        yield too_many(path, len(requests), REQUESTS_COUNT_MAX)
        return
    for position, request in enumerate(requests):
        yield from _validate_request(request, path.index(position), context)
    yield from formats.validate_unique(requests, path, lambda request: request.name)


def _validate_request(request: DeviceRequest, path: FieldPath, context: ValidationContext) -> Iterator[FieldError]:
    yield from formats.validate_dns_label(request.name, path.child("name"))
    exactly, alternatives = request.exactly, request.first_available
    if exactly is not None:
        yield from _validate_declared_request(exactly, context.declared_request(path), context)
    if alternatives:
        yield from _validate_declared_alternatives(alternatives, path.child("firstAvailable"), context)
    if exactly is None and not alternatives:
        yield required(path, "one of exactly and firstAvailable is required")
    elif exactly is not None and alternatives:
        yield invalid(path, request.name, "exactly and firstAvailable are mutually exclusive")
    elif exactly is not None:
        yield from _validate_exact(exactly, path.child("exactly"), context)
    elif len(alternatives) <= ALTERNATIVES_COUNT_MAX:
        for position, alternative in enumerate(alternatives):
            yield from _validate_alternative(alternative, path.child("firstAvailable").index(position), context)


def _modes(context: ValidationContext) -> tuple[str, ...]:
    return (AGGREGATED_CAPACITY, ALL, EXACT_COUNT) if "DRAAggregatedCapacity" in context.gates else (ALL, EXACT_COUNT)


def _validate_declared_request(
    request: ExactDeviceRequest | DeviceSubRequest, path: FieldPath, context: ValidationContext
) -> Iterator[FieldError]:
    yield from validate_selectors_size(request.selectors, path.child("selectors"))
    if request.allocation_mode:
        yield from formats.validate_choice(request.allocation_mode, path.child("allocationMode"), _modes(context))
    for position, toleration in enumerate(request.tolerations):
        yield from validate_toleration_choices(toleration, path.child("tolerations").index(position))


def _validate_declared_alternatives(
    alternatives: tuple[DeviceSubRequest, ...], path: FieldPath, context: ValidationContext
) -> Iterator[FieldError]:
    if len(alternatives) > ALTERNATIVES_COUNT_MAX:
        yield too_many(path, len(alternatives), ALTERNATIVES_COUNT_MAX)
        return
    for position, alternative in enumerate(alternatives):
        where = path.index(position)
        yield from formats.validate_required_subdomain(alternative.device_class_name, where.child("deviceClassName"))
        yield from _validate_declared_request(alternative, where, context)
    yield from formats.validate_unique(alternatives, path, lambda alternative: alternative.name)


def _validate_exact(request: ExactDeviceRequest, path: FieldPath, context: ValidationContext) -> Iterator[FieldError]:
    yield from formats.validate_required_subdomain(request.device_class_name, path.child("deviceClassName"))
    yield from _validate_ask(request, path, context)


def _validate_alternative(
    request: DeviceSubRequest, path: FieldPath, context: ValidationContext
) -> Iterator[FieldError]:
    yield from formats.validate_dns_label(request.name, path.child("name"))
    yield from _validate_ask(request, path, context)


def _validate_ask(
    request: ExactDeviceRequest | DeviceSubRequest, path: FieldPath, context: ValidationContext
) -> Iterator[FieldError]:
    yield from validate_selectors(request.selectors, path.child("selectors"), context)
    if not request.allocation_mode:
        yield not_supported(path.child("allocationMode"), "", _modes(context))
    elif request.allocation_mode == EXACT_COUNT and request.count <= 0:
        yield invalid(path.child("count"), request.count, "must be greater than zero")
    elif request.allocation_mode == ALL and request.count != 0:
        yield invalid(path.child("count"), request.count, "must not be set when allocationMode is All")
    for position, toleration in enumerate(request.tolerations):
        yield from validate_toleration_value(toleration, path.child("tolerations").index(position))
    yield from validate_requested_capacity(request, path)


# --- References to requests ------------------------------------------------------------------------------------


class RequestNames:
    """The names that constraints, configuration and results can refer to: requests, and alternatives as `main/sub`."""

    __slots__ = ("_alternatives",)

    def __init__(self, devices: DeviceClaim) -> None:
        self._alternatives = {
            request.name: frozenset(alternative.name for alternative in request.first_available)
            for request in devices.requests or ()
        }

    def validate_reference(self, reference: str, path: FieldPath) -> Iterator[FieldError]:
        segments = reference.split("/")
        if len(segments) > 2:
            yield invalid(path, reference, "must be the name of a request, or request/subrequest")
            return
        for segment in segments:
            yield from formats.validate_dns_label(segment, path)
        main, sub = segments[0], segments[1:]
        alternatives = self._alternatives.get(main)
        if alternatives is None or (sub and sub[0] not in alternatives):
            yield invalid(path, reference, "the claim has no such request")

    def validate_references(self, references: tuple[str, ...], path: FieldPath) -> Iterator[FieldError]:
        if len(references) > REQUESTS_COUNT_MAX:
            yield too_many(path, len(references), REQUESTS_COUNT_MAX)
            return
        for position, reference in enumerate(references):
            yield from self.validate_reference(reference, path.index(position))
        yield from formats.validate_unique(references, path, lambda reference: reference)


def _validate_constraints(
    constraints: tuple[DeviceConstraint, ...], path: FieldPath, names: RequestNames, context: ValidationContext
) -> Iterator[FieldError]:
    if len(constraints) > CONSTRAINTS_COUNT_MAX:
        yield too_many(path, len(constraints), CONSTRAINTS_COUNT_MAX)
        return
    for position, constraint in enumerate(constraints):
        where = path.index(position)
        yield from names.validate_references(constraint.requests, where.child("requests"))
        yield from _validate_attributes(constraint, where, context)


def _validate_attributes(
    constraint: DeviceConstraint, path: FieldPath, context: ValidationContext
) -> Iterator[FieldError]:
    """Kubernetes accepts a constraint with both attributes; admission warns about it."""
    if constraint.match_attribute is not None:
        yield from formats.validate_fully_qualified_name(constraint.match_attribute, path.child("matchAttribute"))
    if constraint.distinct_attribute is not None:
        yield from formats.validate_fully_qualified_name(constraint.distinct_attribute, path.child("distinctAttribute"))
    if constraint.distinct_attributes:
        yield from _validate_distinct_attributes(constraint, path)
    elif constraint.match_attribute is None and constraint.distinct_attribute is None:
        if "DRADistinctAttributes" in context.gates:
            yield required(path, "one of matchAttribute, distinctAttribute and distinctAttributes is required")
        elif "DRAConsumableCapacity" in context.gates:
            yield required(path, "one of matchAttribute and distinctAttribute is required")
        else:
            yield required(path.child("matchAttribute"))


def _validate_distinct_attributes(constraint: DeviceConstraint, path: FieldPath) -> Iterator[FieldError]:
    names, where = constraint.distinct_attributes, path.child("distinctAttributes")
    if constraint.match_attribute is not None or constraint.distinct_attribute is not None:
        yield forbidden(where, "matchAttribute and distinctAttribute exclude distinctAttributes")
    if len(names) < DISTINCT_ATTRIBUTES_COUNT_MIN:
        yield invalid(where, names, "must have at least two attributes; use distinctAttribute for one")
    elif len(names) > DISTINCT_ATTRIBUTES_COUNT_MAX:
        yield too_many(where, len(names), DISTINCT_ATTRIBUTES_COUNT_MAX)
        return
    for position, name in enumerate(names):
        yield from formats.validate_fully_qualified_name(name, where.index(position))
    yield from formats.validate_unique(names, where, lambda name: name)


def _validate_config(
    config: tuple[DeviceClaimConfiguration, ...], path: FieldPath, names: RequestNames
) -> Iterator[FieldError]:
    if len(config) > CONFIG_COUNT_MAX:
        yield too_many(path, len(config), CONFIG_COUNT_MAX)
        return
    for position, entry in enumerate(config):
        where = path.index(position)
        yield from names.validate_references(entry.requests, where.child("requests"))
        yield from validate_opaque(entry.opaque, where.child("opaque"))


# --- Derived attributes ---------------------------------------------------------------------------------------------
# Derived attributes: values that a request computes from devices for use in constraints.


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
