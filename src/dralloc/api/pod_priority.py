"""The priority of a new pod: that of its PriorityClass, or of the default class. A pod that states another one is refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dralloc.api.meta_v1 import ObjectMeta
from dralloc.api.scheduling_v1 import PREEMPT_LOWER, SYSTEM_CLASSES, PriorityClass

# Applies to pods without a class.
_UNCLASSED: Final = PriorityClass(preemption_policy=PREEMPT_LOWER)


def class_of_pod(name: str, classes: Mapping[str, PriorityClass]) -> PriorityClass | None:
    """The class that a pod names, if it exists; without a name, the default class.

    If concurrent writes made several default classes, the one with the lowest value counts.
    """
    if not name:
        return min((each for each in classes.values() if each.global_default), key=_value, default=_UNCLASSED)
    if name not in classes and name in SYSTEM_CLASSES:
        return PriorityClass(metadata=ObjectMeta(name=name), value=SYSTEM_CLASSES[name])
    return classes.get(name)


def given_by(found: PriorityClass) -> dict[str, Any]:
    """The fields of a pod's spec that its class decides."""
    return {"priority": found.value, "preemptionPolicy": found.preemption_policy or PREEMPT_LOWER}


def priority_refusal(name: str, found: PriorityClass | None, stated: Mapping[str, Any]) -> str | None:
    """Why a new pod that names this class and states these fields is refused; None if it is not."""
    if found is None:
        return f"no PriorityClass with name {name} was found"
    for member, value in given_by(found).items():
        if stated.get(member) not in (None, value):
            whose = f"its PriorityClass {found.metadata.name}" if found.metadata.name else "a pod without PriorityClass"
            return f"{member} cannot be {stated[member]}: {whose} has {value}"
    return None


def _value(each: PriorityClass) -> int:
    return each.value
