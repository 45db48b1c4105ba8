"""The verdict of one node on a pod's requirements: its scores, or why it cannot take the pod.

Searching for devices is by far the most expensive part, and its result depends only on the devices that the node sees. It is
cached under exactly that (`DeviceIdentity.key`), so that nodes which reach the same devices share one search.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Final

from msgspec import Struct

from dralloc.allocator.allocate import AllocationProblem, allocate
from dralloc.allocator.node_equivalence import DeviceIdentity
from dralloc.allocator.outcome import Allocated, BudgetExhausted, ClaimAllocation, Fatal, Impossible, Outcome
from dralloc.allocator.requests import Demand
from dralloc.devices.identity import ClaimId, PoolId
from dralloc.scheduler.decide.node_fit import NodeMisfit, misfit
from dralloc.scheduler.decide.node_scores import RawScores, least_allocated, raw_scores
from dralloc.scheduler.decide.placement_rules import PlacementRules
from dralloc.scheduler.decide.pod_requirements import PodRequirements
from dralloc.scheduler.state.node_state import NodeState
from dralloc.snapshot.cluster import Snapshot

OUTCOMES_MAX: Final = 4096


class Fits(Struct, frozen=True, gc=False):
    """The node can take the pod.

    `allocated` is what the claims get; None where the pod has no claims to allocate, or another node's search was reused.
    """

    raw: RawScores
    least_allocated: int
    devices_key: Hashable = None
    allocated: Allocated | None = None


class Unfit(Struct, frozen=True, gc=False):
    """The node itself cannot take the pod."""

    misfit: NodeMisfit


class OutOfReach(Struct, frozen=True, gc=False):
    """A claim of the pod has devices that the node cannot use. `place` says where they are."""

    claim_id: ClaimId
    place: str


class Lacking(Struct, frozen=True, gc=False):
    """The node's devices cannot serve the claims."""

    outcome: Impossible | BudgetExhausted


class Faulty(Struct, frozen=True, gc=False):
    """The claims, or a device that they may get, have an error that ends the attempt for all nodes."""

    fatal: Fatal


NodeVerdict = Fits | Unfit | OutOfReach | Lacking | Faulty


def overruled(
    verdicts: Mapping[str, NodeVerdict], rules: PlacementRules | None, nodes: Mapping[str, NodeState]
) -> Mapping[str, NodeVerdict]:
    """The verdicts under the rules, which come before all checks of devices."""
    if rules is None:
        return verdicts
    overruled = dict(verdicts)
    for name, verdict in verdicts.items():
        if not isinstance(verdict, Unfit) and (found := rules.misfit(nodes[name])) is not None:
            overruled[name] = Unfit(found)
    return overruled


class NodeJudge:
    """Verdicts on one pod's requirements."""

    def __init__(self, requirements: PodRequirements) -> None:
        self._requirements = requirements
        self._devices = DeviceIdentity(requirements.demand) if requirements.demand is not None else None
        # The node that was searched, and the outcome.
        self._outcomes: dict[Hashable, tuple[str, Outcome]] = {}

    def verdict(self, node: NodeState, snapshot: Snapshot) -> NodeVerdict:
        requirements = self._requirements
        if (unfit := self.verdict_on_node(node)) is not None:
            return unfit
        if requirements.demand is None or self._devices is None:
            return self._fits(node, 0)
        key = self._devices.key(node.offer.place, snapshot)
        searched, outcome = self._outcome(key, requirements.demand, node, snapshot)
        match outcome:
            case Allocated():
                # An allocation may name its node, so another node's only proves that this node fits.
                return self._fits(node, outcome.score, key, outcome if searched == node.name else None)
            case Fatal():
                return Faulty(outcome)
            case _:
                return Lacking(outcome)

    def verdict_on_node(self, node: NodeState) -> Unfit | OutOfReach | None:
        """Why the node cannot take the pod, whatever devices it has; None if it can."""
        if (unfit := misfit(self._requirements.node, node)) is not None:
            return Unfit(unfit)
        for held in self._requirements.held:
            if not held.is_usable_on(node.offer.place):
                return OutOfReach(held.claim_id, held.place)
        return None

    def _fits(
        self, node: NodeState, device_score: int, key: Hashable = None, allocated: Allocated | None = None
    ) -> Fits:
        requirements = self._requirements.node
        raw = raw_scores(requirements, node, device_score)
        return Fits(raw, least_allocated(requirements.resources, node), key, allocated)

    def _outcome(self, key: Hashable, demand: Demand, node: NodeState, snapshot: Snapshot) -> tuple[str, Outcome]:
        known = self._outcomes.get(key)
        if known is None:
            if len(self._outcomes) >= OUTCOMES_MAX:
                self._outcomes.clear()
            known = self._outcomes[key] = (node.name, _search(demand, node, snapshot))
        return known

    def allocations(self, fits: Fits, node: NodeState, snapshot: Snapshot) -> tuple[ClaimAllocation, ...]:
        """What the unallocated claims get on a node that fits, by their index."""
        demand, allocated = self._requirements.demand, fits.allocated
        if demand is None:
            return ()
        if allocated is None:
            searched = _search(demand, node, snapshot)
            assert isinstance(searched, Allocated), f"{node.name} has the devices key of a node that fits"
            allocated = searched
        return allocated.claims

    def is_current(self, fits: Fits, node: NodeState, snapshot: Snapshot) -> bool:
        """True if the devices have not changed since the verdict."""
        return self._devices is None or fits.devices_key == self._devices.key(node.offer.place, snapshot)

    def pools(self, node: NodeState, snapshot: Snapshot) -> tuple[PoolId, ...]:
        """The pools whose usage the node's verdict depends on."""
        return self._devices.pools(node.offer.place, snapshot) if self._devices is not None else ()


def _search(demand: Demand, node: NodeState, snapshot: Snapshot) -> Outcome:
    return allocate(AllocationProblem(demand, node.offer.place, snapshot))
