"""What one node says to one ask: how good it would be, or why it cannot take the pod.

A device verdict is by far the dearest part, and it depends on the devices that a node sees and on nothing else. It is
therefore remembered under exactly that (`DeviceState`), so that nodes that reach the same devices share one search.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from dralloc.allocator.allocate import AllocationProblem, allocate
from dralloc.allocator.candidate_devices import offer_of
from dralloc.allocator.outcome import Allocated, BudgetExhausted, Fatal, Impossible, Outcome
from dralloc.allocator.requests import Demand
from dralloc.api.resource_v1 import AllocationResult
from dralloc.devices.identity import ClaimId, PoolId
from dralloc.scheduler.decide.node_fit import Misfit, misfit
from dralloc.scheduler.decide.node_scores import Raw, emptiness, raw_scores
from dralloc.scheduler.decide.pod_requirements import Ask
from dralloc.scheduler.state.node_state import NodeState
from dralloc.snapshot.cluster import NodeView, Snapshot

REMEMBERED_MAX: Final = 4096

# Stands for the id of a share until a pod gets it: a verdict may serve many pods, one after the other.
SHARE: Final = "share"

# Everything that a search on a node depends on, compared by identity: two that are equal get the same devices.
DeviceState = tuple[object, ...]


class Fits(Struct, frozen=True, gc=False):
    """`devices` are the allocations for the ask's claims; None where it has none, or where they must be worked out anew."""

    raw: Raw
    emptiness: int
    state: DeviceState = ()
    devices: Allocated | None = None


class Unfit(Struct, frozen=True, gc=False):
    """The node itself cannot take the pod."""

    misfit: Misfit


class OutOfReach(Struct, frozen=True, gc=False):
    """A claim of the pod has devices that the node cannot reach."""

    claim_id: ClaimId


class Lacking(Struct, frozen=True, gc=False):
    """The node's devices cannot serve the claims."""

    outcome: Impossible | BudgetExhausted


class Faulty(Struct, frozen=True, gc=False):
    """Something is wrong with the claims, or with a device that they may get, that no other node makes good."""

    fatal: Fatal


Verdict = Fits | Unfit | OutOfReach | Lacking | Faulty


class _Sight(Struct, frozen=True, eq=False, gc=False):
    """What a node sees: the pools of interest, and the part of `DeviceState` that changes with slices only."""

    view: NodeView
    pools: tuple[PoolId, ...]
    seen: tuple[object, ...]


class Judge:
    """Verdicts for one ask."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._sights: dict[str, _Sight] = {}
        self._outcomes: dict[DeviceState, tuple[str, Outcome]] = {}

    def verdict(self, node: NodeState, snapshot: Snapshot) -> Verdict:
        ask = self._ask
        if (unfit := misfit(ask.wishes, node)) is not None:
            return Unfit(unfit)
        for held in ask.held:
            if not held.is_usable_on(node.offer.place):
                return OutOfReach(held.claim_id)
        if ask.demand is None:
            return Fits(raw_scores(ask.wishes, node, 0), emptiness(ask.wishes.needs, node))
        return self._with_devices(ask, ask.demand, node, snapshot)

    def _with_devices(self, ask: Ask, demand: Demand, node: NodeState, snapshot: Snapshot) -> Verdict:
        state = self.device_state(node, snapshot)
        found_for, outcome = self._outcome(state, demand, node, snapshot)
        match outcome:
            case Allocated():
                raw = raw_scores(ask.wishes, node, outcome.score)
                # Allocations name their node, so those of another node's search show only that it would succeed.
                devices = outcome if found_for == node.name else None
                return Fits(raw, emptiness(ask.wishes.needs, node), state, devices)
            case Fatal():
                return Faulty(outcome)
            case _:
                return Lacking(outcome)

    def _outcome(self, state: DeviceState, demand: Demand, node: NodeState, snapshot: Snapshot) -> tuple[str, Outcome]:
        known = self._outcomes.get(state)
        if known is None:
            if len(self._outcomes) >= REMEMBERED_MAX:
                self._outcomes.clear()
            known = self._outcomes[state] = (node.name, _search(demand, node, snapshot))
        return known

    def allocations(self, fits: Fits, node: NodeState, snapshot: Snapshot) -> tuple[AllocationResult, ...]:
        """What the ask's claims get on a node that fits, with `SHARE` in place of the ids of shares."""
        demand, outcome = self._ask.demand, fits.devices
        if demand is None:
            return ()
        if outcome is None:
            searched = _search(demand, node, snapshot)
            assert isinstance(searched, Allocated), f"{node.name} reaches the devices that others get, and gets none"
            outcome = searched
        return outcome.results

    def is_current(self, fits: Fits, node: NodeState, snapshot: Snapshot) -> bool:
        """Whether the devices are as they were when the verdict was given."""
        return self._ask.demand is None or fits.state == self.device_state(node, snapshot)

    def device_state(self, node: NodeState, snapshot: Snapshot) -> DeviceState:
        assert self._ask.demand is not None, "only an ask for devices depends on them"
        sight = self._sight(self._ask.demand, node, snapshot)
        usage = map(snapshot.usage.get, sight.pools)
        return (snapshot.rules, node.offer.declared_features, *sight.seen, *usage)

    def pools(self, node: NodeState, snapshot: Snapshot) -> tuple[PoolId, ...]:
        """The pools whose use decides what the node says."""
        demand = self._ask.demand
        return self._sight(demand, node, snapshot).pools if demand is not None else ()

    def _sight(self, demand: Demand, node: NodeState, snapshot: Snapshot) -> _Sight:
        view = snapshot.view(node.offer.place, demand.features.visibility)
        known = self._sights.get(node.name)
        if known is None or known.view is not view:
            known = self._sights[node.name] = _Sight(view, _pools_of_interest(view, demand), _seen(view))
        return known


def _search(demand: Demand, node: NodeState, snapshot: Snapshot) -> Outcome:
    return allocate(AllocationProblem(demand, node.offer.place, snapshot), lambda: SHARE)


def _seen(view: NodeView) -> tuple[object, ...]:
    # Where devices choose nodes one by one, no two nodes are taken to see the same.
    is_own = any(strip.slice.selects_per_device for strip in view.strips)
    return (view,) if is_own or view.fault else tuple((pool.slices, pool.layout) for pool in view.pools)


def _pools_of_interest(view: NodeView, demand: Demand) -> tuple[PoolId, ...]:
    """Pools with a device that could serve a request, or that must be looked at and cannot be judged."""
    profiles = {alternative.profile for alternative in demand.alternatives}
    offering: list[PoolId] = []
    for pool, strips in zip(view.pools, view.strips_by_pool, strict=True):
        offers = (offer_of(strip.slice, profile) for strip in strips for profile in profiles)
        if any(offer.matched or offer.faults for offer in offers):
            offering.append(pool.pool_id)
    return tuple(offering)
