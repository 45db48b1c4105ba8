"""Masks of nodes that fit, limits of scores and lazily updated scores: all of them against a verdict of every node."""

from __future__ import annotations

import cProfile
import random
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from msgspec.structs import replace

from dralloc.devices.allocator.diagnosis.reasons import availability
from dralloc.devices.identity import ClaimId
from dralloc.kube.codec import decode, encode
from dralloc.kube.core_v1 import Taint
from dralloc.kube.pod_v1 import Pod, PodResourceClaim
from dralloc.kube.resource_v1 import ResourceClaim
from dralloc.scheduler.contract import Rejection
from dralloc.scheduler.decide.cycle import Cycle, SchedulingAttempt
from dralloc.scheduler.decide.device_judge import DeviceJudge
from dralloc.scheduler.decide.local_devices import LocalDeviceIndex
from dralloc.scheduler.decide.node_masks import FitMask, FitMasks
from dralloc.scheduler.decide.node_reasons import NodeReasons, plugins
from dralloc.scheduler.decide.node_scores import normalized
from dralloc.scheduler.decide.node_verdicts import Fits
from dralloc.scheduler.decide.placement_strategy import SPREAD, LimitedScorer, PlacementStrategy, ScoringContext
from dralloc.scheduler.decide.strategies import FRAGMENTATION_AWARE, PACK, STRATEGIES, ScoredBy, ScoredNode
from dralloc.scheduler.decide.strategy_choice import StrategySettings
from dralloc.scheduler.decide.typical_use import TypicalUse
from dralloc.scheduler.state.cluster_state import ClusterState
from dralloc.testing.builders import CLASS
from tests.scheduler.decide.test_strategies import FEATURES, GATES, MIX, NOW, cluster, devices, node, place, pod


class Shape(NamedTuple):
    cores: int
    devices: int
    milli: int


SHAPES = [
    Shape(cores, count, milli)
    for cores in (1, 3, 6)
    for count, milli in ((0, 0), (1, 300), (1, 500), (1, 1000), (2, 1000))
]
SPARE = "n-late"
PREFER = "PreferNoSchedule"


class ChangingCluster:
    """A cluster where pods of all shapes come and go, and one node at times. Half of the nodes are alike while they are empty."""

    def __init__(self, seed: int, strategy: PlacementStrategy) -> None:
        self.chance = random.Random(seed)
        names = [f"n{number}" for number in range(8)]
        sizes = {
            name: (self.chance.randint(4, 20), self.chance.randint(4, 32), self.chance.choice([0, 2, 4]))
            for name in names
        }
        sizes |= dict.fromkeys(names[::2], (12, 16, 2))
        self.sizes = {**sizes, SPARE: (12, 16, 2)}
        self.nodes = {name: node(name, *size[:2]) for name, size in self.sizes.items()}
        self.state = cluster(self.sizes)
        self.cycle = Cycle(self.state, GATES, strategies=StrategySettings(default=strategy, typical=MIX))
        self._running: list[tuple[Pod, bool]] = []
        self._number = 0

    def new_pod(self, shape: Shape | None = None) -> Pod:
        self._number += 1
        shape = shape or self.chance.choice(SHAPES)
        return pod(self.state, f"p{self._number}", *shape)

    def place(self, made: Pod) -> str | None:
        found = place(self.state, self.cycle, made)
        if found is not None:
            self._running.append((made, bool(made.spec.resource_claims)))
        return found

    def change(self) -> None:
        """Ends some pods, and adds or removes the spare node."""
        while self._running and self.chance.random() < 0.4:
            ended, has_claim = self._running.pop(self.chance.randrange(len(self._running)))
            self.state.pod_changed(ended, None)
            if has_claim:
                claim = self.state.find_claim(ClaimId("d", ended.metadata.name))
                self.state.claim_changed(claim, None)
        if self.chance.random() < 0.1:
            if SPARE in self.state.nodes:
                self.state.node_changed(node(SPARE, 12, 16), None)
            else:
                self.state.node_changed(None, node(SPARE, 12, 16))
        if self.chance.random() < 0.1:
            self.state.slice_changed(None, devices("n0", self.chance.choice([0, 1, 4])))
        if self.chance.random() < 0.2:
            self._change_offer(f"n{self.chance.randrange(8)}")

    def _change_offer(self, name: str) -> None:
        """Repels pods from the node, more or less, or from no node that was repelled before."""
        taints = self.chance.choice([(), (), (Taint(key="t", effect="NoSchedule"),), (Taint(key="p", effect=PREFER),)])
        plain = node(name, *self.sizes[name][:2])
        self.state.node_changed(self.nodes[name], replace(plain, spec=replace(plain.spec, taints=taints)))
        self.nodes[name] = replace(plain, spec=replace(plain.spec, taints=taints))


