"""One attempt to place one pod: a view of the cluster and the pod in, a decision out.

Pure apart from its caches: the same view and pod give the same decision, and nothing is written. A what-if therefore asks the
same cycle, with a view of its own.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Final
from weakref import WeakValueDictionary

from msgspec import Struct
from msgspec.structs import replace

from dralloc.devices.allocator.diagnosis.reasons import ReasonCause, ReasonGroup, availability
from dralloc.devices.allocator.features import Features
from dralloc.devices.allocator.requests import compile_demand
from dralloc.devices.identity import ClaimId
from dralloc.kube.pod_claims import is_held_by_workload
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import ResourceClaim
from dralloc.primitives.features import FeatureGates
from dralloc.primitives.work_allowance import WorkExceeded, renewed_allowance
from dralloc.scheduler.contract import (
    DYNAMIC_RESOURCES,
    ClusterView,
    Decision,
    DecisionFailure,
    Placement,
    Rejection,
    WaitReason,
)
from dralloc.scheduler.decide.claim_checks import (
    Obstacle,
    claims_of,
    classes_of,
    demand_obstacle,
    reservation_obstacle,
)
from dralloc.scheduler.decide.device_judge import DeviceJudge
from dralloc.scheduler.decide.extended_supply import ExtendedNeeds, ExtendedSupplies
from dralloc.scheduler.decide.node_masks import FitMasks
from dralloc.scheduler.decide.node_verdicts import Fits, NodeVerdict, all_verdicts, overruled
from dralloc.scheduler.decide.offer_verdicts import OfferJudge
from dralloc.scheduler.decide.placement_rules import PlacementRules
from dralloc.scheduler.decide.pod_requirements import (
    ClaimSplit,
    HeldClaim,
    PodRequirements,
    demand_key,
    equivalence_key,
)
from dralloc.scheduler.decide.pod_volumes import VolumeObstacle, volume_events, volumes_of
from dralloc.scheduler.decide.ranked_groups import LimitIndex
from dralloc.scheduler.decide.search_effort import DEFAULT_EFFORT, SearchEffort
from dralloc.scheduler.decide.strategy_choice import SPREADING, StrategyChoice, StrategySettings
from dralloc.scheduler.decide.verdict_table import NodeChoice, VerdictTable
from dralloc.scheduler.state.binding_conditions import is_unusable
from dralloc.scheduler.state.cluster_events import (
    DEVICES_CHANGED,
    DEVICES_FREED,
    DEVICES_TAKEN,
    NODE_CHANGED,
    NODE_RESOURCES_FREED,
    claim_changed,
    class_changed,
    extended_resource_changed,
    pod_changed,
)
from dralloc.scheduler.state.node_state import NodeState
from dralloc.scheduler.state.placed_pods import pod_key
from dralloc.scheduler.state.volume_state import has_volumes

# Bounds on the caches: tables, the judges of interrupted decisions, and verdicts of all tables together.
TABLES_MAX: Final = 1000
INTERRUPTED_MAX: Final = 16
VERDICTS_MAX: Final = 3_000_000


class SchedulingAttempt(Struct, frozen=True, eq=False):
    """A pod whose nodes are to be judged. `key` is equal for pods that get the same decision."""

    pod: Pod
    claims: ClaimSplit
    table: VerdictTable
    rules: PlacementRules | None
    key: bytes
    extended: ExtendedNeeds | None = None


class Cycle:
    """Decides for one pod after the other."""

    def __init__(
        self,
        view: ClusterView,
        gates: FeatureGates,
        effort: SearchEffort = DEFAULT_EFFORT,
        strategies: StrategySettings = SPREADING,
    ) -> None:
        self._view = view
        self._gates = gates
        self._features = Features.of(gates).of_scheduler()
        self._serves_extended = "DRAExtendedResource" in gates
        self._shares_group_claims = "DRAWorkloadResourceClaims" in gates
        self._effort = effort
        self._strategies = StrategyChoice(strategies, self._features)
        self._tables: OrderedDict[tuple[bytes, str], VerdictTable] = OrderedDict()
        # Tables of one demand share its judge, which lives as long as one of them.
        self._device_judges: WeakValueDictionary[bytes, DeviceJudge] = WeakValueDictionary()
        self._masks = FitMasks(view)
        self._limits = LimitIndex(view)
        self._start = 0
        # What decisions that were interrupted have found out: they go on there. By the key of the table.
        self._interrupted: OrderedDict[tuple[bytes, str], tuple[DeviceJudge | None, OfferJudge]] = OrderedDict()

    def on(self, view: ClusterView) -> Cycle:
        """A cycle with the same settings on another view."""
        return Cycle(view, self._gates, self._effort, self._strategies.present_settings)

    @property
    def strategies(self) -> StrategySettings:
        """The strategies, with the typical pods that were learnt up to now."""
        return self._strategies.present_settings

    def learn_from(self, existing: Iterable[tuple[Pod, Iterable[ResourceClaim]]]) -> None:
        """Learns typical pods from pods that were placed before, with their claims."""
        self._strategies.learn_from(existing, self._view.classes)

    def decide(self, pod: Pod, now: datetime) -> Decision:
        attempt = self.begin(pod)
        return attempt if isinstance(attempt, Rejection) else self.conclude(attempt, now)

    def conclude(self, attempt: SchedulingAttempt, now: datetime) -> Decision:
        """The second step of a decision; `begin` is the first."""
        if (placement := self._placement(attempt, now)) is not None:
            return placement
        unusable = _unusable(attempt.claims, now)
        refusal = self._refuse(attempt, unusable)
        # Which claim to deallocate depends on the pod, not only on its requirements.
        if isinstance(refusal, Rejection) and refusal.deallocate is None and not unusable:
            return replace(refusal, equivalence_key=attempt.key)
        return refusal

    def placement(self, pod: Pod, now: datetime) -> Placement | None:
        """The decision if it is a placement. Reasons, which cost more than a decision, are not looked for."""
        attempt = self.begin(pod)
        return None if isinstance(attempt, Rejection) else self._placement(attempt, now)

    def verdicts(self, pod: Pod) -> Mapping[str, NodeVerdict]:
        """The verdict of every node on the pod; empty if the pod is rejected before any node is judged."""
        attempt = self.begin(pod)
        if isinstance(attempt, Rejection):
            return {}
        return overruled(all_verdicts(attempt.table.judge, self._view), attempt.rules, self._view.nodes)

    def early_obstacle(self, pod: Pod) -> Rejection | None:
        """Why the pod cannot be decided on yet, if what is missing is probably about to be created. Costs little."""
        claims = claims_of(pod, self._view.find_claim, for_groups=self._shares_group_claims)
        if isinstance(claims, Obstacle):
            return _rejection(claims) if claims.is_early else None
        volumes = volumes_of(pod, self._view.volumes) if pod.spec.volumes and has_volumes(pod) else None
        if not isinstance(volumes, VolumeObstacle) or not volumes.is_early:
            return None
        return self._reject_volumes(pod, volumes)

    def begin(self, pod: Pod) -> SchedulingAttempt | Rejection:
        """What the decision needs; or why no node need be judged."""
        view = self._view
        if (made := view.extended_claim_of(pod.metadata.uid)) is not None:
            message = f"claim {made}, made for its extended resources in an earlier attempt, must be deleted first"
            return Rejection(message, frozenset({claim_changed(made)}), delete=made)
        claims = claims_of(pod, view.find_claim, for_groups=self._shares_group_claims)
        if isinstance(claims, Obstacle):
            return _rejection(claims)
        extended = ExtendedNeeds.of(pod, view.extended_classes) if self._serves_extended else None
        split = ClaimSplit.of(claims if extended is None else (*claims, *extended.claims(pod)))
        if (obstacle := reservation_obstacle(pod, claims, self._gates)) is not None:
            return _rejection(obstacle)
        demand = demand_key(split, view.classes)
        # A demand that has a judge was found to have no obstacle.
        if demand not in self._device_judges:
            obstacle = demand_obstacle(split.unallocated, view.classes, self._features)
            if obstacle is not None:
                return _rejection(obstacle)
        volumes = volumes_of(pod, view.volumes) if pod.spec.volumes and has_volumes(pod) else None
        if isinstance(volumes, VolumeObstacle):
            return self._reject_volumes(pod, volumes)
        key = equivalence_key(pod, split) + demand
        strategy = self._strategies.of(pod)
        # What was learnt up to the last pod: this one is decided as clients could foresee.
        self._strategies.apply()
        table = self._table((key, strategy.name), pod, split, demand, extended)
        self._strategies.learn(pod, key, table.requirements, split.unallocated)
        with self._whole(table):
            rules = PlacementRules.of(pod, table.requirements.node, volumes, view)
        return SchedulingAttempt(pod, split, table, rules, key if rules is None else key + rules.key(), extended)

    def _reject_volumes(self, pod: Pod, obstacle: VolumeObstacle) -> Rejection:
        message = f"0/{len(self._view.nodes)} nodes are available: {obstacle.message}"
        waits_for = volume_events(pod) | {pod_changed(pod_key(pod))}
        plugins = frozenset({obstacle.plugin})
        return Rejection(message, waits_for, obstacle.is_early, plugins=plugins, reason=WaitReason.VOLUMES)

    def place_on(
        self, attempt: SchedulingAttempt, node_name: str, now: datetime, view: ClusterView | None = None
    ) -> Placement | None:
        """The placement on this node, if it fits. A view other than the cycle's has the same claims of the pod, and no more rules."""
        view = view or self._view
        node, table = view.nodes.get(node_name), attempt.table
        names = table.requirements.only_nodes()
        if node is None or (names is not None and node_name not in names) or _unusable(attempt.claims, now):
            return None
        if attempt.rules is not None and attempt.rules.misfit(node) is not None:
            return None
        verdict = table.judge.verdict(node, view.snapshot)
        return self._placed(attempt, NodeChoice(node, verdict), now, view) if isinstance(verdict, Fits) else None

    def _placement(self, attempt: SchedulingAttempt, now: datetime) -> Placement | None:
        with self._whole(attempt.table):
            choice = attempt.table.best(attempt.rules) if not _unusable(attempt.claims, now) else None
        return self._placed(attempt, choice, now, self._view) if choice is not None else None

    def _placed(self, attempt: SchedulingAttempt, choice: NodeChoice, now: datetime, view: ClusterView) -> Placement:
        claims = attempt.claims
        allocations = attempt.table.judge.allocations(choice.fits, choice.node, view.snapshot)
        extended = attempt.extended.made_on(attempt.pod, choice.node.offer) if attempt.extended is not None else None
        # The claim for extended resources is the last; on a node where plugins serve all of them there is none.
        claim_ids = claims.unallocated_ids[: len(allocations)]
        return Placement(
            choice.node.name,
            held={
                ClaimId.of(claim): allocation
                for claim in claims.allocated
                if (allocation := claim.status.allocation) is not None
            },
            new=dict(zip(claim_ids, allocations, strict=True)),
            allocated_at=now if self._features.binding_conditions else None,
            volumes=attempt.rules.volume_plan(choice.node) if attempt.rules is not None else None,
            extended=extended,
            needs=attempt.table.judge.needs_on(choice.node),
        )

    def _refuse(self, attempt: SchedulingAttempt, unusable: tuple[ResourceClaim, ...]) -> Rejection | DecisionFailure:
        pod, claims, table = attempt.pod, attempt.claims, attempt.table
        if not unusable and (fault := table.fault(attempt.rules)) is not None:
            return DecisionFailure(fault.fatal.text(claims.unallocated_ids))
        used = frozenset(map(ClaimId.of, (*claims.allocated, *claims.unallocated)))
        waits_for = frozenset(map(claim_changed, used)) | {
            NODE_CHANGED,
            NODE_RESOURCES_FREED,
            pod_changed(pod_key(pod)),
        }
        if attempt.rules is not None:
            waits_for |= attempt.rules.waits_for
        if attempt.extended is not None:
            waits_for |= set(map(extended_resource_changed, attempt.extended.names))
        if claims.unallocated:
            waits_for |= {DEVICES_FREED, DEVICES_CHANGED}
            demand = table.requirements.demand
            if demand is not None and demand.wants_used_devices:
                waits_for |= {DEVICES_TAKEN}
            waits_for |= {class_changed(name) for claim in claims.unallocated for name in classes_of(claim)}
        if unusable:
            message, plugins = (
                f"claim {ClaimId.of(unusable[0])}: its devices could not be bound",
                frozenset({DYNAMIC_RESOURCES}),
            )
            groups: tuple[ReasonGroup, ...] = ()
            reason: str = WaitReason.BINDING
        else:
            with renewed_allowance(), self._whole(table):
                groups, plugins = table.reasons(attempt.rules)
            message = self._message(attempt, groups)
            reason = groups[0].reason.cause.value if groups else WaitReason.NO_NODES
        return Rejection(
            message,
            waits_for,
            deallocate=self._to_deallocate(attempt, unusable),
            plugins=plugins,
            reason=reason,
            lacks_capacity=any(group.reason.cause is ReasonCause.CAPACITY for group in groups),
        )

    def _message(self, attempt: SchedulingAttempt, groups: tuple[ReasonGroup, ...]) -> str:
        """Why no node can take the pod, with the names of its own claims."""
        if not self._view.nodes:
            return "no nodes are available"
        named = attempt.claims.unallocated_ids
        return availability([group.named(named) for group in groups], total=len(self._view.nodes))

    def _to_deallocate(self, attempt: SchedulingAttempt, unusable: tuple[ResourceClaim, ...]) -> ClaimId | None:
        """A claim that no other pod uses and that keeps the pod from a node which could take it."""
        requirements = attempt.table.requirements
        pairs = zip(attempt.claims.allocated, requirements.held, strict=True)
        free = [held for claim, held in pairs if self._is_free(claim, attempt.pod)]
        fixed = [held for held in requirements.held if held not in free]
        failed = set(map(ClaimId.of, unusable))
        for held in free:
            away = (node for node in self._view.nodes.values() if not held.is_usable_on(node.offer.place))
            if held.claim_id in failed or any(_could_take(attempt, fixed, node) for node in away):
                return held.claim_id
        return None

    def _is_free(self, claim: ResourceClaim, pod: Pod) -> bool:
        """True if only the pod holds the claim. A claim that a workload holds is never free."""
        is_ours = all(reference.uid == pod.metadata.uid for reference in claim.status.reserved_for)
        return is_ours and not is_held_by_workload(claim) and not self._view.is_in_use(ClaimId.of(claim))

    @contextmanager
    def _whole(self, table: VerdictTable) -> Iterator[None]:
        """Forgets the table if it is interrupted, and tables that share what may be half done. Their judges, which do one node after
        the other, keep what they have found out: the decision goes on there.
        """
        try:
            yield
        except WorkExceeded:
            judges = {table.offers, table.devices} - {None}
            for key, other in [*self._tables.items()]:
                if other is table:
                    self._keep_interrupted(key, table.devices, table.offers)
                if other is table or other.uses_any(judges):
                    del self._tables[key]
            raise

    def _keep_interrupted(self, key: tuple[bytes, str], devices: DeviceJudge | None, offers: OfferJudge) -> None:
        self._interrupted[key] = devices, offers
        self._interrupted.move_to_end(key)
        if len(self._interrupted) > INTERRUPTED_MAX:
            self._interrupted.popitem(last=False)

    # --- Tables -----------------------------------------------------------------------------------------------------

    def _table(
        self, key: tuple[bytes, str], pod: Pod, claims: ClaimSplit, demand_key: bytes, extended: ExtendedNeeds | None
    ) -> VerdictTable:
        table = self._tables.get(key)
        if table is None:
            devices = self._device_judge(demand_key, claims) if claims.unallocated else None
            requirements = PodRequirements.of(pod, claims, devices.demand if devices is not None else None)
            masks = self._masks
            supplies = self._supplies(extended, pod, claims, requirements) if extended and extended.classes else None
            offers = masks.offers(requirements)
            try:
                mask = masks.of(requirements, devices) if supplies is None else None
            except WorkExceeded:
                self._keep_interrupted(key, devices, offers)
                raise
            table = self._tables[key] = VerdictTable(
                requirements,
                self._view,
                devices,
                self._strategies.scoring(pod),
                offers,
                mask=mask,
                limits=self._limits,
                extended=supplies,
                start=self._start,
                effort=self._effort,
            )
            # The table keeps the judges from now on.
            self._interrupted.pop(key, None)
            self._start += 1009
            self._drop_oldest()
        self._tables.move_to_end(key)
        return table

    def _supplies(
        self, extended: ExtendedNeeds, pod: Pod, claims: ClaimSplit, requirements: PodRequirements
    ) -> ExtendedSupplies:
        def judge(own: ResourceClaim | None) -> DeviceJudge | None:
            # The last claim is the one for all extended resources.
            asked = (*claims.unallocated[:-1], own) if own is not None else claims.unallocated[:-1]
            split = ClaimSplit(unallocated=asked)
            return self._device_judge(demand_key(split, self._view.classes), split) if asked else None

        return ExtendedSupplies(extended, pod, requirements.node.resources, judge)

    def _device_judge(self, key: bytes, claims: ClaimSplit) -> DeviceJudge:
        judge = self._device_judges.get(key)
        if judge is None:
            demand = compile_demand(claims.unallocated, self._view.classes, self._features)
            judge = self._device_judges[key] = DeviceJudge(demand)
        return judge

    def _drop_oldest(self) -> None:
        verdicts = sum(map(len, self._tables.values()))
        while len(self._tables) > 1 and (len(self._tables) > TABLES_MAX or verdicts > VERDICTS_MAX):
            _, oldest = self._tables.popitem(last=False)
            verdicts -= len(oldest)


def _unusable(claims: ClaimSplit, now: datetime) -> tuple[ResourceClaim, ...]:
    return tuple(claim for claim in claims.allocated if is_unusable(claim, now))


def _rejection(obstacle: Obstacle) -> Rejection:
    return Rejection(obstacle.message, obstacle.waits_for, obstacle.is_early)


def _could_take(attempt: SchedulingAttempt, fixed: Iterable[HeldClaim], node: NodeState) -> bool:
    """True if neither the node itself nor claims that must keep their devices keep the pod from the node."""
    if attempt.table.judge.misfit(node) is not None:
        return False
    if attempt.rules is not None and attempt.rules.misfit(node) is not None:
        return False
    return all(held.is_usable_on(node.offer.place) for held in fixed)
