"""Which consumers to remove from a claim, and when to deallocate or delete it."""

from __future__ import annotations

from dataclasses import dataclass

from dralloc.kube.pod_claims import CLAIM_FINALIZER
from dralloc.kube.resource_v1 import ConsumerReference, ResourceClaim


@dataclass(frozen=True, slots=True)
class RemoveConsumers:
    """Write the shortened `reservedFor` list. The allocation stays."""

    claim: ResourceClaim
    kept: tuple[ConsumerReference, ...]


@dataclass(frozen=True, slots=True)
class Deallocate:
    """Remove the allocation of a claim without consumers, then its finalizer."""

    claim: ResourceClaim


@dataclass(frozen=True, slots=True)
class RemoveFinalizer:
    """Remove the finalizer of a claim that is not allocated and is being deleted."""

    claim: ResourceClaim


@dataclass(frozen=True, slots=True)
class DeleteClaim:
    """Delete a claim that was created for a pod that is done."""

    claim: ResourceClaim


ClaimAction = RemoveConsumers | Deallocate | RemoveFinalizer | DeleteClaim


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerFacts:
    """What is known about the consumers of a claim."""

    # The UIDs in `reservedFor` of consumers that are done or known to be gone. A workload is not while pods use the claim or
    # are about to: its pods are not listed, and the next one would only add it again.
    gone: frozenset[str] = frozenset()
    # True if a pod with a node that has not finished uses the claim, reserved or not.
    in_use: bool = False
    # True if the pod that the claim was created for is done.
    owner_is_done: bool = False


def plan_claim(claim: ResourceClaim, consumers: ConsumerFacts) -> tuple[ClaimAction, ...]:
    """The actions for the claim, in their order.

    A claim with an empty `reservedFor` list may still be in use: if a workload was listed, its pods never were, and
    some may still run. An allocated claim without the finalizer was allocated by hand, so it is not deallocated.
    """
    listed = claim.status.reserved_for
    kept = tuple(consumer for consumer in listed if consumer.uid not in consumers.gone)
    if kept or consumers.in_use:
        return (RemoveConsumers(claim, kept),) if kept != listed else ()
    is_protected = CLAIM_FINALIZER in claim.metadata.finalizers
    is_deleted = claim.metadata.deletion_timestamp is not None
    # One write for each plan: each is for the version of the claim that the one before it has made.
    if is_protected and claim.status.allocation is not None:
        return (Deallocate(claim),)
    if listed:
        return (RemoveConsumers(claim, ()),)
    if is_protected and (is_deleted or consumers.owner_is_done):
        return (RemoveFinalizer(claim),)
    if consumers.owner_is_done and not is_deleted:
        return (DeleteClaim(claim),)
    return ()
