"""A pod of the manifests: its claims, also those that are yet to be made from templates, and the nodes that it may go to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from dralloc.allocator.diagnosis.reasons import Cause, Reason
from dralloc.api.core_v1 import Node
from dralloc.api.meta_v1 import ObjectMeta, OwnerReference
from dralloc.api.pod_claims import POD_CLAIM_NAME, controller_of
from dralloc.api.pod_v1 import Pod, PodResourceClaim
from dralloc.api.resource_v1 import ResourceClaim, ResourceClaimTemplate
from dralloc.cli.world import World
from dralloc.devices.identity import ClaimId
from dralloc.scheduler.decide.node_fit import NodeRequirements, misfit
from dralloc.scheduler.decide.pod_requirements import HeldClaim
from dralloc.scheduler.state.anti_affinity import Repulsion
from dralloc.scheduler.state.node_state import EMPTY, Load, NodeOffer, NodeState
from dralloc.scheduler.state.pod_resources import PodResources, resources_on_node
from dralloc.snapshot import node_selectors

NOTHING: Final = PodResources(amounts={}, weights={})


class BadPod(ValueError):
    """A pod whose claims cannot be told: one is missing, or its template is."""


@dataclass(frozen=True, slots=True)
class PodClaims:
    """The claims of a pod by its names for them, in its order. Those in `expected` do not exist yet: they are as their templates say."""

    by_entry: Mapping[str, ResourceClaim]
    expected: tuple[ClaimId, ...]

    @property
    def claims(self) -> tuple[ResourceClaim, ...]:
        """Each once, as a pod may name a claim twice."""
        return tuple({ClaimId.of(claim): claim for claim in self.by_entry.values()}.values())

    @property
    def allocated(self) -> tuple[ResourceClaim, ...]:
        return tuple(claim for claim in self.claims if claim.status.allocation is not None)

    @property
    def unallocated(self) -> tuple[ResourceClaim, ...]:
        return tuple(claim for claim in self.claims if claim.status.allocation is None)


def claims_of(world: World, pod: Pod) -> PodClaims:
    """Raises BadPod."""
    claims: dict[str, ResourceClaim] = {}
    expected: list[ClaimId] = []
    for entry in pod.spec.resource_claims:
        claim = _existing(world, pod, entry)
        if claim is None and entry.resource_claim_template_name and not _needs_none(pod, entry):
            claim = _from_template(world, pod, entry)
            expected.append(ClaimId.of(claim))
        if claim is not None:
            claims[entry.name] = claim
    return PodClaims(claims, tuple(expected))


def _existing(world: World, pod: Pod, entry: PodResourceClaim) -> ResourceClaim | None:
    namespace = pod.metadata.namespace
    known = world.all(ResourceClaim)
    recorded = {status.name: status.resource_claim_name for status in pod.status.resource_claim_statuses}
    name = entry.resource_claim_name or recorded.get(entry.name)
    if name is None:
        return next(_made_for(world, pod, entry), None)
    claim = known.get((namespace, name))
    if claim is None:
        raise BadPod(f"its claim {namespace}/{name} is not in {world.place}")
    # Whoever runs keeps the devices: a claim goes when the last pod that uses it has ended.
    is_kept = pod.spec.node_name and claim.status.allocation is not None
    if claim.metadata.deletion_timestamp is not None and not is_kept:
        raise BadPod(f"its claim {namespace}/{name} is being deleted")
    return claim


def _made_for(world: World, pod: Pod, entry: PodResourceClaim) -> Iterator[ResourceClaim]:
    """Claims that were made for the entry, where the pod's status does not say so."""
    for claim in world.all(ResourceClaim).values():
        owner = controller_of(claim.metadata)
        is_own = owner is not None and owner.kind == "Pod" and owner.name == pod.metadata.name
        is_here = claim.metadata.namespace == pod.metadata.namespace
        if is_own and is_here and claim.metadata.annotations.get(POD_CLAIM_NAME) == entry.name:
            yield claim


def _needs_none(pod: Pod, entry: PodResourceClaim) -> bool:
    """Whether it is recorded that no claim had to be made for the entry."""
    return any(status.name == entry.name for status in pod.status.resource_claim_statuses)


def _from_template(world: World, pod: Pod, entry: PodResourceClaim) -> ResourceClaim:
    metadata = pod.metadata
    key = (metadata.namespace, entry.resource_claim_template_name or "")
    template = world.all(ResourceClaimTemplate).get(key)
    if template is None:
        raise BadPod(f"the template {'/'.join(key)} of its claim {entry.name} is not in {world.place}")
    made = template.spec.metadata
    owner = OwnerReference(
        api_version="v1", kind="Pod", name=metadata.name, uid=metadata.uid, controller=True, block_owner_deletion=True
    )
    return ResourceClaim(
        api_version="resource.k8s.io/v1",
        kind="ResourceClaim",
        metadata=ObjectMeta(
            name=f"{metadata.name}-{entry.name}",
            namespace=metadata.namespace,
            labels=made.labels,
            annotations={**made.annotations, POD_CLAIM_NAME: entry.name},
            owner_references=(owner,),
        ),
        spec=template.spec.spec,
    )


# --- Nodes ----------------------------------------------------------------------------------------------------------------


def excluded_nodes(world: World, pod: Pod, claims: PodClaims) -> Mapping[str, Reason]:
    """The nodes that cannot take the pod, whatever devices they have: as far as is known."""
    states = _node_states(world, pod)
    repulsion = Repulsion()
    for other in _pods_on_nodes(world, pod):
        repulsion.add(other)
    wishes = NodeRequirements.of(pod.spec, repulsion.of(pod, states))
    excluded: dict[str, Reason] = {}
    for node in world.nodes:
        state = states.get(node.name) or NodeState(NodeOffer.of(Node(metadata=ObjectMeta(name=node.name))))
        # A node that does not say what it has was written by hand, to try something out.
        asked = wishes if state.offer.allocatable else replace(wishes, resources=NOTHING)
        if (unfit := misfit(asked, state)) is not None:
            excluded[node.name] = Reason(cause=Cause.NODE, subject=unfit.reason)
        elif (far := _out_of_reach(claims, node)) is not None:
            subject = f"claim {far} has devices that are out of reach"
            excluded[node.name] = Reason(cause=Cause.NODE, subject=subject, claim=far)
    return excluded


def _out_of_reach(claims: PodClaims, node: node_selectors.Node) -> ClaimId | None:
    for claim in claims.allocated:
        assert claim.status.allocation is not None, "it is allocated"
        held = HeldClaim(ClaimId.of(claim), claim.status.allocation.node_selector)
        if not held.is_usable_on(node):
            return held.claim_id
    return None


def _node_states(world: World, pod: Pod) -> dict[str, NodeState]:
    """The nodes that are stated, with what the other pods take of them."""
    loads: dict[str, Load] = {}
    for other in _pods_on_nodes(world, pod):
        loads[other.spec.node_name] = loads.get(other.spec.node_name, EMPTY).plus(resources_on_node(other))
    return {name: NodeState(NodeOffer.of(node), loads.get(name, EMPTY)) for (_, name), node in world.all(Node).items()}


def _pods_on_nodes(world: World, pod: Pod) -> list[Pod]:
    others = (other for other in world.all(Pod).values() if other is not pod and not other.is_finished)
    return [other for other in others if other.spec.node_name]
