"""A pod's requirements as one value, from which nodes are judged. Pods with the same requirements share the verdicts.

Unallocated claims are identified by index: a message gets the names of the claims of the pod that it is for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from msgspec import Struct

from dralloc.devices.allocator.requests import Demand
from dralloc.devices.identity import ClaimId
from dralloc.devices.node_selectors import NodeFacts, NodeSelectorError, matches
from dralloc.kube.codec import encode
from dralloc.kube.meta_v1 import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from dralloc.kube.pod_claims import is_listed
from dralloc.kube.pod_v1 import Container, Pod
from dralloc.kube.resource_v1 import DeviceClass, ResourceClaim
from dralloc.primitives.phrases import first_few
from dralloc.scheduler.decide.claim_checks import classes_of
from dralloc.scheduler.decide.node_fit import NodeRequirements, names_in


class ClaimSplit(Struct, frozen=True, gc=False):
    """A pod's claims, with devices and without."""

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
    def allocated_ids(self) -> tuple[ClaimId, ...]:
        return tuple(map(ClaimId.of, self.allocated))

    @property
    def unallocated_ids(self) -> tuple[ClaimId, ...]:
        """The names of the demand's claims, by index."""
        return tuple(map(ClaimId.of, self.unallocated))


@dataclass(frozen=True)
class HeldClaim:
    """An allocated claim, with the selector of the nodes that reach its devices; None if all nodes do."""

    claim_id: ClaimId
    selector: NodeSelector | None

    def only_nodes(self) -> frozenset[str] | None:
        """The names of the only possible nodes; None if the selector does not select by name."""
        return names_in(self.selector) if self.selector is not None else None

    @cached_property
    def place(self) -> str:
        """Where the devices are, as part of a sentence."""
        if (names := self.only_nodes()) is not None:
            return f"{'node' if len(names) == 1 else 'nodes'} {first_few(sorted(names), 'node')}"
        terms = self.selector.node_selector_terms or () if self.selector is not None else ()
        return f"devices of nodes with {' or '.join(map(_text_of_term, terms))}"

    def is_usable_on(self, node: NodeFacts) -> bool:
        try:
            return self.selector is None or matches(self.selector, node)
        except NodeSelectorError:
            return False


def _text_of_term(term: NodeSelectorTerm) -> str:
    required = (*term.match_fields, *term.match_expressions)
    return " and ".join(_text_of_requirement(each) for each in required)


def _text_of_requirement(each: NodeSelectorRequirement) -> str:
    values = ", ".join(each.values)
    return (
        f"{each.key}={values}"
        if (each.operator, len(each.values)) == ("In", 1)
        else f"{each.key} {each.operator} {values}".rstrip()
    )


@dataclass(frozen=True, slots=True, eq=False)
class PodRequirements:
    node: NodeRequirements
    held: tuple[HeldClaim, ...] = ()
    demand: Demand | None = None

    @classmethod
    def of(cls, pod: Pod, claims: ClaimSplit, demand: Demand | None) -> PodRequirements:
        """`demand` is that of the unallocated claims."""
        return cls(
            node=NodeRequirements.of(pod.spec),
            held=tuple(HeldClaim(ClaimId.of(claim), _selector(claim)) for claim in claims.allocated),
            demand=demand,
        )

    def only_nodes(self) -> frozenset[str] | None:
        """The names of the only possible nodes; None if neither the pod nor its claims name any."""
        named = [self.node.only_nodes(), *(held.only_nodes() for held in self.held)]
        known = [names for names in named if names is not None]
        return frozenset.intersection(*known) if known else None

    def offer_key(self) -> bytes:
        """Equal for pods that require the same of what nodes offer, resources aside."""
        node, held = self.node, [(each.claim_id, each.selector) for each in self.held]
        return encode((node.node_name, node.node_labels, node.required, node.preferred, node.tolerations, held))


def demand_key(claims: ClaimSplit, classes: Mapping[str, DeviceClass]) -> bytes:
    """Equal for pods whose unallocated claims have the same demand."""
    if not claims.unallocated:
        return b""
    return encode([(claim.spec.devices, _versions_of(classes, claim)) for claim in claims.unallocated])


def equivalence_key(pod: Pod, claims: ClaimSplit) -> bytes:
    """Equal for pods that get the same verdict from every node, if their demand is the same."""
    spec = pod.spec
    return encode(
        (
            [_container_key(container) for container in spec.containers],
            [_container_key(container) for container in spec.init_containers],
            (spec.resources, spec.overhead, spec.node_name, spec.node_selector, spec.tolerations),
            spec.affinity.node_affinity if spec.affinity is not None else None,
            # Whether the pod is listed decides whether the claim may be deallocated.
            [(ClaimId.of(claim), _selector(claim), is_listed(claim, pod)) for claim in claims.allocated],
        )
    )


def _container_key(container: Container) -> tuple[object, ...]:
    return container.resources.requests, container.ports, container.restart_policy


def _selector(claim: ResourceClaim) -> NodeSelector | None:
    return claim.status.allocation.node_selector if claim.status.allocation is not None else None


def _versions_of(classes: Mapping[str, DeviceClass], claim: ResourceClaim) -> list[str | None]:
    """The versions of the device classes that the claim names; None for a class that does not exist."""
    return [_version(classes[name]) if name in classes else None for name in classes_of(claim)]


def _version(device_class: DeviceClass) -> str:
    return f"{device_class.metadata.uid}/{device_class.metadata.resource_version}"
