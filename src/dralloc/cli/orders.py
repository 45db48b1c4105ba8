"""What a user asks about, as one value: claims that are served together, and the nodes that are out of the question."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from dralloc.allocator.diagnosis.reasons import Reason
from dralloc.api.pod_v1 import Pod
from dralloc.api.resource_v1 import ResourceClaim
from dralloc.cli.output import say
from dralloc.cli.pods import BadPod, claims_of, excluded_nodes
from dralloc.cli.world import World
from dralloc.devices.identity import ClaimId


@dataclass(frozen=True, slots=True)
class Order:
    """Claims that are to be allocated together, for a pod or for nobody yet."""

    # As it is called in a sentence: `pod ml/train-0`.
    subject: str
    claims: tuple[ResourceClaim, ...] = ()
    # Claims of the pod that have devices already.
    allocated: tuple[ResourceClaim, ...] = ()
    pod: Pod | None = None
    excluded: Mapping[str, Reason] = field(default_factory=dict)
    # Why it cannot be served, whatever devices there are.
    fault: str = ""


def all_orders(world: World, namespace: str | None = None) -> Iterator[Order]:
    """Everything that waits for devices, in one namespace or in all: pods as a scheduler takes them, then other claims."""
    served: set[ClaimId] = set()
    for pod in sorted(world.all(Pod).values(), key=turn):
        if pod.spec.resource_claims and not pod.is_finished and namespace in (None, pod.metadata.namespace):
            order = order_of_pod(world, pod)
            # A claim that several pods share is served for the first of them.
            waiting = tuple(claim for claim in order.claims if ClaimId.of(claim) not in served)
            served.update(map(ClaimId.of, order.claims))
            if waiting or order.fault:
                yield replace(order, claims=waiting, allocated=())
    for claim in world.all(ResourceClaim).values():
        is_meant = namespace in (None, claim.metadata.namespace)
        if is_meant and claim.status.allocation is None and ClaimId.of(claim) not in served:
            yield order_of_claim(claim)


def turn(pod: Pod) -> tuple[int, str]:
    """By priority, then by age; what has neither stays in its order."""
    return -(pod.spec.priority or 0), str(pod.metadata.creation_timestamp or "")


def order_of_claim(claim: ResourceClaim) -> Order:
    subject = f"claim {ClaimId.of(claim)}"
    if claim.status.allocation is not None:
        return Order(subject, allocated=(claim,))
    if claim.metadata.deletion_timestamp is not None:
        return Order(subject, fault="it is being deleted")
    return Order(subject, (claim,))


def order_of_pod(world: World, pod: Pod) -> Order:
    subject = f"pod {pod.metadata.namespace}/{pod.metadata.name}"
    try:
        claims = claims_of(world, pod)
    except BadPod as error:
        return Order(subject, pod=pod, fault=str(error))
    for claim_id in claims.expected:
        say(f"{subject}: claim {claim_id} does not exist yet; its template is used", err=True, prefix="note: ")
    return Order(subject, claims.unallocated, claims.allocated, pod, excluded_nodes(world, pod, claims))
