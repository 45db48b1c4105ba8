"""`explain`: everything that is to be said about some claims on some nodes, as values.

The work is in proportion to what is told. Every node gets its one-line reason; nodes with the same reason are told as one, and
only for one node of the nearest groups are the funnels unfolded and changes tried.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from itertools import islice
from typing import Final

from dralloc.answers.cluster_objects import place_of
from dralloc.answers.device_report import Holding, holdings
from dralloc.answers.engine import Engine
from dralloc.answers.explanation.attribute_statistics import (
    SelectorStatistics,
    Shapes,
    selector_statistics,
    selectors_of,
    shapes_on,
)
from dralloc.answers.explanation.choice import ExplainedChoice, explain_choice
from dralloc.answers.explanation.misspellings import Vocabulary, likely_value
from dralloc.answers.explanation.proposals import ChangeableObjects, proposals
from dralloc.answers.explanation.remedies import Remedy, Trials
from dralloc.answers.explanation.selector_parts import required_drivers
from dralloc.answers.explanation.situation import Situation
from dralloc.devices.allocator.allocate import AllocationProblem, allocate
from dralloc.devices.allocator.diagnosis.claim_edits import Claims
from dralloc.devices.allocator.diagnosis.device_funnel import Drop, Funnel, Hurdle, UnreadyPool, spots
from dralloc.devices.allocator.diagnosis.diagnoser import Diagnoser
from dralloc.devices.allocator.diagnosis.obstacles import describe
from dralloc.devices.allocator.diagnosis.reasons import Reason, ReasonCause, ReasonGroup, grouped
from dralloc.devices.allocator.node_equivalence import NodeEquivalence
from dralloc.devices.allocator.outcome import Allocated, BudgetExhausted, Fatal
from dralloc.devices.allocator.requests import Alternative, Demand, compile_demand
from dralloc.devices.identity import ClaimId, DeviceId
from dralloc.devices.node_selectors import NodeFacts
from dralloc.devices.snapshot import Snapshot
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.request_name import RequestName
from dralloc.kube.resource_v1 import ResourceClaim
from dralloc.scheduler.decide.node_reasons import reason_about_node
from dralloc.scheduler.decide.node_verdicts import Faulty, Fits, Lacking, NodeVerdict, OutOfReach, Unfit

# How many groups of nodes are told in detail.
DETAILED_MAX: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Which of these nodes can take this pod, and if none, why?"""

    engine: Engine
    # With its claims.
    pod: Pod
    # The nodes that are asked about, and the scheduler's verdict on each.
    nodes: tuple[NodeFacts, ...]
    verdicts: Mapping[str, NodeVerdict]
    # The node that the scheduler chooses; empty if none fits.
    chosen: str = ""

    @classmethod
    def about(cls, engine: Engine, pod: Pod) -> Question:
        """The question about a pod with its claims, on the nodes of the engine."""
        nodes = tuple(place_of(node) for node in engine.objects.nodes if engine.only_node in ("", node.metadata.name))
        question = cls(engine=engine, pod=pod, nodes=nodes, verdicts=engine.verdicts(pod))
        if not question.verdicts and nodes:
            # The pod is rejected before any node is judged. An error in its claims is explained like one that nodes meet.
            outcome = question.on(nodes[0]).outcome()
            if isinstance(outcome, Fatal):
                return replace(question, verdicts=dict.fromkeys((node.name for node in nodes), Faulty(outcome)))
        return question

    @property
    def claims(self) -> Claims:
        """The claims that are not allocated."""
        return tuple(claim for claim in self.engine.claims_of(self.pod) if claim.status.allocation is None)

    @property
    def snapshot(self) -> Snapshot:
        return self.engine.cluster.snapshot

    def demand(self, claims: Claims) -> Demand:
        return compile_demand(claims, self.engine.cluster.classes, self.engine.features)

    def on(self, node: NodeFacts) -> Situation:
        return Situation.of(self.engine, self.pod, node)


class FitVerdict(Enum):
    FITS = "Fits"
    DOES_NOT_FIT = "DoesNotFit"
    # Something is wrong with the claims, or with a slice: nothing is allocated on any node until that is changed.
    ERROR = "Error"
    # On no node a solution was found, and on some none was refuted.
    UNDECIDED = "Undecided"


@dataclass(frozen=True, slots=True)
class Step:
    """Devices that are lost at one hurdle of a funnel; `holders` are the claims that have them, where that is why."""

    hurdle: Hurdle
    count: int
    reason: Reason
    example: DeviceId
    holders: tuple[ClaimId, ...] = ()


@dataclass(frozen=True, slots=True)
class RequestFunnel:
    """What a node has for one request, or one alternative of it."""

    claim_id: ClaimId
    request: RequestName
    device_class: str
    wanted: int
    takes_all: bool
    # The most devices that give a capacity together; None for another mode.
    together: int | None
    seen: int
    steps: tuple[Step, ...]
    left: int


@dataclass(frozen=True, slots=True)
class NodeDetail:
    node: str
    reason: Reason
    requests: tuple[RequestFunnel, ...]
    unready: tuple[UnreadyPool, ...]


