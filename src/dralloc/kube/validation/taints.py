"""Taints of devices, and tolerations of requests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dralloc.kube import resource_v1
from dralloc.kube.resource_v1 import DeviceTaintRule, DeviceTaintSelector
from dralloc.kube.validation.conditions import validate_conditions
from dralloc.kube.validation.formats import (
    validate_choice,
    validate_dns_label,
    validate_driver_name,
    validate_format,
    validate_pool_name,
)
from dralloc.kube.validation.metadata import validate_metadata, validate_metadata_update
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


# --- Device taint rule ----------------------------------------------------------------------------------------------
# DeviceTaintRule: a taint that an administrator adds to devices.


CONDITIONS_COUNT_MAX: Final = 8

SPEC: Final = FieldPath.of("spec")
STATUS: Final = FieldPath.of("status")


def validate_device_taint_rule(rule: DeviceTaintRule) -> Iterator[FieldError]:
    yield from validate_metadata(rule.metadata, namespaced=False)
    yield from _validate_selector(rule.spec.device_selector)
    yield from validate_taint(rule.spec.taint, SPEC.child("taint"))
    yield from validate_effect(rule.spec.taint, SPEC.child("taint"))


def validate_device_taint_rule_update(new: DeviceTaintRule, old: DeviceTaintRule) -> Iterator[FieldError]:
    """A stored effect is accepted, even one that this version does not know."""
    yield from validate_metadata_update(new.metadata, old.metadata)
    yield from _validate_selector(new.spec.device_selector)
    yield from validate_taint(new.spec.taint, SPEC.child("taint"))
    if new.spec.taint.effect != old.spec.taint.effect:
        yield from validate_effect(new.spec.taint, SPEC.child("taint"))


def validate_device_taint_rule_status_update(new: DeviceTaintRule, old: DeviceTaintRule) -> Iterator[FieldError]:
    yield from validate_metadata_update(new.metadata, old.metadata)
    yield from validate_conditions(new.status.conditions, STATUS.child("conditions"), CONDITIONS_COUNT_MAX)


def _validate_selector(selector: DeviceTaintSelector | None) -> Iterator[FieldError]:
    if selector is None:
        return
    path = SPEC.child("deviceSelector")
    if selector.driver is not None:
        yield from validate_driver_name(selector.driver, path.child("driver"))
    if selector.pool is not None:
        yield from validate_pool_name(selector.pool, path.child("pool"))
    if selector.device is not None:
        yield from validate_dns_label(selector.device, path.child("device"))