def begin(cycle: Cycle, made: Pod) -> SchedulingAttempt:
    attempt = cycle.begin(made)
    assert not isinstance(attempt, Rejection)
    return attempt


@pytest.mark.parametrize("seed", range(4))
def test_masks_have_the_nodes_that_fit(seed: int) -> None:
    changing = ChangingCluster(seed, STRATEGIES["Spread"])
    state, masks = changing.state, FitMasks(changing.state)
    known: dict[Shape, tuple[SchedulingAttempt, FitMask]] = {}
    for shape in SHAPES:
        attempt = begin(changing.cycle, changing.new_pod(shape))
        demand = attempt.table.requirements.demand
        mask = masks.of(attempt.table.requirements, DeviceJudge(demand) if demand is not None else None)
        assert mask is not None
        known[shape] = attempt, mask
    for _ in range(40):
        changing.place(changing.new_pod())
        changing.change()
        # Not all at once: some masks have to catch up with many changes.
        for attempt, mask in changing.chance.sample(list(known.values()), 4):
            mask.catch_up()
            verdicts = {name: attempt.table.judge.verdict(each, state.snapshot) for name, each in state.nodes.items()}
            fitting = {name for name, verdict in verdicts.items() if isinstance(verdict, Fits)}
            asked = {name for name, each in state.nodes.items() if mask.has(each)}
            assert mask.is_exact
            assert asked == fitting
            assert set(mask.names(mask.left() & sum(map(mask.bit, state.nodes)))) == fitting


def _by_name(scored: ScoredNode) -> int:
    return 100 * (scored.node.name > "n3") - len(scored.free_after)


BY_NAME = ScoredBy("ByName", _by_name)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("strategy", [*STRATEGIES.values(), BY_NAME], ids=[*STRATEGIES, "ByName"])
def test_the_choice_is_the_best_of_all_nodes(strategy: PlacementStrategy, seed: int) -> None:
    changing = ChangingCluster(seed, strategy)
    for _ in range(60):
        made = changing.new_pod()
        want = best_of_all(changing.state, begin(changing.cycle, made), strategy.scale)
        assert changing.place(made) == want
        changing.change()


def best_of_all(state: ClusterState, attempt: SchedulingAttempt, scale: int) -> str | None:
    judge = attempt.table.judge
    verdicts = {name: judge.verdict(each, state.snapshot) for name, each in state.nodes.items()}
    fitting = {name: verdict for name, verdict in verdicts.items() if isinstance(verdict, Fits)}
    values = normalized({fits.raw for fits in fitting.values()}, scale)

    def rating(name: str) -> tuple[int, int, str]:
        return values[fitting[name].raw] + fitting[name].strategy_score, -state.nodes[name].rank, name

    return max(fitting, key=rating, default=None)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("strategy", [SPREAD, FRAGMENTATION_AWARE], ids=["Spread", "FragmentationAware"])
def test_the_reasons_are_those_of_all_nodes(strategy: PlacementStrategy, seed: int) -> None:
    changing = ChangingCluster(seed, strategy)
    held = decode(encode(claim_on("n1")), ResourceClaim)
    changing.state.claim_changed(None, held)
    told: set[str] = set()
    for number in range(120):
        made = changing.new_pod()
        if number % 4 == 0:
            used = PodResourceClaim(name="held", resource_claim_name=held.metadata.name)
            made = replace(made, spec=replace(made.spec, resource_claims=(*made.spec.resource_claims, used)))
        attempt = begin(changing.cycle, made)
        want = reasons_of_all(changing.state, attempt) if best_of_all(changing.state, attempt, 1) is None else None
        decision = changing.cycle.decide(made, NOW)
        if want is not None:
            assert isinstance(decision, Rejection)
            assert (decision.message, decision.plugins) == want
            told.add(decision.message)
        else:
            changing.place(made)
        if number > 30:
            changing.change()
    for part in ("insufficient cpu", "taint t", "which this node cannot use", "milli", "no devices"):
        assert any(part in message for message in told), part


