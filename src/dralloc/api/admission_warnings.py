"""Warnings about values that Kubernetes accepts but that are probably mistakes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from dralloc.api import resource_v1
from dralloc.api.validation.formats import validate_qualified_name
from dralloc.primitives.field_errors import FieldPath

TOLERATIONS_COUNT_MAX: Final = 16

_ZERO_COUNT: Final = re.compile(rb'"count"\s*:\s*-?0\s*[,}]')


def warn_of_slice(spec: resource_v1.ResourceSliceSpec) -> Iterator[str]:
    if spec.driver != spec.driver.lower():
        yield f"spec.driver: driver names should use only lower case characters: {spec.driver!r}"
    for position, device in enumerate(spec.devices or ()):
        for name, capacity in device.capacity.items():
            if capacity.request_policy is not None or capacity.value.nanos < 0:
                yield from _warn_of_capacity(capacity, f"spec.devices[{position}].capacity[{name}]")


def _warn_of_capacity(capacity: resource_v1.DeviceCapacity, path: str) -> Iterator[str]:
    policy = capacity.request_policy
    if capacity.value.nanos < 0:
        yield f"{path}.value: {capacity.value} is negative, so the device serves no request"
    if policy is None:
        return
    where, default, allowed = f"{path}.requestPolicy", policy.default, policy.valid_range
    if policy == resource_v1.CapacityRequestPolicy():
        yield f"{where}: an empty policy has no effect"
    if default is not None and default.sign < 0:
        yield f"{where}.default: {default} is negative, so the device serves no request without an amount of its own"
    elif default is not None and default > capacity.value:
        yield f"{where}.default: {default} is more than the capacity {capacity.value}"
    if allowed is not None and allowed.min is not None and allowed.min.sign < 0:
        yield f"{where}.validRange.min: {allowed.min} is negative"


def warn_of_claim_spec(spec: resource_v1.ResourceClaimSpec, prefix: str) -> Iterator[str]:
    for position, constraint in enumerate(spec.devices.constraints):
        yield from _warn_of_constraint(constraint, f"{prefix}.devices.constraints[{position}]")
    for position, request in enumerate(spec.devices.requests or ()):
        path = f"{prefix}.devices.requests[{position}]"
        if request.exactly is not None:
            yield from _warn_of_ask(request.exactly, f"{path}.exactly")
        for index, alternative in enumerate(request.first_available):
            yield from _warn_of_ask(alternative, f"{path}.firstAvailable[{index}]")


def _warn_of_constraint(constraint: resource_v1.DeviceConstraint, path: str) -> Iterator[str]:
    match, distinct = constraint.match_attribute, constraint.distinct_attribute
    if match is not None and distinct is not None:
        yield f"{path}: a constraint has both matchAttribute and distinctAttribute; use two constraints instead"
    for field, name in (("matchAttribute", match), ("distinctAttribute", distinct)):
        if name is not None and name.count("/") > 1:
            yield f"{path}.{field}: {name!r} has more than one '/', so no device has an attribute of that name"


def _warn_of_ask(ask: resource_v1.ExactDeviceRequest | resource_v1.DeviceSubRequest, path: str) -> Iterator[str]:
    if len(ask.tolerations) > TOLERATIONS_COUNT_MAX:
        yield f"{path}.tolerations: more than {TOLERATIONS_COUNT_MAX} tolerations are not supported"
    for name, amount in ask.capacity.requests.items() if ask.capacity else ():
        where = f"{path}.capacity.requests[{name}]"
        if name.count("/") > 1 or any(validate_qualified_name(name, FieldPath.of("requests"))):
            yield f"{where}: no device has a capacity of that name"
        if amount.sign < 0:
            yield f"{where}: {amount} is negative"


def warn_of_zero_counts(body: bytes) -> Iterator[str]:
    """A count of 0 means the default, 1. Only the JSON that was sent shows the difference from an absent count."""
    if _ZERO_COUNT.search(body) is None:
        return
    pending: list[tuple[str, object]] = [("", msgspec.json.decode(body))]
    for path, node in pending:
        if isinstance(node, dict):
            if (
                node.get("count") == 0
                and node.get("allocationMode", "ExactCount") == "ExactCount"
                and "deviceClassName" in node
            ):
                yield f"{path.removeprefix('.')}.count: 0 is treated as 1"
            pending.extend((f"{path}.{key}", value) for key, value in node.items())
        elif isinstance(node, list):
            pending.extend((f"{path}[{position}]", value) for position, value in enumerate(node))
