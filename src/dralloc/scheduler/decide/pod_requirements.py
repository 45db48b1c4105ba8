"""What a pod requires of a node, as one value: nodes are judged by it, and pods that require the same share the verdicts.

Claims that are yet to be allocated have no names in it, only their index: a message gets the names of the pod that it is for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from msgspec import Struct

from dralloc.allocator.features import Features
from dralloc.allocator.requests import Demand, compile_demand
from dralloc.api.codec import encode
from dralloc.api.meta_v1 import NodeSelector
from dralloc.api.pod_v1 import Container, Pod
from dralloc.api.resource_v1 import DeviceClass, ResourceClaim
from dralloc.devices.identity import ClaimId
from dralloc.scheduler.decide.claim_checks import classes_of
from dralloc.scheduler.decide.node_fit import NodeRequirements, names_in
from dralloc.scheduler.state.anti_affinity import Repelled
from dralloc.snapshot.node_selectors import NodeFacts, NodeSelectorError, matches


class ClaimSplit(Struct, frozen=True, gc=False):
    """A pod's claims: those that have devices, and those that are to get some."""

    allocated: tuple[ResourceClaim, ...] = ()
    unallocated: tuple[ResourceClaim, ...] = ()

    @classmethod
    def of(cls, claims: Iterable[ResourceClaim]) -> ClaimSplit:
        claims = tuple(claims)
        return cls(
            tuple(claim for claim in claims if claim.status.allocation is not None),
            tuple(claim for claim in claims if claim.status.allocation is None),
        )

    @property
    def unallocated_ids(self) -> tuple[ClaimId, ...]:
        """The names of the claims that the demand has by index."""
        return tuple(map(ClaimId.of, self.unallocated))


@dataclass(frozen=True, slots=True)
class HeldClaim:
    """A claim that has devices, and the nodes that can reach them; None where all can."""

    claim_id: ClaimId
    selector: NodeSelector | None

    def only_nodes(self) -> frozenset[str] | None:
        """The names of the only nodes that can be meant; None where it goes by something else."""
        return names_in(self.selector) if self.selector is not None else None

    def is_usable_on(self, node: NodeFacts) -> bool:
        try:
            return self.selector is None or matches(self.selector, node)
        except NodeSelectorError:
            return False


@dataclass(frozen=True, slots=True, eq=False)
class PodRequirements:
    node: NodeRequirements
    held: tuple[HeldClaim, ...] = ()
    demand: Demand | None = None

    @classmethod
    def of(
        cls,
        pod: Pod,
        claims: ClaimSplit,
        classes: Mapping[str, DeviceClass],
        features: Features,
        repelled: tuple[Repelled, ...] = (),
    ) -> PodRequirements:
        return cls(
            node=NodeRequirements.of(pod.spec, repelled),
            held=tuple(HeldClaim(ClaimId.of(claim), _selector(claim)) for claim in claims.allocated),
            demand=compile_demand(claims.unallocated, classes, features) if claims.unallocated else None,
        )

    def only_nodes(self) -> frozenset[str] | None:
        """The names of the only nodes that can be meant; None where it may be any."""
        named = [self.node.only_nodes(), *(held.only_nodes() for held in self.held)]
        known = [names for names in named if names is not None]
        return frozenset.intersection(*known) if known else None


def equivalence_key(
    pod: Pod, claims: ClaimSplit, classes: Mapping[str, DeviceClass], repelled: tuple[Repelled, ...] = ()
) -> bytes:
    """The same for all pods that get the same answer from every node."""
    spec = pod.spec
    return encode(
        (
            [_container_key(container) for container in spec.containers],
            [_container_key(container) for container in spec.init_containers],
            (spec.resources, spec.overhead, spec.node_name, spec.node_selector, spec.tolerations),
            spec.affinity.node_affinity if spec.affinity is not None else None,
            [(ClaimId.of(claim), _selector(claim), _is_listed(claim, pod)) for claim in claims.allocated],
            [claim.spec.devices for claim in claims.unallocated],
            [_versions_of(classes, claim) for claim in claims.unallocated],
            # What is repelled together now, need not be so later: that goes by names and labels.
            (repelled, pod.metadata.namespace, pod.metadata.labels) if repelled else None,
        )
    )


def _container_key(container: Container) -> tuple[object, ...]:
    return container.resources.requests, container.ports, container.restart_policy


def _is_listed(claim: ResourceClaim, pod: Pod) -> bool:
    """Whether the pod holds the claim already: then it alone may have its devices given back."""
    return any(reference.uid == pod.metadata.uid for reference in claim.status.reserved_for)


def _selector(claim: ResourceClaim) -> NodeSelector | None:
    return claim.status.allocation.node_selector if claim.status.allocation is not None else None


def _versions_of(classes: Mapping[str, DeviceClass], claim: ResourceClaim) -> list[str]:
    """Which versions of its classes the claim is judged by."""
    found = [classes[name].metadata for name in classes_of(claim)]
    return [f"{metadata.uid}/{metadata.resource_version}" for metadata in found]