def claim_on(name: str) -> dict[str, object]:
    """A claim with a device that nodes with a label reach; no node has it."""
    terms = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": [name]}]}]
    result = {"request": "g", "driver": "gpu.example.com", "pool": "far", "device": "far-0"}
    allocation = {"devices": {"results": [result]}, "nodeSelector": {"nodeSelectorTerms": terms}}
    requests = [{"name": "g", "exactly": {"deviceClassName": CLASS, "allocationMode": "ExactCount", "count": 1}}]
    return {
        "metadata": {"name": "held", "namespace": "d", "uid": "held", "resourceVersion": "1"},
        "spec": {"devices": {"requests": requests}},
        "status": {"allocation": allocation},
    }


def reasons_of_all(state: ClusterState, attempt: SchedulingAttempt) -> tuple[str, frozenset[str]]:
    table = attempt.table
    verdicts = {name: table.judge.verdict(each, state.snapshot) for name, each in state.nodes.items()}
    found = NodeReasons(table.requirements, table.judge).groups_under(verdicts, state.nodes, state.snapshot)
    named = [group.named(attempt.claims.unallocated_ids) for group in found]
    return availability(named, total=len(state.nodes)), plugins(verdicts.values())


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("strategy", [PACK, FRAGMENTATION_AWARE], ids=["Pack", "FragmentationAware"])
def test_a_limit_is_at_least_the_score(strategy: PlacementStrategy, seed: int) -> None:
    changing = ChangingCluster(seed, strategy)
    context = ScoringContext(LocalDeviceIndex(FEATURES), TypicalUse(MIX))
    for _ in range(60):
        made = changing.new_pod()
        requirements = begin(changing.cycle, made).table.requirements
        judge = DeviceJudge(requirements.demand) if requirements.demand is not None else None
        scorer = strategy.scorer(requirements, judge, context)
        assert isinstance(scorer, LimitedScorer)
        for each in changing.state.nodes.values():
            assert scorer.limit(each, changing.state.snapshot) >= scorer.score(each, changing.state.snapshot)
        changing.place(made)
        changing.change()


# --- What a decision costs ----------------------------------------------------------------------------------------------

# Calls of functions for a decision among nodes that pods of other shapes have changed since the last such pod.
CALLS_MAX = {"Spread": 900, "Pack": 900, "FragmentationAware": 1400}


@pytest.mark.slow
@pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)
def test_a_decision_does_not_grow_with_shapes_times_nodes(strategy: PlacementStrategy) -> None:
    few, many = calls_per_decision(strategy, nodes=30), calls_per_decision(strategy, nodes=90)
    assert many < CALLS_MAX[strategy.name]
    assert many < 1.2 * few


@pytest.mark.parametrize("strategy", [PACK, FRAGMENTATION_AWARE], ids=["Pack", "FragmentationAware"])
def test_a_new_shape_looks_at_one_of_the_nodes_that_are_alike(strategy: PlacementStrategy) -> None:
    few, many = calls_of_new_shapes(strategy, nodes=10), calls_of_new_shapes(strategy, nodes=100)
    assert many < 1.2 * few


def calls_of_new_shapes(strategy: PlacementStrategy, nodes: int) -> int:
    """Without the first shapes, which make what all share."""
    state = cluster({f"n{number}": (60, 200, 8) for number in range(nodes)})
    cycle = Cycle(state, GATES, strategies=StrategySettings(default=strategy, typical=MIX))
    shared, profile = 5, cProfile.Profile()
    for index, made in enumerate(arrivals(state, len(SHAPES))):
        if index >= shared:
            profile.enable()
        cycle.decide(made, NOW)
        profile.disable()
    return sum(entry.callcount for entry in profile.getstats())


def calls_per_decision(strategy: PlacementStrategy, nodes: int) -> float:
    """After each shape was decided once, which looks at all nodes."""
    state = cluster({f"n{number}": (60, 200, 8) for number in range(nodes)})
    cycle = Cycle(state, GATES, strategies=StrategySettings(default=strategy, typical=MIX))
    waiting = list(arrivals(state, 4 * len(SHAPES)))
    for made in waiting[: len(SHAPES)]:
        place(state, cycle, made)
    profile, rest = cProfile.Profile(), waiting[len(SHAPES) :]
    for made in rest:
        profile.enable()
        cycle.decide(made, NOW)
        profile.disable()
        place(state, cycle, made)
    return sum(entry.callcount for entry in profile.getstats()) / len(rest)


def arrivals(state: ClusterState, number: int) -> Iterator[Pod]:
    return (pod(state, f"p{index}", *SHAPES[index % len(SHAPES)]) for index in range(number))
