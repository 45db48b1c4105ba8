"""What to do when a node asks for a claim to be prepared: decided from what the server says and what is remembered.

A node asks again after a lost answer, after a restart, after a failure; the same question must get the same answer.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dralloc.api.resource_v1 import DeviceRequestAllocationResult, ResourceClaim
from dralloc.driver.checkpoint import PreparationRecord, is_uid
from dralloc.driver.claims import ClaimReference


@dataclass(frozen=True, slots=True)
class Unreachable:
    """The server did not answer when it was asked for the claim."""

    reason: str


@dataclass(frozen=True, slots=True)
class Missing:
    """The server has no such claim."""


FetchedClaim = ResourceClaim | Missing | Unreachable


@dataclass(frozen=True, slots=True)
class Refuse:
    """Do nothing, and say why."""

    reason: str


@dataclass(frozen=True, slots=True)
class Repeat:
    """It is prepared already: give the same answer."""

    record: PreparationRecord


@dataclass(frozen=True, slots=True)
class Ignore:
    """The claim has nothing of this driver."""


@dataclass(frozen=True, slots=True)
class Prepare:
    """Let the driver prepare the claim; where it has something else under this UID, release that first."""

    claim: ResourceClaim
    before: PreparationRecord | None = None
    release: bool = False


PrepareDecision = Refuse | Repeat | Ignore | Prepare


@dataclass(frozen=True, slots=True, kw_only=True)
class PrepareContext:
    """What is known when a node asks."""

    driver: str
    boot_id: str
    record: PreparationRecord | None = None
    # The records of other claims.
    others: tuple[PreparationRecord, ...] = ()


def decide_prepare(reference: ClaimReference, fetched: FetchedClaim, situation: PrepareContext) -> PrepareDecision:
    """What becomes of one claim of a NodePrepareResources call."""
    record = situation.record
    is_ready = record is not None and record.is_prepared and record.boot_id == situation.boot_id
    match fetched:
        case Unreachable(reason):
            # What is prepared stays so, whatever the network does.
            return Repeat(record) if record is not None and is_ready else Refuse(f"claim {reference}: {reason}")
        case Missing():
            return Refuse(f"claim {reference} does not exist")
    if fetched.metadata.uid != reference.uid or not is_uid(reference.uid):
        return Refuse(f"claim {reference} was replaced: its UID is {fetched.metadata.uid}, not {reference.uid}")
    if fetched.status.allocation is None:
        return Refuse(f"claim {reference} is not allocated")
    results = own_results(fetched, situation.driver)
    is_same = record is not None and own_results(record.claim, situation.driver) == results
    if record is not None and is_ready and is_same:
        return Repeat(record)
    if not results and record is None:
        return Ignore()
    if conflict := _find_conflict(results, situation):
        return Refuse(f"claim {reference}: {conflict}")
    return Prepare(fetched, before=record, release=record is not None and not is_same)


def own_results(claim: ResourceClaim, driver: str) -> tuple[DeviceRequestAllocationResult, ...]:
    allocation = claim.status.allocation
    if allocation is None:
        return ()
    return tuple(result for result in allocation.devices.results if result.driver == driver)


def _find_conflict(results: Iterable[DeviceRequestAllocationResult], situation: PrepareContext) -> str | None:
    """The last line of defence: a device that is not shared belongs to one claim. Administrators look on."""
    for result in results:
        if result.admin_access:
            continue
        for other in situation.others:
            for held in own_results(other.claim, situation.driver):
                is_same_device = (held.pool, held.device) == (result.pool, result.device)
                is_shared = held.share_id is not None and result.share_id is not None
                if is_same_device and not is_shared and not held.admin_access:
                    return f"device {result.pool}/{result.device} is in use by claim {other.reference}"
    return None
