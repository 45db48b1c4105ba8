"""Binding conditions: devices that their driver must make ready before the pod may be bound (KEP-5007).

The driver reports conditions in `status.devices`. An entry belongs to a result if driver, pool, device and share ID agree.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from dralloc.devices.identity import ResultId
from dralloc.kube.meta_v1 import Condition
from dralloc.kube.resource_v1 import DeviceRequestAllocationResult, ResourceClaim
from dralloc.kube.timestamps import stated_time

BINDING_TIMEOUT_S: Final = 600.0


@dataclass(frozen=True, slots=True)
class DevicesReady:
    """All binding conditions are true, or there are none."""


@dataclass(frozen=True, slots=True)
class DevicesPending:
    """These devices have binding conditions that are not true yet."""

    devices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DevicesFailed:
    """A binding failure condition of a device is true."""

    message: str


Readiness = DevicesReady | DevicesPending | DevicesFailed


def readiness(claim: ResourceClaim) -> Readiness:
    pending: list[str] = []
    for result in results_with_conditions(claim):
        conditions = _conditions_of(claim, result)
        name = f"{result.driver}/{result.pool}/{result.device}"
        for wanted in result.binding_failure_conditions:
            if (condition := conditions.get(wanted)) is not None:
                detail = ": ".join(filter(None, (condition.reason, condition.message)))
                return DevicesFailed(f"device {name}: {wanted} is true" + (f" ({detail})" if detail else ""))
        if not all(wanted in conditions for wanted in result.binding_conditions):
            pending.append(name)
    return DevicesPending(tuple(pending)) if pending else DevicesReady()


def results_with_conditions(claim: ResourceClaim) -> Iterator[DeviceRequestAllocationResult]:
    allocation = claim.status.allocation
    for result in allocation.devices.results if allocation is not None else ():
        if result.binding_conditions:
            yield result


def is_unusable(claim: ResourceClaim, now: datetime) -> bool:
    """True if a device of the claim failed its binding conditions or missed the deadline."""
    match readiness(claim):
        case DevicesReady():
            return False
        case DevicesFailed():
            return True
        case DevicesPending():
            deadline = binding_deadline(claim)
            return deadline is not None and now >= deadline


def binding_deadline(claim: ResourceClaim) -> datetime | None:
    """When the claim's devices must be ready; None if the allocation has no valid timestamp."""
    allocation = claim.status.allocation
    since = stated_time(allocation.allocation_timestamp) if allocation is not None else None
    return since + timedelta(seconds=BINDING_TIMEOUT_S) if since is not None else None


def _conditions_of(claim: ResourceClaim, result: DeviceRequestAllocationResult) -> dict[str, Condition]:
    """The device's true conditions, by type."""
    wanted = ResultId.of(result)
    status = next((entry for entry in claim.status.devices if ResultId.of(entry) == wanted), None)
    conditions = (status.conditions or ()) if status is not None else ()
    return {condition.type: condition for condition in conditions if condition.status == "True"}
