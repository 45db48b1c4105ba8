"""One attempt to place a gang: its members together, or none.

First each member is decided in order, as a pod alone would be; where that places enough members it is the answer, as in
Kubernetes. Otherwise nodes and devices of all members are searched together (`gang_search`). Members beyond those that the gang
needs are placed one by one where they fit.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from msgspec.structs import replace

from dralloc.devices.allocator.features import Features
from dralloc.devices.identity import ClaimId
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import AllocationResult, ResourceClaim
from dralloc.primitives.features import FeatureGates
from dralloc.primitives.work_allowance import WorkExceeded
from dralloc.scheduler.contract import (
    DYNAMIC_RESOURCES,
    ClusterView,
    CommittedPlacement,
    Decision,
    DecisionFailure,
    ExtendedClaim,
    Placement,
    Rejection,
    WaitReason,
)
from dralloc.scheduler.decide.cycle import Cycle, SchedulingAttempt
from dralloc.scheduler.decide.gang_problem import Gang, GangMember
from dralloc.scheduler.decide.gang_search import (
    DEFAULT_GANG_BUDGET,
    GangBudget,
    GangImpossible,
    GangOutcome,
    GangPlaces,
    GangUndecided,
    search_gang,
)
from dralloc.scheduler.decide.gang_walk import rules_of
from dralloc.scheduler.decide.placement_rules import PlacementRules
from dralloc.scheduler.decide.useless_reservations import UselessReservations, reservations_of_gang
from dralloc.scheduler.state.cluster_events import (
    DEVICES_CHANGED,
    DEVICES_FREED,
    NODE_CHANGED,
    NODE_RESOURCES_FREED,
    ClusterEvent,
    pod_changed,
)
from dralloc.scheduler.state.node_state import NodeState
from dralloc.scheduler.state.placed_pods import pod_key
from dralloc.scheduler.state.pod_resources import PodResources
from dralloc.scheduler.state.volume_state import VolumePlan

GANG_SCHEDULING = "GangScheduling"


class AssumingView(ClusterView, Protocol):
    """A view that takes decisions into account, and takes them back."""

    def assume(
        self,
        pod: Pod,
        node: str,
        allocations: Mapping[ClaimId, AllocationResult],
        volumes: VolumePlan | None = None,
        extended: ExtendedClaim | None = None,
        needs: PodResources | None = None,
    ) -> None: ...

    def forget(self, pod: Pod, claims: Sequence[ClaimId]) -> object: ...


@dataclass(frozen=True, slots=True)
class GangRequest:
    """The members of a gang without a node, in the order of the queue. `scheduled` more have one already.

    With a `topology_key`, all members must be on nodes with the same value of this label: `topology_value`, if members have
    nodes already. `consumer` is the UID of the group, for which claims may be reserved.
    """

    pods: tuple[Pod, ...]
    min_count: int
    scheduled: int = 0
    topology_key: str | None = None
    topology_value: str | None = None
    consumer: str | None = None

    @property
    def needed(self) -> int:
        """How many of the pods must get nodes together."""
        return max(self.min_count - self.scheduled, 0)


@dataclass(frozen=True, slots=True)
class GangPlacement:
    """The members that get nodes, and why the others get none."""

    placed: tuple[tuple[Pod, CommittedPlacement], ...]
    others: tuple[tuple[Pod, Rejection | DecisionFailure], ...] = ()
    # True if members one by one would not have been placed.
    was_searched: bool = False


@dataclass(frozen=True, slots=True)
class GangRejection:
    """No member gets a node. `release` is what is reserved for members all the same."""

    message: str
    members: tuple[tuple[Pod, Rejection | DecisionFailure], ...]
    waits_for: frozenset[ClusterEvent]
    release: tuple[UselessReservations, ...] = ()
    is_undecided: bool = False
    is_error: bool = False


GangDecision = GangPlacement | GangRejection
_Refusal = Rejection | DecisionFailure


@dataclass(slots=True)
class _Tried:
    """Members that were decided one after the other."""

    placed: list[tuple[Pod, CommittedPlacement]] = field(default_factory=list)
    refused: list[tuple[Pod, _Refusal]] = field(default_factory=list)


class GangCycle:
    """Decides for one gang after the other. What it decides is assumed in the view."""

    def __init__(
        self,
        view: AssumingView,
        cycle: Cycle,
        gates: FeatureGates,
        new_share_id: Callable[[], str],
        budget: GangBudget = DEFAULT_GANG_BUDGET,
        domain_tried: Callable[[GangRequest, bool], None] = lambda *_: None,
    ) -> None:
        """`domain_tried` is called after each attempt on the nodes with one value of a topology key; True if it succeeded."""
        self._view = view
        self._cycle = cycle
        self._features = Features.of(gates).of_scheduler()
        self._new_share_id = new_share_id
        self._budget = budget
        self._domain_tried = domain_tried

    def decide(self, request: GangRequest, now: datetime) -> GangDecision:
        """A placement is assumed already when it is returned; after a rejection, nothing is."""
        best: _Tried | None = None
        for value in self._domains(request):
            tried = self._try_each(request, value, now)
            is_enough = len(tried.placed) >= request.needed and bool(tried.placed)
            self._tell(request, value, is_enough)
            if is_enough:
                return GangPlacement(tuple(tried.placed), tuple(tried.refused))
            self._forget(tried)
            if best is None or len(tried.placed) > len(best.placed):
                best = tried
        best = best or _Tried()
        if not request.needed:
            return GangPlacement((), tuple(best.refused))
        outcome = self._search(request, now)
        if isinstance(outcome, _Tried):
            return GangPlacement(tuple(outcome.placed), tuple(outcome.refused), was_searched=True)
        return self._reject(request, best, outcome)

    def early(self, request: GangRequest) -> GangRejection | None:
        """Why the gang cannot be tried yet: objects that too many members need are about to be created, as in Kubernetes' PreEnqueue.

        It waits for as few of these members as possible: most of them get what they need without waking the gang.
        """
        obstacles = {pod.metadata.uid: found for pod in request.pods if (found := self._cycle.early_obstacle(pod))}
        missing = request.needed - (len(request.pods) - len(obstacles))
        if missing <= 0:
            return None
        message = f"pod group is unschedulable, waiting for the claims of {len(obstacles)} of its pods"
        # Once so many are ready, one of the last of them is.
        awaited = [*obstacles.values()][missing - 1 :]
        return GangRejection(
            message,
            tuple((pod, obstacles.get(pod.metadata.uid) or _refusal_of(message)) for pod in request.pods),
            frozenset[ClusterEvent]().union(*(each.waits_for for each in awaited)),
        )

    # --- One member after the other ---------------------------------------------------------------------------------

    def _domains(self, request: GangRequest) -> Iterator[str | None]:
        """The values of the topology key, of which the gang gets one; None if it has no key."""
        if request.topology_key is None or request.topology_value is not None:
            yield request.topology_value
            return
        labels = (node.offer.labels.get(request.topology_key) for node in self._view.nodes.values())
        yield from sorted({value for value in labels if value is not None})

    def _tell(self, request: GangRequest, value: str | None, is_feasible: bool) -> None:
        if value is not None:
            self._domain_tried(request, is_feasible)

    def _try_each(
        self, request: GangRequest, value: str | None, now: datetime, pods: Sequence[Pod] | None = None
    ) -> _Tried:
        tried = _Tried()
        left = len(request.pods)
        for pod in request.pods if pods is None else pods:
            if pods is None and len(tried.placed) + left < request.needed:
                # Too few are left: the rest is not tried, as in Kubernetes.
                break
            left -= 1
            with self._forgetting(tried):
                decision = self._decide(pod, request.topology_key, value, now)
            if isinstance(decision, Placement):
                self._assume(pod, decision, tried)
            else:
                tried.refused.append((pod, decision))
        return tried

    @contextmanager
    def _forgetting(self, tried: _Tried) -> Iterator[None]:
        """A decision that is interrupted assumes nothing."""
        try:
            yield
        except WorkExceeded:
            self._forget(tried)
            raise

    def _decide(self, pod: Pod, key: str | None, value: str | None, now: datetime) -> Decision:
        """The decision about the pod on nodes with this label."""
        if key is None or value is None:
            return self._cycle.decide(pod, now)
        selector = pod.spec.node_selector or {}
        if selector.get(key, value) != value:
            return _refusal_of(f"the node selector excludes nodes with {key}={value}")
        return self._cycle.decide(replace(pod, spec=replace(pod.spec, node_selector={**selector, key: value})), now)

    def _assume(self, pod: Pod, placement: Placement, tried: _Tried) -> None:
        committed = placement.commit(self._new_share_id)
        self._view.assume(
            pod, committed.node, committed.allocations, committed.volumes, committed.extended, committed.needs
        )
        tried.placed.append((pod, committed))

    def _forget(self, tried: _Tried) -> None:
        for pod, committed in reversed(tried.placed):
            self._view.forget(pod, tuple(committed.allocations))

    # --- All members together ---------------------------------------------------------------------------------------

    def _search(self, request: GangRequest, now: datetime) -> _Tried | GangOutcome:
        attempts = [self._cycle.begin(pod) for pod in request.pods]
        gang = gang_of([each for each in attempts if isinstance(each, SchedulingAttempt)], request.needed)
        outcome: GangOutcome = GangImpossible(request.needed, len(gang.members))
        for value in self._domains(request):
            found = self._search_domain(gang, request.topology_key, value)
            self._tell(request, value, isinstance(found, GangPlaces))
            if isinstance(found, GangPlaces):
                return self._take(request, gang, found, value, now)
            outcome = _stronger(outcome, _for_pods(found, gang, request.pods))
        return outcome

    def _search_domain(self, gang: Gang, key: str | None, value: str | None) -> GangOutcome:
        """Nodes whose plugins serve extended resources of members are left out: there, members have other claims."""
        all_nodes = [node for node in self._view.nodes.values() if _is_in(node, key, value)]
        nodes = [node for node in all_nodes if all(each.is_served_by_devices(node) for each in gang.members)]
        found = search_gang(gang, self._view, self._features, nodes=nodes, budget=self._budget)
        is_proof = isinstance(found, GangImpossible)
        return GangUndecided(0) if is_proof and len(nodes) < len(all_nodes) else found

    def on(self, view: ClusterView) -> GangCycle:
        """A cycle with the same settings on another view, in which nothing can be assumed."""
        other = copy(self)
        other._view, other._cycle = view, self._cycle.on(view)  # type: ignore[assignment]  # it only searches
        return other

    def places(self, request: GangRequest, now: datetime) -> tuple[tuple[Pod, Placement], ...] | None:
        """Where the members that the gang needs fit together. Nothing is assumed."""
        attempts = [each for pod in request.pods if isinstance(each := self._cycle.begin(pod), SchedulingAttempt)]
        if len(attempts) < request.needed:
            return None
        gang = gang_of(attempts, request.needed)
        for value in self._domains(request):
            found = self._search_domain(gang, request.topology_key, value)
            if isinstance(found, GangPlaces):
                members = ((gang.members[index], node) for index, node in found.nodes.items())
                return tuple((member.pod, self._placement(member, node, found, now)) for member, node in members)
        return None

    def _take(self, request: GangRequest, gang: Gang, places: GangPlaces, value: str | None, now: datetime) -> _Tried:
        """Assumes the members of the search, then places the others one by one."""
        tried = _Tried()
        for index, node in places.nodes.items():
            member = gang.members[index]
            with self._forgetting(tried):
                placement = self._placement(member, node, places, now)
            self._assume(member.pod, placement, tried)
        placed = {pod.metadata.uid for pod, _ in tried.placed}
        others = [pod for pod in request.pods if pod.metadata.uid not in placed]
        with self._forgetting(tried):
            rest = self._try_each(request, value, now, others)
        return _Tried(tried.placed + rest.placed, rest.refused)

    def _placement(self, member: GangMember, node: str, places: GangPlaces, now: datetime) -> Placement:
        claims = (*member.claims.allocated_ids, *member.claims.unallocated_ids)
        current = {claim_id: self._view.find_claim(claim_id) for claim_id in claims}
        held = {claim_id: _allocation(claim) for claim_id, claim in current.items()}
        rules = rules_of(member, self._view) if member.moves_rules else None
        needs = member.extended
        extended = needs.made_on(member.pod, self._view.nodes[node].offer) if needs is not None else None
        return Placement(
            node,
            held={claim_id: allocation for claim_id, allocation in held.items() if allocation is not None},
            new={claim_id: places.allocations[claim_id] for claim_id in claims if held[claim_id] is None},
            allocated_at=now if self._features.binding_conditions else None,
            volumes=rules.volume_plan(self._view.nodes[node]) if isinstance(rules, PlacementRules) else None,
            extended=extended,
        )

    # --- No place ---------------------------------------------------------------------------------------------------

    def _reject(self, request: GangRequest, tried: _Tried, outcome: GangOutcome) -> GangRejection:
        message = self._message(request, tried, outcome)
        consumer = request.consumer if not request.scheduled else None
        refused = {pod.metadata.uid: refusal for pod, refusal in tried.refused}
        events: set[ClusterEvent] = {NODE_CHANGED, NODE_RESOURCES_FREED, DEVICES_FREED, DEVICES_CHANGED}
        members: list[tuple[Pod, _Refusal]] = []
        for pod in request.pods:
            events.add(pod_changed(pod_key(pod)))
            refusal = refused.get(pod.metadata.uid)
            if isinstance(refusal, Rejection):
                events |= refusal.waits_for
            members.append((pod, refusal or _refusal_of(f"pod group is unschedulable, {message}")))
        return GangRejection(
            message,
            tuple(members),
            frozenset(events),
            release=tuple(reservations_of_gang(request.pods, consumer, self._view)),
            is_undecided=isinstance(outcome, GangUndecided),
            is_error=any(isinstance(refusal, DecisionFailure) for refusal in refused.values()),
        )

    def _message(self, request: GangRequest, tried: _Tried, outcome: GangOutcome) -> str:
        pending = len(request.pods)
        head = f"minCount ({request.min_count}) cannot be satisfied: {request.scheduled} scheduled, {pending} remaining"
        first = next((f"; pod {pod.metadata.name}: {refusal.message}" for pod, refusal in tried.refused), "")
        match outcome:
            case GangUndecided(steps):
                why = f"no place for {request.needed} of them together was found within {steps} steps of search"
            case GangImpossible(kind=int()) as proof:
                like = request.pods[proof.kind].metadata.name if proof.kind is not None else ""
                why = f"at most {proof.most} of {proof.needed} pods like {like} fit"
            case GangImpossible(needed, most):
                why = f"at most {min(most, needed - 1)} of the {needed} needed fit together"
            case _:
                why = "they do not fit together"
        return f"{head}, {why}{first}"


def gang_of(attempts: Sequence[SchedulingAttempt], needed: int) -> Gang:
    """The gang of pods whose checks before any node have succeeded."""
    return Gang(tuple(map(_member_of, attempts)), needed)


def _member_of(attempt: SchedulingAttempt) -> GangMember:
    node, extended = attempt.table.requirements.node, attempt.extended
    if extended is not None and extended.classes:
        node = dataclasses.replace(node, resources=node.resources.without(frozenset(extended.classes)))
    else:
        extended = None
    held = attempt.table.requirements.held
    return GangMember(attempt.pod, attempt.claims, node, held, attempt.key, attempt.rules, extended)


def _stronger(known: GangOutcome, found: GangOutcome) -> GangOutcome:
    """What to say if neither domain has a place: undecided if one is, else the proof that leaves more members a place."""
    if isinstance(known, GangUndecided) or not isinstance(known, GangImpossible):
        return known
    if isinstance(found, GangImpossible) and found.most < known.most < known.needed:
        return known
    return found


def _for_pods(found: GangOutcome, gang: Gang, pods: Sequence[Pod]) -> GangOutcome:
    """A proof names a member of the gang, to which pods without their claims do not belong; here it names one of the pods."""
    if not isinstance(found, GangImpossible) or found.kind is None:
        return found
    uid = gang.members[found.kind].pod.metadata.uid
    return dataclasses.replace(found, kind=next(n for n, pod in enumerate(pods) if pod.metadata.uid == uid))


def _refusal_of(message: str) -> Rejection:
    plugins = frozenset({GANG_SCHEDULING, DYNAMIC_RESOURCES})
    return Rejection(message, frozenset(), plugins=plugins, reason=WaitReason.GROUP)


def _allocation(claim: ResourceClaim | None) -> AllocationResult | None:
    return claim.status.allocation if claim is not None else None


def _is_in(node: NodeState, key: str | None, value: str | None) -> bool:
    return key is None or node.offer.labels.get(key) == value
