"""What typical pods can use of devices with several capacities, counters, companions and constraints.

The definition is the scheduler itself: copies of a typical pod are placed on the node until it takes no more. The score of a pod is that
of the node before and after the pod is really placed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

import pytest

from dralloc.kube.resource_v1 import Device, DeviceConstraint, DeviceRequest
from dralloc.scheduler.contract import Placement, Rejection
from dralloc.scheduler.decide.cycle import Cycle
from dralloc.scheduler.decide.device_judge import DeviceJudge
from dralloc.scheduler.decide.local_devices import LocalDeviceIndex
from dralloc.scheduler.decide.placement_strategy import PlacementStrategy, ScoringContext
from dralloc.scheduler.decide.strategies import (
    FRAGMENTATION_AWARE,
    STARVED_WEIGHT,
    STEP,
    STEPS_MAX,
    STRATEGIES,
)
from dralloc.scheduler.decide.strategy_choice import StrategySettings
from dralloc.scheduler.decide.typical_pods import CountedPod, TypicalPods
from dralloc.scheduler.decide.typical_use import ONE, SHIFT, TypicalUse
from dralloc.scheduler.state.cluster_state import ClusterState
from dralloc.testing.builders import (
    alternative,
    claim,
    device,
    device_class,
    first_available,
    match,
    request,
    resource_slice,
)
from tests.scheduler.decide.test_strategies import FEATURES, GATES, NOW, node
from tests.support.scheduled_cluster import our_pod
from tests.support.workloads import seen

NUMA = "numa"


class Shape(NamedTuple):
    """What a pod asks of devices, and how much of them a copy counts for, in thousandths."""

    requests: tuple[DeviceRequest, ...]
    milli: int
    constraints: tuple[DeviceConstraint, ...] = ()


class DeviceCase(NamedTuple):
    devices: Callable[[random.Random], Sequence[Device]]
    shapes: tuple[Shape, ...]
    counters: dict[str, dict[str, str]] | None = None


def gpus_with_two_capacities(chance: random.Random) -> Sequence[Device]:
    return [
        device(f"gpu-{index}", shareable=True, capacity={"memory": "40", "compute": "100"})
        for index in range(chance.randint(1, 3))
    ]


def partitions(chance: random.Random) -> Sequence[Device]:
    """Partitions of a quarter and of a half of two cards."""
    sizes = [(card, part) for card in ("card-0", "card-1") for part in ("25", "25", "25", "25", "50", "50")]
    chance.shuffle(sizes)
    return [
        device(f"part-{index}", attributes={"size": part}, draws={card: {"slices": part}})
        for index, (card, part) in enumerate(sizes)
    ]


def gpus_and_nics(chance: random.Random) -> Sequence[Device]:
    return [
        device(f"{kind}-{index}", attributes={"kind": kind, NUMA: chance.randint(0, 1)})
        for kind, most in (("gpu", 5), ("nic", 4))
        for index in range(chance.randint(1, most))
    ]


def of_kind(kind: str) -> DeviceRequest:
    return request(kind, where=f'device.attributes["gpu.example.com"].kind == "{kind}"')


def of_size(size: str) -> DeviceRequest:
    return request("part", where=f'device.attributes["gpu.example.com"].size == "{size}"')


BOTH = (of_kind("gpu"), of_kind("nic"))
CASES = {
    "two capacities": DeviceCase(
        gpus_with_two_capacities,
        (
            Shape((request(capacity={"memory": "10", "compute": "20"}),), 250),
            Shape((request(capacity={"memory": "4", "compute": "30"}),), 300),
            Shape((request(capacity={"memory": "30", "compute": "50"}),), 750),
        ),
    ),
    "counters": DeviceCase(
        partitions,
        (Shape((of_size("25"),), 250), Shape((of_size("50"),), 500)),
        {"card-0": {"slices": "100"}, "card-1": {"slices": "100"}},
    ),
    "a NIC beside a GPU": DeviceCase(gpus_and_nics, (Shape(BOTH, 2000), Shape(BOTH[:1], 1000), Shape(BOTH[1:], 1000))),
    "a NIC near the GPU": DeviceCase(
        gpus_and_nics, (Shape(BOTH, 2000, (match(f"gpu.example.com/{NUMA}"),)), Shape(BOTH[:1], 1000))
    ),
}


def cluster_with(case: DeviceCase, chance: random.Random) -> ClusterState:
    state = ClusterState()
    state.class_changed(None, device_class())
    state.node_changed(None, node("n", cores=64, gib=1024))
    made = resource_slice("s", *case.devices(chance), pool="n", node_name="n", counters=case.counters)
    state.slice_changed(None, made)
    return state


def placed(state: ClusterState, cycle: Cycle, name: str, shape: Shape) -> bool:
    state.claim_changed(None, claim(name, *shape.requests, constraints=shape.constraints))
    made = seen(our_pod(name, name))
    decision = cycle.decide(made, NOW)
    if isinstance(decision, Placement):
        committed = decision.commit(lambda: "share")
        state.assume(made, committed.node, committed.allocations)
    return isinstance(decision, Placement)


def typical_of(state: ClusterState, shape: Shape) -> tuple[CountedPod, ...]:
    counted = TypicalPods()
    asked = claim("typical", *shape.requests, constraints=shape.constraints)
    counted.count(seen(our_pod("typical", "typical")), [asked], state.classes, FEATURES)
    return counted.counted()


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_typical_pods_can_use_as_much_as_the_scheduler_gives_them(case: DeviceCase, seed: int) -> None:
    chance = random.Random(seed)
    shape = chance.choice(case.shapes)
    state = cluster_with(case, chance)
    cycle = Cycle(state, GATES)
    for number in range(chance.randint(0, 3)):
        placed(state, cycle, f"before-{number}", chance.choice(case.shapes))
    local = LocalDeviceIndex(FEATURES).of(state.nodes["n"].offer.place, state.snapshot)
    worth = TypicalUse(typical_of(state, shape)).worth(local)
    copies = 0
    while placed(state, cycle, f"copy-{copies}", shape):
        copies += 1
    assert worth / ONE == copies * shape.milli


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_score_is_the_difference_that_the_pod_makes(case: DeviceCase, seed: int) -> None:
    chance = random.Random(seed)
    state = cluster_with(case, chance)
    typical = tuple(each for shape in case.shapes for each in typical_of(state, shape))
    cycle = Cycle(state, GATES)
    for number in range(4):
        shape = chance.choice(case.shapes)
        asked = f"asked-{number}"
        state.claim_changed(None, claim(asked, *shape.requests, constraints=shape.constraints))
        attempt = cycle.begin(seen(our_pod(asked, asked)))
        assert not isinstance(attempt, Rejection)
        requirements = attempt.table.requirements
        assert requirements.demand is not None
        context = ScoringContext(LocalDeviceIndex(FEATURES), TypicalUse(typical))
        scorer = FRAGMENTATION_AWARE.scorer(requirements, DeviceJudge(requirements.demand), context)
        score, before = scorer.score(state.nodes["n"], state.snapshot), fragmentation(state, typical)
        if not placed(state, cycle, f"p{number}", shape):
            return
        gain = (before - fragmentation(state, typical)) // STEP
        assert score == STEPS_MAX + gain


def fragmentation(state: ClusterState, typical: tuple[CountedPod, ...]) -> int:
    use, found = TypicalUse(typical), state.nodes["n"]
    local = LocalDeviceIndex(FEATURES).of(found.offer.place, state.snapshot)
    return (local.idle << SHIFT) - use.worth(local) + STARVED_WEIGHT * use.starved(local, found.free)


# --- Alternatives -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)
def test_an_earlier_alternative_decides_under_every_strategy(strategy: PlacementStrategy) -> None:
    """The node that serves the first alternative wins, however much better the strategy finds the other one."""
    state = ClusterState(rank=lambda name: {"first": 1, "second": 0}[name])
    state.class_changed(None, device_class())
    for name, size, cores in (("first", "large", 8), ("second", "small", 64)):
        state.node_changed(None, node(name, cores=cores))
        made = [device(f"gpu-{index}", attributes={"size": size}) for index in range(2)]
        state.slice_changed(None, resource_slice(name, *made, pool=name, node_name=name))
    cycle = Cycle(state, GATES, strategies=StrategySettings(default=strategy))
    sizes = ("large", "small")
    wanted = [alternative(size, where=f'device.attributes["gpu.example.com"].size == "{size}"') for size in sizes]
    found = []
    for number in range(3):
        state.claim_changed(None, claim(f"c{number}", first_available("gpu", *wanted)))
        made_pod = seen(our_pod(f"p{number}", f"c{number}"))
        decision = cycle.decide(made_pod, NOW)
        assert isinstance(decision, Placement)
        found.append(decision.node)
        committed = decision.commit(lambda: "share")
        state.assume(made_pod, committed.node, committed.allocations)
    assert found == ["first", "first", "second"]
