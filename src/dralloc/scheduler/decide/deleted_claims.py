"""Claims that are being deleted and that only pods without a node keep from going.

No pod gets such a claim any more. Pods wait until it is gone, and it does not go while it is reserved: what is reserved for them, or
for a PodGroup of which no pod with a node uses the claim, must be given up, or each waits for the other for ever. What is reserved
for another workload (KEP-5194) is left to the workload's own controller.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from msgspec import Struct

from dralloc.api.pod_claims import is_group
from dralloc.api.pod_v1 import Pod
from dralloc.devices.identity import ClaimId
from dralloc.scheduler.contract import ClusterView
from dralloc.scheduler.state.placed_pods import claims_used_by


class UselessReservations(Struct, frozen=True):
    """The UIDs of consumers for which a claim is reserved although none of them gets it."""

    claim_id: ClaimId
    consumers: frozenset[str]


def useless_reservations(pods: Collection[Pod], view: ClusterView) -> Iterator[UselessReservations]:
    """Those of claims that these pods, which have no node, wait for. Other pods that are listed may be about to be bound."""
    waiting = {pod.metadata.uid for pod in pods}
    for claim_id in dict.fromkeys(claim_id for pod in pods for claim_id in claims_used_by(pod)):
        claim = view.find_claim(claim_id)
        if claim is None or claim.metadata.deletion_timestamp is None or view.is_in_use(claim_id):
            continue
        listed = claim.status.reserved_for
        if consumers := frozenset(each.uid for each in listed if each.uid in waiting or is_group(each)):
            yield UselessReservations(claim_id, consumers)
