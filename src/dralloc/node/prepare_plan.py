"""Decides whether the claims of a pod can be prepared, and which driver is called for which claims.

All checks come before any change, so a pod whose claims cannot be prepared can be deleted without a call to a driver.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from dralloc.kube.pod_claims import ClaimUse, claims_of, is_reserved_for, may_use
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import ResourceClaim
from dralloc.node.checkpoint import PREPARE, UNPREPARE, ClaimRecord
from dralloc.node.claim_cache import ClaimEntry


@dataclass(frozen=True, slots=True)
class CannotPrepare:
    """The claims of the pod cannot be prepared now; the text is for the pod's owner."""

    text: str


@dataclass(frozen=True, slots=True)
class Batch:
    """One call to a driver, and its claims."""

    driver: str
    claims: tuple[ClaimRecord, ...]


def resolve_claims(pod: Pod) -> tuple[ClaimUse, ...] | CannotPrepare:
    """The claims that the pod uses, if all of them exist."""
    recorded = {entry.name for entry in pod.status.resource_claim_statuses}
    for entry in pod.spec.resource_claims:
        if entry.resource_claim_name is None and entry.resource_claim_template_name is None:
            return CannotPrepare(f"pod claim {entry.name}: resourceClaimName or resourceClaimTemplateName is required")
        if entry.resource_claim_name is None and entry.name not in recorded:
            return CannotPrepare(f"pod claim {entry.name}: ResourceClaim not created yet")
    return tuple(claims_of(pod))


def may_overlap(entry: ClaimEntry, claims: Iterable[ResourceClaim]) -> bool:
    """True if the entry is of another claim and may hold a device of these claims: its own are not always known."""
    for claim in claims:
        if claim.metadata.uid == entry.record.uid or claim.status.allocation is None:
            continue
        for result in claim.status.allocation.devices.results:
            part = entry.record.drivers.get(result.driver)
            if part is not None and (
                not part.devices
                or any((each.pool, each.device) == (result.pool, result.device) for each in part.devices)
            ):
                return True
    return False


def check_claim(
    use: ClaimUse,
    claim: ResourceClaim,
    pod: Pod,
    is_registered: Callable[[str], bool],
    *,
    for_workloads: bool = True,
    for_groups: bool = False,
) -> CannotPrepare | None:
    """The reason why the pod may not use the claim on this node now, if any. `for_workloads`: the gate DRAReservedForWorkloads;
    `for_groups`: the gate DRAWorkloadResourceClaims."""
    name, uid = claim.metadata.name, claim.metadata.uid
    if not may_use(use, claim, pod, for_groups=for_groups):
        return CannotPrepare(f"ResourceClaim {name} was not created for pod {pod.metadata.name} ({pod.metadata.uid})")
    if not is_reserved_for(claim, pod, for_workloads=for_workloads, for_groups=for_groups):
        return CannotPrepare(
            f"pod {pod.metadata.name} ({pod.metadata.uid}) is not allowed to use ResourceClaim {name} ({uid})"
        )
    if claim.status.allocation is None:
        return CannotPrepare(f"ResourceClaim {name}: not allocated")
    for result in claim.status.allocation.devices.results:
        if not is_registered(result.driver):
            return CannotPrepare(f"ResourceClaim {name}: DRA driver {result.driver} is not registered")
    return None


def check_entry(claim: ResourceClaim, entry: ClaimEntry | None) -> CannotPrepare | None:
    """The reason why the present entry for the claim's name prevents its preparation, if any."""
    if entry is None:
        return None
    name, uid = entry.record.name, entry.record.uid
    if uid != claim.metadata.uid:
        return CannotPrepare(
            f"old ResourceClaim with same name {name} and different UID {uid} still exists on this node "
            "and is not unprepared yet"
        )
    if entry.is_unpreparing:
        return CannotPrepare(f"ResourceClaim {name} is being unprepared")
    # The claim of a force-deleted pod may be allocated again before the node has unprepared it.
    if has_other_devices(claim, entry):
        return CannotPrepare(f"ResourceClaim {name} is still prepared for an earlier allocation")
    return None


def has_other_devices(claim: ResourceClaim, entry: ClaimEntry) -> bool:
    """True if the claim is allocated other devices than those that were prepared.

    A checkpoint has no allocation: an agent that was started again knows only the devices that drivers reported, and their shares if the
    API of the driver has them.
    """
    now = claim.status.allocation
    if now is None:
        return False
    if entry.allocation is not None:
        return now.devices != entry.allocation.devices
    allocated = {
        (each.driver, each.pool, each.device, share) for each in now.devices.results for share in (None, each.share_id)
    }
    return any(
        (driver, device.pool, device.device, device.share_id) not in allocated
        for driver, device in entry.record.devices()
    )


def prepare_batches(records: Iterable[ClaimRecord]) -> tuple[Batch, ...]:
    """One call for each driver that does not skip it, in the order in which the claims name the drivers."""
    return _batches(records, PREPARE)


def unprepare_batches(records: Iterable[ClaimRecord]) -> tuple[Batch, ...]:
    return _batches(records, UNPREPARE)


def skipping_drivers(records: Iterable[ClaimRecord], operation: str) -> tuple[str, ...]:
    """The drivers whose call is skipped, once for each claim."""
    return tuple(driver for record in records for driver, part in record.drivers.items() if not part.needs(operation))


def shared_devices(claims: Collection[ResourceClaim]) -> Mapping[str, Mapping[str, str]]:
    """By driver and claim UID, a device of which the claim has a share; the driver needs an API with share IDs."""
    found: dict[str, dict[str, str]] = {}
    for claim in claims:
        allocation = claim.status.allocation
        for result in allocation.devices.results if allocation is not None else ():
            if result.share_id is not None:
                found.setdefault(result.driver, {})[claim.metadata.uid] = f"{result.pool}/{result.device}"
    return found


def _batches(records: Iterable[ClaimRecord], operation: str) -> tuple[Batch, ...]:
    by_driver: dict[str, list[ClaimRecord]] = {}
    for record in records:
        for driver, part in record.drivers.items():
            if part.needs(operation):
                by_driver.setdefault(driver, []).append(record)
    return tuple(Batch(driver, tuple(claims)) for driver, claims in by_driver.items())
