"""What a claim needs once those who hold it are done with it."""

from __future__ import annotations

from dataclasses import dataclass

from dralloc.api.pod_claims import CLAIM_FINALIZER
from dralloc.api.pod_v1 import Pod
from dralloc.api.resource_v1 import ConsumerReference, ResourceClaim


@dataclass(frozen=True, slots=True)
class RemoveConsumers:
    """Keep only these of those who hold the claim. What it got stays with it."""

    claim: ResourceClaim
    kept: tuple[ConsumerReference, ...]


@dataclass(frozen=True, slots=True)
class Deallocate:
    """Nobody holds the claim: give its devices back, then take the protection off."""

    claim: ResourceClaim


@dataclass(frozen=True, slots=True)
class RemoveFinalizer:
    """Let a claim go that has nothing and is on its way out."""

    claim: ResourceClaim


@dataclass(frozen=True, slots=True)
class DeleteClaim:
    """Delete a claim that was made for a pod which is done."""

    claim: ResourceClaim


ClaimAction = RemoveConsumers | Deallocate | RemoveFinalizer | DeleteClaim


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerFacts:
    """What is known of those who hold a claim."""

    # UIDs of those on its list that are done or proven gone.
    departed: frozenset[str] = frozenset()
    # Whether a pod that has a node and has not ended uses the claim, listed or not.
    in_use: bool = False
    # Whether the pod that the claim was made for is done.
    owner_is_done: bool = False


def is_done(pod: Pod) -> bool:
    """Whether the pod will never use its claims again: it has ended, or is deleted before it got a node.

    A pod that has a node and is being deleted may still be running there.
    """
    return pod.is_finished or (pod.is_terminating and not pod.spec.node_name)


def plan_claim(claim: ResourceClaim, holders: ConsumerFacts) -> tuple[ClaimAction, ...]:
    """What to do with the claim, in this order.

    An empty list does not yet mean that a claim is free: where a workload held it, its pods were never listed, and
    some may still run. And a claim that is allocated without protection was allocated by hand: no scheduler gave it
    to anybody, so nobody gives it back.
    """
    listed = claim.status.reserved_for
    kept = tuple(consumer for consumer in listed if consumer.uid not in holders.departed)
    if kept or holders.in_use:
        return (RemoveConsumers(claim, kept),) if kept != listed else ()
    is_protected = CLAIM_FINALIZER in claim.metadata.finalizers
    is_deleted = claim.metadata.deletion_timestamp is not None
    actions: list[ClaimAction] = []
    if is_protected and claim.status.allocation is not None:
        actions.append(Deallocate(claim))
    elif listed:
        actions.append(RemoveConsumers(claim, ()))
    elif is_protected and (is_deleted or holders.owner_is_done):
        actions.append(RemoveFinalizer(claim))
    if holders.owner_is_done and not is_deleted:
        actions.append(DeleteClaim(claim))
    return tuple(actions)
