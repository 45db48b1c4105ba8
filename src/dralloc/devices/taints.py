"""Device taints: their text form, and which tolerations cover them."""

from __future__ import annotations

from collections.abc import Iterable

from dralloc.api.core_v1 import Taint
from dralloc.api.resource_v1 import EQUAL, NO_EXECUTE, NO_SCHEDULE, DeviceTaint, DeviceToleration


def repels(taint: DeviceTaint, tolerations: Iterable[DeviceToleration]) -> bool:
    """True if the taint prevents allocation and no toleration covers it."""
    if taint.effect not in (NO_SCHEDULE, NO_EXECUTE):
        return False
    return not any(tolerates(toleration, taint) for toleration in tolerations)


def tolerates(toleration: DeviceToleration, taint: DeviceTaint) -> bool:
    """True if the toleration covers the taint. A toleration without a key or an effect covers all of them."""
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


def text_of_taint(taint: DeviceTaint | Taint) -> str:
    """The taint as `key=value:effect`."""
    value = f"={taint.value}" if taint.value else ""
    return f"{taint.key}{value}:{taint.effect}"
