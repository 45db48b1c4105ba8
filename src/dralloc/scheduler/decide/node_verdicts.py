"""The verdict of one node on a pod's requirements: its scores, or why it cannot take the pod."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Final

from msgspec import Struct

from dralloc.devices.allocator.node_equivalence import NodeEquivalence
from dralloc.devices.allocator.outcome import Allocated, BudgetExhausted, ClaimAllocation, Fatal, Impossible
from dralloc.devices.identity import ClaimId, PoolId
from dralloc.devices.snapshot import Snapshot
from dralloc.scheduler.contract import ClusterView
from dralloc.scheduler.decide.device_judge import DeviceJudge, SearchedNode
from dralloc.scheduler.decide.extended_supply import ExtendedSupplies, NodeSupply
from dralloc.scheduler.decide.node_fit import NodeMisfit, misfit_of_load
from dralloc.scheduler.decide.node_scores import RawScores
from dralloc.scheduler.decide.offer_verdicts import OfferJudge
from dralloc.scheduler.decide.placement_rules import PlacementRules
from dralloc.scheduler.decide.placement_strategy import NodeScorer, Scoring
from dralloc.scheduler.decide.pod_requirements import HeldClaim, PodRequirements
from dralloc.scheduler.state.node_state import NodeOffer, NodeState
from dralloc.scheduler.state.pod_resources import PodResources


class Fits(Struct, frozen=True, gc=False):
    """The node can take the pod.

    `allocated` is what the claims get; None where the pod has no claims to allocate, or another node's search was reused.
    """

    raw: RawScores
    strategy_score: int
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
    """The node's devices cannot serve the claims. Without a key of the devices, that was known without a search."""

    outcome: Impossible | BudgetExhausted
    devices_key: Hashable = None


