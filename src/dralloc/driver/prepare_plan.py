"""Decides how to handle a NodePrepareResources call for one claim, from the API server's claim and the checkpoint.

A kubelet repeats calls after a lost answer, a restart or a failure, and must get the same answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass

from dralloc.driver.checkpoint import PreparationRecord, is_uid
from dralloc.driver.claims import ClaimReference
from dralloc.kube.resource_v1 import DeviceRequestAllocationResult, ResourceClaim


@dataclass(frozen=True, slots=True)
class Unreachable:
    """The claim could not be read from the API server."""

    reason: str


@dataclass(frozen=True, slots=True)
class Missing:
    """The claim does not exist."""


FetchedClaim = ResourceClaim | Missing | Unreachable


@dataclass(frozen=True, slots=True)
class Refuse:
    """Answer with an error."""

    reason: str


@dataclass(frozen=True, slots=True)
class Repeat:
    """The claim is already prepared: give the same answer."""

    record: PreparationRecord


@dataclass(frozen=True, slots=True)
class Ignore:
    """The claim has no devices of this driver."""


@dataclass(frozen=True, slots=True)
class Prepare:
    """Let the driver prepare the claim; with `release`, unprepare an earlier allocation first."""

    claim: ResourceClaim
    before: PreparationRecord | None = None
    release: bool = False


PrepareDecision = Refuse | Repeat | Ignore | Prepare


@dataclass(frozen=True, slots=True, kw_only=True)
class PrepareContext:
    """The state of the driver at the time of the call."""

    driver: str
    boot_id: str
    # Pool and name of the devices that the driver has.
    published: Set[tuple[str, str]]
    record: PreparationRecord | None = None
    # The records of other claims.
    others: tuple[PreparationRecord, ...] = ()


def decide_prepare(reference: ClaimReference, fetched: FetchedClaim, situation: PrepareContext) -> PrepareDecision:
    """How to handle one claim of a NodePrepareResources call."""
    record = situation.record
    is_ready = record is not None and record.is_prepared and record.boot_id == situation.boot_id
    match fetched:
        case Unreachable(reason):
            # A prepared claim stays prepared without the API server.
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
    # Pools of devices that all nodes reach are published elsewhere.
    pools = {pool for pool, _ in situation.published}
    own = [result for result in results if result.pool in pools]
    if missing := [result for result in own if (result.pool, result.device) not in situation.published]:
        return Refuse(f"claim {reference}: device {missing[0].pool}/{missing[0].device} is not on this node (any more)")
    if conflict := _find_conflict(results, situation):
        return Refuse(f"claim {reference}: {conflict}")
    return Prepare(fetched, before=record, release=record is not None and not is_same)


def own_results(claim: ResourceClaim, driver: str) -> tuple[DeviceRequestAllocationResult, ...]:
    allocation = claim.status.allocation
    if allocation is None:
        return ()
    return tuple(result for result in allocation.devices.results if result.driver == driver)


def _find_conflict(results: Iterable[DeviceRequestAllocationResult], situation: PrepareContext) -> str | None:
    """Detects an over-allocation: a device without shares belongs to one claim, except for admin access."""
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
