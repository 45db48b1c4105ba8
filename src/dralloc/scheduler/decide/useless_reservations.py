"""Claims that are reserved for pods without a node which cannot use them.

A gang that is not placed holds nothing: others could use the devices, and two gangs that hold half each of what both need would
wait for ever. A claim that is being deleted is given to no pod any more: pods wait until it is gone, and it does not go while it is
reserved for them. What is reserved for a workload other than a PodGroup (KEP-5194) is left to the workload's own controller.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from msgspec import Struct

from dralloc.devices.identity import ClaimId
from dralloc.kube.pod_claims import group_name, is_group
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import ResourceClaim
from dralloc.scheduler.contract import ClusterView
from dralloc.scheduler.state.placed_pods import claims_used_by


class UselessReservations(Struct, frozen=True):
    """The UIDs of consumers to remove from a claim's `reservedFor`, and the pods among them or of them, none of which has a node."""

    claim_id: ClaimId
    pods: tuple[Pod, ...]
    consumers: frozenset[str]


def reservations_of_gang(
    pods: Collection[Pod], consumer: str | None, view: ClusterView
) -> Iterator[UselessReservations]:
    """Those of claims with devices that only these pods, or the `consumer`, their group, may use."""
    group = {consumer} if consumer is not None else set()
    for claim, users in _unused_claims(pods, view):
        ours, holders = group | _uids(users), {each.uid for each in claim.status.reserved_for}
        if claim.status.allocation is not None and holders and holders <= ours:
            yield UselessReservations(ClaimId.of(claim), users, frozenset(holders))


def reservations_of_deleted_claims(pods: Collection[Pod], view: ClusterView) -> Iterator[UselessReservations]:
    """Those of claims that these pods wait for. Other pods that are listed, and those of other groups, may be about to be bound."""
    for claim, users in _unused_claims(pods, view):
        if claim.metadata.deletion_timestamp is None:
            continue
        waiting, groups, listed = _uids(users), set(map(group_name, users)), claim.status.reserved_for
        if consumers := frozenset(
            each.uid for each in listed if each.uid in waiting or (is_group(each) and each.name in groups)
        ):
            yield UselessReservations(ClaimId.of(claim), users, consumers)


def _unused_claims(pods: Iterable[Pod], view: ClusterView) -> Iterator[tuple[ResourceClaim, tuple[Pod, ...]]]:
    """The claims of these pods that no pod with a node uses, with those of the pods that use them."""
    users: dict[ClaimId, list[Pod]] = {}
    for pod in pods:
        for claim_id in claims_used_by(pod):
            users.setdefault(claim_id, []).append(pod)
    for claim_id, of_claim in users.items():
        claim = view.find_claim(claim_id)
        if claim is not None and not view.is_in_use(claim_id):
            yield claim, tuple(of_claim)


def _uids(pods: Iterable[Pod]) -> set[str]:
    return {pod.metadata.uid for pod in pods}
