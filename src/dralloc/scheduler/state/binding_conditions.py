"""Devices that must be made ready on a node before a pod may be bound to it, as told by conditions in the claim's status.

A device's entry is found by driver, pool, device and share, because two shares of one device may be told apart only so.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from dralloc.api.meta_v1 import Condition
from dralloc.api.resource_v1 import DeviceRequestAllocationResult, ResourceClaim
from dralloc.api.timestamps import BadTimestamp, parse_timestamp
from dralloc.devices.identity import ResultId

BINDING_TIMEOUT_S: Final = 600.0


@dataclass(frozen=True, slots=True)
class Ready:
    """Every device that has to be is ready, or none has to be."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """Some devices are not ready yet."""

    devices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Failed:
    """A device says that it cannot be made ready."""

    message: str


Readiness = Ready | Waiting | Failed


def readiness(claim: ResourceClaim) -> Readiness:
    waiting: list[str] = []
    for result in results_with_conditions(claim):
        conditions = _conditions_of(claim, result)
        name = f"{result.driver}/{result.pool}/{result.device}"
        for wanted in result.binding_failure_conditions:
            if (condition := conditions.get(wanted)) is not None:
                detail = ": ".join(filter(None, (condition.reason, condition.message)))
                return Failed(f"device {name}: {wanted} is true" + (f" ({detail})" if detail else ""))
        if not all(wanted in conditions for wanted in result.binding_conditions):
            waiting.append(name)
    return Waiting(tuple(waiting)) if waiting else Ready()


def results_with_conditions(claim: ResourceClaim) -> Iterator[DeviceRequestAllocationResult]:
    allocation = claim.status.allocation
    for result in allocation.devices.results if allocation is not None else ():
        if result.binding_conditions:
            yield result


def is_unusable(claim: ResourceClaim, now: datetime, timeout_s: float = BINDING_TIMEOUT_S) -> bool:
    """Whether making the claim's devices ready has failed, or has taken too long."""
    match readiness(claim):
        case Ready():
            return False
        case Failed():
            return True
        case Waiting():
            deadline = binding_deadline(claim, timeout_s)
            return deadline is not None and now >= deadline


def binding_deadline(claim: ResourceClaim, timeout_s: float = BINDING_TIMEOUT_S) -> datetime | None:
    """When waiting for the claim's devices has taken too long; None where nobody noted when it began."""
    allocation = claim.status.allocation
    if allocation is None or allocation.allocation_timestamp is None:
        return None
    try:
        return parse_timestamp(allocation.allocation_timestamp) + timedelta(seconds=timeout_s)
    except BadTimestamp:
        return None


def _conditions_of(claim: ResourceClaim, result: DeviceRequestAllocationResult) -> dict[str, Condition]:
    """The device's conditions that are true."""
    wanted = ResultId.of(result)
    status = next((entry for entry in claim.status.devices if ResultId.of(entry) == wanted), None)
    conditions = (status.conditions or ()) if status is not None else ()
    return {condition.type: condition for condition in conditions if condition.status == "True"}
