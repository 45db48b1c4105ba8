"""Masks of nodes that fit, limits of scores and lazily updated scores: all of them against a verdict of every node."""

from __future__ import annotations

import cProfile
import random
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from dralloc.api.pod_v1 import Pod
from dralloc.devices.identity import ClaimId
from dralloc.scheduler.contract import Rejection
from dralloc.scheduler.decide.cycle import Cycle, SchedulingAttempt
from dralloc.scheduler.decide.device_judge import DeviceJudge
from dralloc.scheduler.decide.local_devices import LocalDeviceIndex
from dralloc.scheduler.decide.node_masks import FitMask, FitMasks
from dralloc.scheduler.decide.node_scores import normalized
from dralloc.scheduler.decide.node_verdicts import Fits
from dralloc.scheduler.decide.placement_strategy import LimitedScorer, PlacementStrategy, ScoringContext
from dralloc.scheduler.decide.strategies import FRAGMENTATION_AWARE, STRATEGIES
from dralloc.scheduler.decide.strategy_choice import StrategySettings
from dralloc.scheduler.decide.typical_use import TypicalUse
from dralloc.scheduler.state.cluster_state import ClusterState
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


class ChangingCluster:
    """A cluster where pods of all shapes come and go, and one node at times."""

    def __init__(self, seed: int, strategy: PlacementStrategy) -> None:
        self.chance = random.Random(seed)
        names = [f"n{number}" for number in range(8)]
        sizes = {
            name: (self.chance.randint(4, 20), self.chance.randint(4, 32), self.chance.choice([0, 2, 4]))
            for name in names
        }
        self.state = cluster({**sizes, SPARE: (12, 16, 2)})
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


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)
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
def test_a_limit_is_at_least_the_score(seed: int) -> None:
    changing = ChangingCluster(seed, FRAGMENTATION_AWARE)
    context = ScoringContext(LocalDeviceIndex(FEATURES), TypicalUse(MIX))
    for _ in range(60):
        made = changing.new_pod()
        requirements = begin(changing.cycle, made).table.requirements
        judge = DeviceJudge(requirements.demand) if requirements.demand is not None else None
        scorer = FRAGMENTATION_AWARE.scorer(requirements, judge, context)
        assert isinstance(scorer, LimitedScorer)
        for each in changing.state.nodes.values():
            assert scorer.limit(each, changing.state.snapshot) >= scorer.score(each, changing.state.snapshot)
        changing.place(made)
        changing.change()


# --- What a decision costs ----------------------------------------------------------------------------------------------

# Calls of functions for a decision among nodes that pods of other shapes have changed since the last such pod.
CALLS_MAX = {"Spread": 900, "Pack": 800, "FragmentationAware": 1600}


@pytest.mark.slow
@pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)
def test_a_decision_does_not_grow_with_shapes_times_nodes(strategy: PlacementStrategy) -> None:
    few, many = calls_per_decision(strategy, nodes=30), calls_per_decision(strategy, nodes=90)
    assert many < CALLS_MAX[strategy.name]
    assert many < 1.2 * few


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
