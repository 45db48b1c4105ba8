"""What a pod with extended resources needs of a node: of its device plugins, and of devices.

A resource that the node's device plugins offer is theirs, even if none is left; devices serve the others. So the claim of the pod
differs from node to node, and nodes whose plugins offer the same need the same (KEP-5004).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from msgspec import Struct

from dralloc.kube.extended_resources import (
    ExtendedRequests,
    ExtendedResourceClasses,
    extended_claim,
    extended_claim_name,
    extended_names,
    extended_requests,
    uncountable_names,
)
from dralloc.kube.pod_v1 import Pod, PodExtendedResourceClaimStatus
from dralloc.kube.resource_v1 import ResourceClaim
from dralloc.scheduler.contract import DYNAMIC_RESOURCES, ExtendedClaim
from dralloc.scheduler.decide.device_judge import DeviceJudge
from dralloc.scheduler.decide.node_fit import NodeMisfit
from dralloc.scheduler.state.node_state import NodeOffer
from dralloc.scheduler.state.pod_resources import PodResources

REQUESTS_MAX: Final = 32


class ExtendedNeeds(Struct, frozen=True):
    """The extended resources of a pod that have a device class, with the class of each. `names` are all that it asks for."""

    names: frozenset[str]
    classes: Mapping[str, str]

    @classmethod
    def of(cls, pod: Pod, known: ExtendedResourceClasses) -> ExtendedNeeds | None:
        """None for a pod that asks for no extended resources."""
        names = extended_names(pod.spec)
        if not names:
            return None
        found = {name: known.find(name) for name in sorted(names - uncountable_names(pod.spec))}
        return cls(names, {name: each.metadata.name for name, each in found.items() if each is not None})

    def by_devices(self, offer: NodeOffer) -> frozenset[str]:
        """The resources that devices must serve on the node."""
        return frozenset(name for name in self.classes if not offer.allocatable.get(name))

    def claims(self, pod: Pod) -> tuple[ResourceClaim, ...]:
        """The claim of the pod on a node where devices serve all that have a class, if any has."""
        return (self.claim(pod, frozenset(self.classes)),) if self.classes else ()

    def claim(self, pod: Pod, names: frozenset[str]) -> ResourceClaim:
        """The claim of the pod on a node where devices serve these resources."""
        return extended_claim(pod, self._requests(pod, names).requests, extended_claim_name(pod))

    def made_on(self, pod: Pod, offer: NodeOffer) -> ExtendedClaim | None:
        """What is made for the pod when it gets the node; None if the node's plugins serve everything."""
        names = self.by_devices(offer)
        if not names:
            return None
        asked = self._requests(pod, names)
        claim = extended_claim(pod, asked.requests, extended_claim_name(pod))
        status = PodExtendedResourceClaimStatus(
            request_mappings=asked.mappings, resource_claim_name=claim.metadata.name
        )
        return ExtendedClaim(claim, status)

    def _requests(self, pod: Pod, names: frozenset[str]) -> ExtendedRequests:
        return extended_requests(pod.spec, {name: each for name, each in self.classes.items() if name in names})


class NodeSupply(Struct, frozen=True, gc=False):
    """What a node must offer itself, what its devices must serve, and why no node can serve it."""

    resources: PodResources
    devices: DeviceJudge | None
    misfit: NodeMisfit | None = None


class ExtendedSupplies:
    """The supplies of pods with the same needs, by what devices serve. `judge` makes the judge of a claim with these requests."""

    def __init__(
        self,
        needs: ExtendedNeeds,
        pod: Pod,
        resources: PodResources,
        judge: Callable[[ResourceClaim | None], DeviceJudge | None],
    ) -> None:
        self._needs = needs
        self._pod = pod
        self._resources = resources
        self._judge = judge
        self._supplies: dict[frozenset[str], NodeSupply] = {}

    def on(self, offer: NodeOffer) -> NodeSupply:
        names = self._needs.by_devices(offer)
        supply = self._supplies.get(names)
        if supply is None:
            supply = self._supplies[names] = self._supply(names)
        return supply

    def _supply(self, names: frozenset[str]) -> NodeSupply:
        resources = self._resources.without(names)
        claim = self._needs.claim(self._pod, names) if names else None
        asked = len(claim.spec.devices.requests or ()) if claim is not None else 0
        if asked > REQUESTS_MAX:
            reason = f"extended resources need {asked} requests, a claim may have {REQUESTS_MAX}"
            return NodeSupply(resources, None, NodeMisfit(DYNAMIC_RESOURCES, reason))
        return NodeSupply(resources, self._judge(claim))
