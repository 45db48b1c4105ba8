"""Which pods use a claim, listed in `reservedFor` or not."""

from __future__ import annotations

from collections.abc import Iterator

from dralloc.api.pod_claims import claims_of, may_use
from dralloc.api.pod_v1 import Pod
from dralloc.api.resource_v1 import ResourceClaim
from dralloc.client.informer import Informer


def is_done(pod: Pod) -> bool:
    """True if the pod will never use its claims again: it has finished, or is being deleted without a node.

    A pod that has a node may still run while it is being deleted.
    """
    return pod.is_finished or (pod.is_terminating and not pod.spec.node_name)


def users_of(claim: ResourceClaim, pods: Informer[Pod]) -> Iterator[Pod]:
    """The pods that use the claim and are not done. Those without a node may be bound at any moment."""
    name = claim.metadata.name
    for pod in pods.by("claim", (claim.metadata.namespace, name)):
        if any(use.claim == name and may_use(use, claim, pod) for use in claims_of(pod)):
            yield pod
