"""Conditions in a status, and the binding conditions of devices."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dralloc.kube.meta_v1 import Condition
from dralloc.kube.validation.formats import validate_choice, validate_format, validate_unique
from dralloc.primitives import names
from dralloc.primitives.field_errors import FieldError, FieldPath, duplicate, invalid, required, too_long, too_many
from dralloc.primitives.names import length_in_bytes

REASON_LENGTH_MAX: Final = 1024
MESSAGE_LENGTH_MAX: Final = 32 * 1024
BINDING_CONDITIONS_COUNT_MAX: Final = 4


def validate_conditions(
    conditions: tuple[Condition, ...], path: FieldPath, count_max: int | None = None
) -> Iterator[FieldError]:
    """Validates each condition even if there are too many."""
    if count_max is not None and len(conditions) > count_max:
        yield too_many(path, len(conditions), count_max)
    for position, condition in enumerate(conditions):
        yield from _validate_condition(condition, path.index(position))
    yield from validate_unique(conditions, path, lambda condition: condition.type)


def _validate_condition(condition: Condition, path: FieldPath) -> Iterator[FieldError]:
    if not condition.type:
        yield required(path.child("type"))
    else:
        yield from validate_format(condition.type, path.child("type"), names.label_key)
    if not condition.status:
        yield required(path.child("status"))
    else:
        yield from validate_choice(condition.status, path.child("status"), ("True", "False", "Unknown"))
    if condition.observed_generation < 0:
        yield invalid(
            path.child("observedGeneration"), condition.observed_generation, "must be greater than or equal to zero"
        )
    if condition.last_transition_time is None:
        yield required(path.child("lastTransitionTime"))
    if not condition.reason:
        yield required(path.child("reason"))
    else:
        yield from validate_format(condition.reason, path.child("reason"), names.condition_reason)
        if length_in_bytes(condition.reason) > REASON_LENGTH_MAX:
            yield too_long(path.child("reason"), REASON_LENGTH_MAX)
    if length_in_bytes(condition.message) > MESSAGE_LENGTH_MAX:
        yield too_long(path.child("message"), MESSAGE_LENGTH_MAX)


def validate_binding_conditions(
    conditions: tuple[str, ...], failures: tuple[str, ...], path: FieldPath, declared: FieldPath
) -> Iterator[FieldError]:
    """Conditions that must hold before a pod is bound, and those that must not: either both lists are set or neither."""
    if not conditions and not failures:
        return
    for field, types in (("bindingConditions", conditions), ("bindingFailureConditions", failures)):
        if len(types) > BINDING_CONDITIONS_COUNT_MAX:
            yield too_many(declared.child(field), len(types), BINDING_CONDITIONS_COUNT_MAX)
        else:
            for position, name in enumerate(types):
                yield from validate_format(name, path.child(field).index(position), names.label_key)
        yield from validate_unique(types, path.child(field), lambda name: name)
    for position, name in enumerate(failures):
        if name in conditions:
            where = path.child("bindingFailureConditions").index(position)
            yield invalid(where, name, "cannot be both a binding condition and a binding failure condition")
    if failures and not conditions:
        yield invalid(path.child("bindingConditions"), [], "required when bindingFailureConditions is set")
    if conditions and not failures:
        yield invalid(path.child("bindingFailureConditions"), [], "required when bindingConditions is set")


SKIPPABLE_OPERATIONS: Final = ("NodePrepareResources", "NodeUnprepareResources", "*")


def validate_skipped_operations(operations: tuple[str, ...], path: FieldPath) -> Iterator[FieldError]:
    for position, operation in enumerate(operations):
        yield from validate_choice(operation, path.index(position), SKIPPABLE_OPERATIONS)
    for position, operation in enumerate(operations):
        if operation in operations[:position]:
            yield duplicate(path.index(position), operation)


def validate_unprepare_skipped(operations: tuple[str, ...], path: FieldPath) -> Iterator[FieldError]:
    """A driver that skips preparing must skip unpreparing, too."""
    if "NodePrepareResources" in operations and not {"NodeUnprepareResources", "*"}.intersection(operations):
        yield invalid(
            path, list(operations), "NodePrepareResources can only be skipped together with NodeUnprepareResources"
        )
