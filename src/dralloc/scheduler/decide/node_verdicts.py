"""The verdict of one node on a pod's requirements: its scores, or why it cannot take the pod.

Searching for devices is by far the most expensive part, and its result depends only on the devices that the node sees. It is
cached under exactly that (`DevicesKey`), so that nodes which reach the same devices share one search.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from dralloc.allocator.allocate import AllocationProblem, allocate
from dralloc.allocator.candidate_devices import offer_of
from dralloc.allocator.outcome import Allocated, BudgetExhausted, ClaimAllocation, Fatal, Impossible, Outcome
from dralloc.allocator.requests import Demand
from dralloc.devices.identity import ClaimId, PoolId
from dralloc.scheduler.decide.node_fit import NodeMisfit, misfit
from dralloc.scheduler.decide.node_scores import RawScores, least_allocated, raw_scores
from dralloc.scheduler.decide.pod_requirements import PodRequirements
from dralloc.scheduler.state.node_state import NodeState
from dralloc.snapshot.cluster import NodeView, Snapshot

OUTCOMES_MAX: Final = 4096

# Everything that a search on a node depends on. The parts are compared by identity; equal keys get the same devices.
DevicesKey = tuple[object, ...]


class Fits(Struct, frozen=True, gc=False):
    """The node can take the pod.

    `allocated` is what the claims get; None where the pod has no claims to allocate, or another node's search was reused.
    """

    raw: RawScores
    least_allocated: int
    devices_key: DevicesKey = ()
    allocated: Allocated | None = None


class Unfit(Struct, frozen=True, gc=False):
    """The node itself cannot take the pod."""

    misfit: NodeMisfit


class OutOfReach(Struct, frozen=True, gc=False):
    """A claim of the pod has devices that the node cannot reach."""

    claim_id: ClaimId


class Lacking(Struct, frozen=True, gc=False):
    """The node's devices cannot serve the claims."""

    outcome: Impossible | BudgetExhausted


class Faulty(Struct, frozen=True, gc=False):
    """The claims, or a device that they may get, have an error that ends the attempt for all nodes."""

    fatal: Fatal


NodeVerdict = Fits | Unfit | OutOfReach | Lacking | Faulty


class _VisibleDevices(Struct, frozen=True, eq=False, gc=False):
    """What a node sees: the pools with candidate devices, and the part of the key that changes with slices only."""

    view: NodeView
    pools: tuple[PoolId, ...]
    key: tuple[object, ...]


class NodeJudge:
    """Verdicts on one pod's requirements."""

    def __init__(self, requirements: PodRequirements) -> None:
        self._requirements = requirements
        self._visible: dict[str, _VisibleDevices] = {}
        # The node that was searched, and the outcome.
        self._outcomes: dict[DevicesKey, tuple[str, Outcome]] = {}

    def verdict(self, node: NodeState, snapshot: Snapshot) -> NodeVerdict:
        requirements = self._requirements
        if (unfit := self.verdict_on_node(node)) is not None:
            return unfit
        if requirements.demand is None:
            return self._fits(node, 0)
        key = self.devices_key(node, snapshot)
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
                return OutOfReach(held.claim_id)
        return None

    def _fits(
        self, node: NodeState, device_score: int, key: DevicesKey = (), allocated: Allocated | None = None
    ) -> Fits:
        requirements = self._requirements.node
        raw = raw_scores(requirements, node, device_score)
        return Fits(raw, least_allocated(requirements.resources, node), key, allocated)

    def _outcome(self, key: DevicesKey, demand: Demand, node: NodeState, snapshot: Snapshot) -> tuple[str, Outcome]:
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
        return self._requirements.demand is None or fits.devices_key == self.devices_key(node, snapshot)

    def devices_key(self, node: NodeState, snapshot: Snapshot) -> DevicesKey:
        assert self._requirements.demand is not None, "without unallocated claims a verdict does not depend on devices"
        visible = self._visible_devices(self._requirements.demand, node, snapshot)
        usage = map(snapshot.usage.get, visible.pools)
        return (snapshot.rules, node.offer.declared_features, *visible.key, *usage)

    def pools(self, node: NodeState, snapshot: Snapshot) -> tuple[PoolId, ...]:
        """The pools whose usage the node's verdict depends on."""
        demand = self._requirements.demand
        return self._visible_devices(demand, node, snapshot).pools if demand is not None else ()

    def _visible_devices(self, demand: Demand, node: NodeState, snapshot: Snapshot) -> _VisibleDevices:
        view = snapshot.view(node.offer.place, demand.features.visibility)
        known = self._visible.get(node.name)
        if known is None or known.view is not view:
            known = self._visible[node.name] = _VisibleDevices(view, _candidate_pools(view, demand), _slices_key(view))
        return known


def _search(demand: Demand, node: NodeState, snapshot: Snapshot) -> Outcome:
    return allocate(AllocationProblem(demand, node.offer.place, snapshot))


def _slices_key(view: NodeView) -> tuple[object, ...]:
    # Where devices select nodes one by one, every node counts as seeing different devices.
    is_own = any(strip.slice.selects_per_device for strip in view.strips)
    return (view,) if is_own or view.fault else tuple((pool.slices, pool.layout) for pool in view.pools)


def _candidate_pools(view: NodeView, demand: Demand) -> tuple[PoolId, ...]:
    """Pools with a device that matches a request, or on which a selector fails."""
    profiles = {alternative.profile for alternative in demand.alternatives}
    pools: list[PoolId] = []
    for pool, strips in zip(view.pools, view.strips_by_pool, strict=True):
        offers = (offer_of(strip.slice, profile) for strip in strips for profile in profiles)
        if any(offer.matched or offer.faults for offer in offers):
            pools.append(pool.pool_id)
    return tuple(pools)
