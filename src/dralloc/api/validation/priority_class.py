"""Priority classes: allowed names and values, and immutable fields."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dralloc.api.scheduling_v1 import PREEMPTION_POLICIES, SYSTEM_CLASSES, SYSTEM_PREFIX, USERS_HIGHEST, PriorityClass
from dralloc.api.validation.formats import validate_choice
from dralloc.primitives.field_errors import FieldError, FieldPath, forbidden, invalid

NAME: Final = FieldPath.of("metadata", "name")
VALUE: Final = FieldPath.of("value")
PREEMPTION_POLICY: Final = FieldPath.of("preemptionPolicy")


def validate_priority_class(new: PriorityClass) -> Iterator[FieldError]:
    name = new.metadata.name
    if name.startswith(SYSTEM_PREFIX):
        if new.value != SYSTEM_CLASSES.get(name) or new.global_default:
            yield forbidden(NAME, f"names that begin with '{SYSTEM_PREFIX}' are reserved for the system")
    elif new.value > USERS_HIGHEST:
        yield forbidden(VALUE, f"the highest value of a user-defined class is {USERS_HIGHEST}")
    if new.preemption_policy is not None:
        yield from validate_choice(new.preemption_policy, PREEMPTION_POLICY, PREEMPTION_POLICIES)


def validate_priority_class_update(new: PriorityClass, old: PriorityClass) -> Iterator[FieldError]:
    """Pods keep the priority of their creation, so a class must not change its meaning."""
    if new.value != old.value:
        yield forbidden(VALUE, "may not be changed in an update")
    if new.preemption_policy != old.preemption_policy:
        yield invalid(PREEMPTION_POLICY, new.preemption_policy, "field is immutable")