@dataclass(frozen=True, slots=True)
class Standing:
    """How one of several claims fares by itself."""

    claim_id: ClaimId
    available: int
    groups: tuple[ReasonGroup, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    verdict: FitVerdict
    # All nodes that were asked about, and those that can serve the claims.
    total: int
    available: tuple[str, ...]
    groups: tuple[ReasonGroup, ...]
    choice: ExplainedChoice | None = None
    details: tuple[NodeDetail, ...] = ()
    statistics: tuple[SelectorStatistics, ...] = ()
    absent_drivers: tuple[AbsentDriver, ...] = ()
    remedies: tuple[Remedy, ...] = ()
    # One for each claim, where there are several.
    standings: tuple[Standing, ...] = ()

    @property
    def blocking(self) -> tuple[ClaimId, ...]:
        """The claims that fit nowhere, even alone."""
        return tuple(standing.claim_id for standing in self.standings if not standing.available)


def explain(question: Question) -> Explanation:
    return _Investigation(question).explanation()


class _Investigation:
    def __init__(self, question: Question) -> None:
        self._question = question
        self._claims = question.claims
        self._demand = question.demand(self._claims)
        self._claim_ids = tuple(map(ClaimId.of, self._claims))
        self._diagnoser = Diagnoser(self._demand, question.snapshot, self._claim_ids)
        self._nodes = {node.name: node for node in question.nodes}

    def explanation(self) -> Explanation:
        verdicts = self._question.verdicts
        available = tuple(name for name in self._nodes if isinstance(verdicts[name], Fits))
        groups = grouped(self._reasons())
        verdict = _verdict(verdicts[name] for name in self._nodes)
        if verdict is FitVerdict.FITS:
            return Explanation(
                verdict=verdict,
                total=len(self._nodes),
                available=available,
                groups=groups,
                choice=self._choice() if self._demand.claims and self._question.chosen else None,
            )
        return Explanation(
            verdict=verdict,
            total=len(self._nodes),
            available=available,
            groups=groups,
            details=tuple(self._details(groups)),
            statistics=tuple(self._statistics()),
            absent_drivers=tuple(self._absent_drivers()),
            remedies=self._remedies(groups),
            standings=tuple(self._standings()),
        )

    def _reasons(self) -> Iterator[tuple[str, Reason]]:
        """Why nodes do not fit; diagnosed once for nodes that are equivalent to the claims."""
        known: dict[Hashable, Reason] = {}
        for name, node in self._nodes.items():
            match self._question.verdicts[name]:
                case Fits():
                    continue
                case Unfit() | OutOfReach() as verdict:
                    yield name, reason_about_node(verdict)
                case (Lacking(outcome) | Faulty(outcome)) as verdict:
                    # Equivalent nodes share a verdict, but a reason may name pools that the node does not see yet.
                    key = name if self._diagnoser.survey.unready_pools(node) else id(verdict)
                    if key not in known:
                        known[key] = self._diagnoser.reason(node, outcome)
                    yield name, known[key]

    def _equivalence(self, diagnoser: Diagnoser) -> Callable[[NodeFacts], Hashable]:
        keys = NodeEquivalence(diagnoser.demand, self._question.snapshot)
        # A reason may name pools that the node does not see yet.
        return lambda node: node.name if diagnoser.survey.unready_pools(node) else keys.key(node)

    # --- It fits --------------------------------------------------------------------------------------------------------

    def _choice(self) -> ExplainedChoice:
        situation = self._question.on(self._nodes[self._question.chosen])
        outcome = situation.outcome()
        assert isinstance(outcome, Allocated), f"{self._question.chosen} was chosen and does not fit"
        return explain_choice(situation, outcome)

    # --- It does not ----------------------------------------------------------------------------------------------------

    def _worth_telling(self, groups: Sequence[ReasonGroup]) -> Iterator[ReasonGroup]:
        """The nearest ones; of those with an error, and there are none nearer, what is wrong."""
        about_devices = (group for group in groups if group.reason.cause is not ReasonCause.NODE)
        yield from islice(about_devices, DETAILED_MAX)

    def _details(self, groups: Sequence[ReasonGroup]) -> Iterator[NodeDetail]:
        for group in self._worth_telling(groups):
            node = self._nodes[group.example]
            survey = self._diagnoser.survey
            if survey.view(node).fault is not None:
                continue
            yield NodeDetail(
                group.example,
                group.reason,
                tuple(
                    self._funnel(node, survey.funnel(node, alternative))
                    for alternative in self._demand.alternatives
                    if alternative.fault is None
                ),
                survey.unready_pools(node),
            )

    def _funnel(self, node: NodeFacts, funnel: Funnel) -> RequestFunnel:
        alternative = funnel.alternative
        return RequestFunnel(
            self._claim_ids[alternative.claim],
            alternative.name,
            alternative.device_class.metadata.name,
            funnel.wanted,
            alternative.takes_all,
            alternative.count if alternative.is_aggregated else None,
            funnel.seen_count,
            tuple(self._step(node, funnel, drop) for drop in funnel.drops),
            funnel.left_count,
        )

    def _step(self, node: NodeFacts, funnel: Funnel, drop: Drop) -> Step:
        lost = [spot.device_id for spot in spots(drop.devices)]
        holders: dict[ClaimId, None] = {}
        if drop.hurdle in (Hurdle.IN_USE, Hurdle.CAPACITY):
            holders = {holding.claim_id: None for device in lost for holding in self._held.get(device, ())}
        reason = describe(self._diagnoser.survey, node, funnel, drop).named(self._claim_ids)
        return Step(drop.hurdle, drop.count, reason, lost[0], tuple(holders))

    @cached_property
    def _held(self) -> Mapping[DeviceId, list[Holding]]:
        return holdings(self._question.snapshot.claims.values())

    @cached_property
    def _shapes(self) -> Shapes:
        return shapes_on(self._diagnoser.survey.view(node) for node in self._nodes.values())

    def _statistics(self) -> Iterator[SelectorStatistics]:
        told: set[tuple[str, str]] = set()
        for alternative in self._demand.alternatives:
            found = selector_statistics(alternative, self._shapes) if alternative.fault is None else None
            if found is not None and (found.source, found.expression) not in told:
                told.add((found.source, found.expression))
                yield found

    def _absent_drivers(self) -> Iterator[AbsentDriver]:
        alternatives = [each for each in self._demand.alternatives if each.fault is None]
        return absent_drivers(alternatives, {pool_id.driver for pool_id in self._question.snapshot.pools})

    def _remedies(self, groups: Sequence[ReasonGroup]) -> tuple[Remedy, ...]:
        question = self._question
        changeable = ChangeableObjects(question.engine.objects, question.pod, Vocabulary(self._shapes), self._held)
        verdicts = question.verdicts
        faulty = next((node for name, node in self._nodes.items() if isinstance(verdicts[name], Faulty)), None)
        trials = Trials(question.engine, question.pod, has_error=faulty is not None)
        nodes = [self._nodes[group.example] for group in self._worth_telling(groups)]
        return trials.remedies(
            (faulty or node, ladder) for node in nodes for ladder in proposals(question.on(node), changeable)
        )

    def _standings(self) -> Iterator[Standing]:
        if len(self._demand.claims) < 2:
            return
        for claim, claim_id in zip(self._claims, self._claim_ids, strict=True):
            reasons = dict(self._reasons_alone(claim, claim_id))
            yield Standing(claim_id, len(self._nodes) - len(reasons), grouped(reasons.items()))

    def _reasons_alone(self, claim: ResourceClaim, claim_id: ClaimId) -> Iterator[tuple[str, Reason]]:
        """Why nodes would not fit if the pod had this claim alone."""
        question = self._question
        demand = question.demand((claim,))
        diagnoser = Diagnoser(demand, question.snapshot, (claim_id,))
        equivalence = self._equivalence(diagnoser)
        known: dict[Hashable, Reason | None] = {}
        for name, node in self._nodes.items():
            verdict = question.verdicts[name]
            if isinstance(verdict, Unfit | OutOfReach):
                yield name, reason_about_node(verdict)
                continue
            key = equivalence(node)
            if key not in known:
                outcome = allocate(AllocationProblem(demand, node, question.snapshot))
                known[key] = None if isinstance(outcome, Allocated) else diagnoser.reason(node, outcome)
            if (reason := known[key]) is not None:
                yield name, reason


def _verdict(verdicts: Iterable[NodeVerdict]) -> FitVerdict:
    """As in Kubernetes, an error on any node ends the attempt for all of them."""
    found = list(verdicts)
    if any(isinstance(verdict, Faulty) for verdict in found):
        return FitVerdict.ERROR
    if any(isinstance(verdict, Fits) for verdict in found):
        return FitVerdict.FITS
    is_undecided = any(isinstance(each, Lacking) and isinstance(each.outcome, BudgetExhausted) for each in found)
    return FitVerdict.UNDECIDED if is_undecided else FitVerdict.DOES_NOT_FIT


# --- Absent drivers -------------------------------------------------------------------------------------------------
# Drivers that a selector requires by name and that have published no devices: what to ask first is whether they
# run.


@dataclass(frozen=True, slots=True)
class AbsentDriver:
    # `class gpu` or `request main`.
    source: str
    driver: str
    # The driver that was probably meant: it has published devices.
    likely: str = ""

    def line(self) -> str:
        meant = f"; did you mean {self.likely}? Otherwise" if self.likely else ":"
        return (
            f"{self.source} requires the driver {self.driver}, which has published no ResourceSlices{meant} "
            "see whether its pods run on the nodes (kubectl get pods -A -o wide) and what their logs say"
        )


def absent_drivers(alternatives: Iterable[Alternative], present: Collection[str]) -> Iterator[AbsentDriver]:
    """The drivers without slices that the requests or their classes require. `present` are the drivers that have slices."""
    told: set[tuple[str, str]] = set()
    for alternative in alternatives:
        for source, expression in selectors_of(alternative):
            for driver in required_drivers(expression):
                if driver not in present and (source, driver) not in told:
                    told.add((source, driver))
                    yield AbsentDriver(source, driver, likely_value(driver, present) or "")