_IMPOSSIBLE: Final = Impossible()


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
    """Verdicts on one pod's requirements.

    `devices` judges the demand of the requirements. A pod with `extended` resources has another demand on some nodes.
    """

    def __init__(
        self,
        requirements: PodRequirements,
        devices: DeviceJudge | None,
        scoring: Scoring,
        offers: OfferJudge,
        extended: ExtendedSupplies | None = None,
    ) -> None:
        self._requirements = requirements
        self._offers = offers
        self._supply = NodeSupply(requirements.node.resources, devices)
        self._extended = extended
        self._scoring = scoring
        self.scorer = scoring.scorer(requirements, devices)
        self._scorers: dict[DeviceJudge | None, NodeScorer] = {devices: self.scorer}
        # Many nodes share one.
        self._misfits: dict[NodeMisfit, Unfit] = {}
        self._out_of_reach: dict[ClaimId, OutOfReach] = {}

    def verdict(self, node: NodeState, snapshot: Snapshot) -> NodeVerdict:
        if (found := self._without_search(node, snapshot)) is not None:
            return found
        devices, place = self.devices_on(node), node.offer.place
        assert devices is not None, "only devices are searched for"
        key = devices.key(place, snapshot)
        return self._with_devices(node, snapshot, key, devices.search(key, place, snapshot))

    def _without_search(self, node: NodeState, snapshot: Snapshot) -> NodeVerdict | None:
        """The verdict, unless devices have to be searched for it."""
        if (unfit := self.verdict_on_node(node)) is not None:
            return unfit
        devices = self.devices_on(node)
        is_served = devices is None or devices.is_served(node.offer.place, snapshot)
        if is_served is None:
            return None
        return self.fits(node, snapshot) if is_served else Lacking(_IMPOSSIBLE)

    def expectation(self, node: NodeState, snapshot: Snapshot) -> NodeVerdict:
        """The verdict if it is cheap; otherwise that the node fits, for a pod to which all nodes' devices are equally good.

        Such a verdict is not current: it has no key of devices.
        """
        if (found := self._without_search(node, snapshot)) is not None:
            return found
        devices, place = self.devices_on(node), node.offer.place
        assert devices is not None, "only devices are searched for"
        key = devices.key(place, snapshot)
        known = devices.known(key)
        if known is None:
            if devices.visible(place, snapshot).is_faultless:
                return self.fits(node, snapshot)
            known = devices.search(key, place, snapshot)
        return self._with_devices(node, snapshot, key, known)

    def verdict_on_node(self, node: NodeState) -> Unfit | OutOfReach | None:
        """Why the node cannot take the pod, whatever devices it has; None if it can."""
        offered, supply = self._offers.on(node.offer), self._supply_on(node.offer)
        if (found := offered.misfit or supply.misfit or misfit_of_load(supply.resources, node)) is not None:
            return self._misfits.get(found) or self._misfits.setdefault(found, Unfit(found))
        return self._reach(offered.away) if offered.away is not None else None

    def _reach(self, away: HeldClaim) -> OutOfReach:
        known = self._out_of_reach.get(away.claim_id)
        return known or self._out_of_reach.setdefault(away.claim_id, OutOfReach(away.claim_id, away.place))

    def misfit(self, node: NodeState) -> NodeMisfit | None:
        """Why the node cannot take the pod, whatever devices it has and the pod's claims hold; None if it can."""
        supply = self._supply_on(node.offer)
        return self._offers.on(node.offer).misfit or supply.misfit or misfit_of_load(supply.resources, node)

    def devices_on(self, node: NodeState) -> DeviceJudge | None:
        """The judge of what the node's devices must serve; None if it is nothing."""
        return self._supply_on(node.offer).devices

    def needs_on(self, node: NodeState) -> PodResources:
        """What the pod uses of the node itself."""
        return self._supply_on(node.offer).resources

    def _supply_on(self, offer: NodeOffer) -> NodeSupply:
        return self._supply if self._extended is None else self._extended.on(offer)

    def _with_devices(self, node: NodeState, snapshot: Snapshot, key: Hashable, searched: SearchedNode) -> NodeVerdict:
        outcome = searched.outcome
        match outcome:
            case Allocated():
                # An allocation may name its node, so another node's only proves that this node fits.
                return self.fits(node, snapshot, outcome.score, key, outcome if searched.node == node.name else None)
            case Fatal():
                return Faulty(outcome)
            case _:
                return Lacking(outcome, key)

    def fits(
        self,
        node: NodeState,
        snapshot: Snapshot,
        device_score: int = 0,
        key: Hashable = None,
        allocated: Allocated | None = None,
    ) -> Fits:
        """The verdict of a node that is known to fit."""
        raw = self._offers.on(node.offer).raw
        if device_score:
            raw = raw._replace(devices=device_score)
        scorer = self.scorer if self._extended is None else self._scorer_on(node)
        return Fits(raw, scorer.score(node, snapshot), key, allocated)

    def _scorer_on(self, node: NodeState) -> NodeScorer:
        devices = self.devices_on(node)
        scorer = self._scorers.get(devices)
        if scorer is None:
            scorer = self._scorers[devices] = self._scoring.scorer(self._requirements, devices)
        return scorer

    def allocations(self, fits: Fits, node: NodeState, snapshot: Snapshot) -> tuple[ClaimAllocation, ...]:
        """What the unallocated claims get on a node that fits, by their index."""
        devices = self.devices_on(node)
        if devices is None:
            return ()
        return (fits.allocated or devices.allocated(node.offer.place, snapshot)).claims

    def is_current(self, fits: Fits, node: NodeState, snapshot: Snapshot) -> bool:
        """True if the devices were searched and have not changed since."""
        devices = self.devices_on(node)
        return devices is None or fits.devices_key == devices.key(node.offer.place, snapshot)

    def pools(self, node: NodeState, snapshot: Snapshot) -> tuple[PoolId, ...]:
        """The pools whose usage the node's verdict depends on, except those that no other node sees."""
        devices = self.devices_on(node)
        return devices.shared_pools(node.offer.place, snapshot) if devices is not None else ()


def all_verdicts(judge: NodeJudge, view: ClusterView) -> Mapping[str, NodeVerdict]:
    """The verdict of every node. Nodes that the claims cannot distinguish share one, with the scores of the first."""
    snapshot = view.snapshot
    equivalences: dict[DeviceJudge, NodeEquivalence] = {}
    known: dict[Hashable, NodeVerdict] = {}
    verdicts: dict[str, NodeVerdict] = {}
    for name, node in view.nodes.items():
        unfit = judge.verdict_on_node(node)
        devices = judge.devices_on(node)
        if unfit is not None or devices is None:
            verdicts[name] = unfit or judge.verdict(node, snapshot)
            continue
        if devices not in equivalences:
            equivalences[devices] = NodeEquivalence(devices.demand, snapshot)
        key = (devices, equivalences[devices].key(node.offer.place))
        verdict = known.get(key)
        if verdict is None:
            verdict = judge.verdict(node, snapshot)
            # Readers tell nodes of different kinds apart by their verdicts.
            known[key] = verdict = (
                Lacking(verdict.outcome, verdict.devices_key) if isinstance(verdict, Lacking) else verdict
            )
        verdicts[name] = verdict
    return verdicts
