"""Whether a taint keeps a request off a device."""

from __future__ import annotations

from collections.abc import Iterable

from dralloc.api.resource_v1 import EQUAL, NO_EXECUTE, NO_SCHEDULE, DeviceTaint, DeviceToleration


def repels(taint: DeviceTaint, tolerations: Iterable[DeviceToleration]) -> bool:
    """Whether the taint stops scheduling and none of the tolerations covers it."""
    if taint.effect not in (NO_SCHEDULE, NO_EXECUTE):
        return False
    return not any(tolerates(toleration, taint) for toleration in tolerations)


def tolerates(toleration: DeviceToleration, taint: DeviceTaint) -> bool:
    """Whether the toleration covers the taint; without a key or an effect it covers every one."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    match toleration.operator or EQUAL:
        case "Exists":
            return True
        case "Equal":
            return toleration.value == taint.value
        case _:
            return False
