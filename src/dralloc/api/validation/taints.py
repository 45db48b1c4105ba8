"""Taints of devices, and tolerations of requests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dralloc.api import resource_v1
from dralloc.api.validation.formats import validate_choice, validate_format
from dralloc.primitives import names
from dralloc.primitives.field_errors import FieldError, FieldPath, invalid, required

EFFECTS: Final = (resource_v1.EFFECT_NONE, resource_v1.NO_SCHEDULE, resource_v1.NO_EXECUTE)
OPERATORS: Final = (resource_v1.EQUAL, resource_v1.EXISTS)


def validate_taint(taint: resource_v1.DeviceTaint, path: FieldPath) -> Iterator[FieldError]:
    """Key and value; the effect is validated separately, because it has different conditions."""
    yield from validate_format(taint.key, path.child("key"), names.label_key)
    yield from validate_format(taint.value, path.child("value"), names.label_value)


def validate_effect(taint: resource_v1.DeviceTaint, path: FieldPath) -> Iterator[FieldError]:
    if not taint.effect:
        yield required(path.child("effect"))
    else:
        yield from validate_choice(taint.effect, path.child("effect"), EFFECTS)


def validate_toleration_choices(toleration: resource_v1.DeviceToleration, path: FieldPath) -> Iterator[FieldError]:
    """Key, operator and effect, which have declared rules."""
    if toleration.key:
        yield from validate_format(toleration.key, path.child("key"), names.label_key)
    if toleration.operator:
        yield from validate_choice(toleration.operator, path.child("operator"), OPERATORS)
    if toleration.effect:
        yield from validate_choice(toleration.effect, path.child("effect"), EFFECTS)


def validate_toleration_value(toleration: resource_v1.DeviceToleration, path: FieldPath) -> Iterator[FieldError]:
    match toleration.operator:
        case "":
            yield required(path.child("operator"))
        case "Exists":
            if toleration.value:
                yield invalid(path.child("value"), toleration.value, "must be empty for operator Exists")
        case "Equal":
            yield from validate_format(toleration.value, path.child("value"), names.label_value)
