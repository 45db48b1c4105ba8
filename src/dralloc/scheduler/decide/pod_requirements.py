"""What a pod asks for, as one value: nodes are judged by it, and pods that ask for the same (`shape`) get the same verdicts.

Claims that are to get devices have no names in it, because those of one pod are nobody else's business. A sentence about them
gets the names of the pod that it is told to (`PodClaims.named`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from dralloc.allocator.features import Features
from dralloc.allocator.requests import Demand, compile_demand
from dralloc.api.codec import encode
from dralloc.api.meta_v1 import NodeSelector
from dralloc.api.pod_v1 import Container, Pod
from dralloc.api.resource_v1 import DeviceClass, ResourceClaim
from dralloc.devices.identity import ClaimId
from dralloc.scheduler.decide.claim_checks import classes_of
from dralloc.scheduler.decide.node_fit import Wishes, names_in
from dralloc.scheduler.state.anti_affinity import Repelled
from dralloc.snapshot.node_selectors import Node, NodeSelectorError, matches

# In place of a namespace, which cannot look like that; the claim's number stands in place of its name.
_NAMELESS: Final = "<claim>"
_NAMELESS_ID: Final = re.compile(rf"{_NAMELESS}/(\d+)")


class PodClaims(Struct, frozen=True, gc=False):
    """A pod's claims: those that have devices, and those that are to get some."""

    allocated: tuple[ResourceClaim, ...] = ()
    unallocated: tuple[ResourceClaim, ...] = ()

    @classmethod
    def of(cls, claims: Iterable[ResourceClaim]) -> PodClaims:
        claims = tuple(claims)
        return cls(
            tuple(claim for claim in claims if claim.status.allocation is not None),
            tuple(claim for claim in claims if claim.status.allocation is None),
        )

    def named(self, sentence: str) -> str:
        """What is said of an ask, with the names of these claims."""
        if _NAMELESS not in sentence:
            return sentence
        names = {str(_nameless_id(number)): str(ClaimId.of(claim)) for number, claim in enumerate(self.unallocated)}
        return _NAMELESS_ID.sub(lambda found: names.get(found[0], found[0]), sentence)


@dataclass(frozen=True, slots=True)
class Held:
    """A claim that has devices, and the nodes that can reach them; None where all can."""

    claim_id: ClaimId
    selector: NodeSelector | None

    def only_nodes(self) -> frozenset[str] | None:
        """The names of the only nodes that can be meant; None where it goes by something else."""
        return names_in(self.selector) if self.selector is not None else None

    def is_usable_on(self, node: Node) -> bool:
        try:
            return self.selector is None or matches(self.selector, node)
        except NodeSelectorError:
            return False


@dataclass(frozen=True, slots=True, eq=False)
class Ask:
    wishes: Wishes
    held: tuple[Held, ...] = ()
    demand: Demand | None = None

    @classmethod
    def of(
        cls,
        pod: Pod,
        claims: PodClaims,
        classes: Mapping[str, DeviceClass],
        features: Features,
        repelled: tuple[Repelled, ...] = (),
    ) -> Ask:
        return cls(
            wishes=Wishes.of(pod.spec, repelled),
            held=tuple(Held(ClaimId.of(claim), _selector(claim)) for claim in claims.allocated),
            demand=compile_demand(_nameless(claims.unallocated), classes, features) if claims.unallocated else None,
        )

    def only_nodes(self) -> frozenset[str] | None:
        """The names of the only nodes that can be meant; None where it may be any."""
        named = [self.wishes.only_nodes(), *(held.only_nodes() for held in self.held)]
        known = [names for names in named if names is not None]
        return frozenset.intersection(*known) if known else None


def shape_of(
    pod: Pod, claims: PodClaims, classes: Mapping[str, DeviceClass], repelled: tuple[Repelled, ...] = ()
) -> bytes:
    """The same for all pods that get the same answer from every node."""
    spec = pod.spec
    return encode(
        (
            [_shape_of_container(container) for container in spec.containers],
            [_shape_of_container(container) for container in spec.init_containers],
            (spec.resources, spec.overhead, spec.node_name, spec.node_selector, spec.tolerations),
            spec.affinity.node_affinity if spec.affinity is not None else None,
            [(ClaimId.of(claim), _selector(claim), _is_listed(claim, pod)) for claim in claims.allocated],
            [claim.spec.devices for claim in claims.unallocated],
            [_versions_of(classes, claim) for claim in claims.unallocated],
            # What is repelled together now, need not be so later: that goes by names and labels.
            (repelled, pod.metadata.namespace, pod.metadata.labels) if repelled else None,
        )
    )


def _nameless(claims: Iterable[ResourceClaim]) -> Iterator[ResourceClaim]:
    for number, claim in enumerate(claims):
        stand_in = _nameless_id(number)
        metadata = replace(claim.metadata, namespace=stand_in.namespace, name=stand_in.name)
        yield replace(claim, metadata=metadata)


def _nameless_id(number: int) -> ClaimId:
    return ClaimId(_NAMELESS, str(number))


def _shape_of_container(container: Container) -> tuple[object, ...]:
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
