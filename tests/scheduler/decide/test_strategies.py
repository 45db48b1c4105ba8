"""Strategies: they choose between nodes that fit and never decide whether one does; scores against a brute-force definition."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path

import pytest
from msgspec.structs import replace

from dralloc.cli.scheduler_configuration import read_configuration
from dralloc.devices.allocator.features import Features
from dralloc.devices.identity import ClaimId
from dralloc.kube.codec import decode, encode
from dralloc.kube.core_v1 import Node
from dralloc.kube.pod_v1 import Pod, PodResourceClaim
from dralloc.kube.resource_v1 import ResourceClaim, ResourceSlice
from dralloc.primitives.features import FeatureGates
from dralloc.scheduler.contract import Placement
from dralloc.scheduler.decide.cycle import Cycle
from dralloc.scheduler.decide.local_devices import LocalDeviceIndex
from dralloc.scheduler.decide.placement_strategy import SPREAD
from dralloc.scheduler.decide.strategies import FRAGMENTATION_AWARE, PACK, STRATEGIES, ScoredBy, ScoredNode
from dralloc.scheduler.decide.strategy_choice import ANNOTATION, StrategySettings
from dralloc.scheduler.decide.typical_pods import CountedPod, TypicalPods
from dralloc.scheduler.decide.typical_use import ONE, TypicalUse
from dralloc.scheduler.state.cluster_state import ClusterState
from dralloc.testing.builders import CLASS, alternative, claim, device_class, first_available

GATES = FeatureGates.defaults()
FEATURES = Features.of(GATES).of_scheduler()
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def node(name: str, cores: int = 16, gib: int = 64) -> Node:
    amounts = {"cpu": str(cores), "memory": f"{gib}Gi", "pods": "100"}
    status = {"allocatable": amounts, "capacity": amounts}
    return decode(encode({"metadata": {"name": name, "uid": name}, "status": status}), Node)


def devices(on: str, count: int) -> ResourceSlice:
    share = {"milli": {"value": "1000", "requestPolicy": {"default": "1000", "validRange": {"min": "1", "step": "1"}}}}
    listed = [{"name": f"gpu-{i}", "allowMultipleAllocations": True, "capacity": share} for i in range(count)]
    pool = {"name": on, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "gpu.example.com", "nodeName": on, "pool": pool, "devices": listed}
    return decode(encode({"metadata": {"name": on, "uid": on}, "spec": spec}), ResourceSlice)


def cluster(sizes: dict[str, tuple[int, int, int]]) -> ClusterState:
    """Nodes by name, with cores, memory and devices."""
    ranks = {name: rank for rank, name in enumerate(sorted(sizes))}
    state = ClusterState(rank=lambda name: ranks[name])
    state.class_changed(None, device_class())
    for name, (cores, gib, count) in sizes.items():
        state.node_changed(None, node(name, cores, gib))
        if count:
            state.slice_changed(None, devices(name, count))
    return state


def pod(state: ClusterState, name: str, cores: int, count: int = 0, milli: int = 1000, strategy: str = "") -> Pod:
    spec: dict[str, object] = {
        "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": str(cores), "memory": "1Gi"}}}]
    }
    if count:
        exactly = {"deviceClassName": CLASS, "count": count, "capacity": {"requests": {"milli": str(milli)}}}
        requests = [{"name": "g", "exactly": {"allocationMode": "ExactCount", **exactly}}]
        metadata = {"name": name, "namespace": "d", "uid": name, "resourceVersion": "1"}
        state.claim_changed(
            None, decode(encode({"metadata": metadata, "spec": {"devices": {"requests": requests}}}), ResourceClaim)
        )
        spec["resourceClaims"] = [{"name": "g", "resourceClaimName": name}]
    annotated = {"annotations": {ANNOTATION: strategy}} if strategy else {}
    return decode(encode({"metadata": {"name": name, "namespace": "d", "uid": name, **annotated}, "spec": spec}), Pod)


def place(state: ClusterState, cycle: Cycle, pod: Pod) -> str | None:
    decision = cycle.decide(pod, NOW)
    if not isinstance(decision, Placement):
        return None
    committed = decision.commit(lambda: "share")
    state.assume(pod, committed.node, committed.allocations)
    return committed.node


def typical(*wanted: tuple[int, int, int, int]) -> tuple[CountedPod, ...]:
    """Pods by cores, devices, thousandths and number."""
    state, counted = cluster({}), TypicalPods()
    for index, (cores, count, milli, number) in enumerate(wanted):
        made = pod(state, f"typical-{index}", cores, count, milli)
        wanted_claim = state.find_claim(ClaimId("d", f"typical-{index}"))
        assert wanted_claim is not None
        for _ in range(number):
            counted.count(made, [wanted_claim], state.classes, FEATURES)
    return counted.counted()


MIX = typical((4, 1, 500, 5), (2, 1, 300, 3), (8, 2, 1000, 1))


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)
def test_a_strategy_never_changes_whether_a_pod_fits(strategy: ScoredBy, seed: int) -> None:
    """After each placement of the strategy, it and Spread agree on whether the next pod fits somewhere."""
    chance = random.Random(seed)
    state = cluster({f"n{i}": (chance.randint(4, 20), chance.randint(4, 32), chance.randint(0, 4)) for i in range(6)})
    learnt = StrategySettings(default=strategy)
    given = StrategySettings(default=strategy, typical=MIX)
    cycles = [Cycle(state, GATES, strategies=settings) for settings in (learnt, given)]
    for number in range(60):
        count = chance.choice([0, 1, 1, 1, 2])
        made = pod(state, f"p{number}", chance.randint(1, 6), count, chance.choice([300, 500, 1000]))
        plain = Cycle(state, GATES).placement(made, NOW)
        assert (cycles[0].placement(made, NOW) is None) == (plain is None)
        new = Cycle(state, GATES, strategies=given).placement(made, NOW)
        assert place(state, cycles[1], made) == (new.node if new is not None else None), "what is cached is valid"
        assert (new is None) == (plain is None)


@pytest.mark.parametrize("seed", range(10))
def test_what_typical_pods_can_use(seed: int) -> None:
    """Against the definition, with fractions and no caches."""
    chance = random.Random(seed)
    state = cluster({"n": (64, 256, 4)})
    wanted = [
        (chance.randint(1, 8), chance.choice([1, 1, 2]), chance.choice([250, 400, 1000]), chance.randint(1, 9))
        for _ in range(4)
    ]
    cycle = Cycle(state, GATES)
    for number in range(5):
        place(state, cycle, pod(state, f"p{number}", 2, 1, chance.choice([100, 300, 600])))
    counted = typical(*wanted)
    known = {(each.requirements.node.resources.amounts["cpu"] // 10**9, _size(each)): each.number for each in counted}
    total = sum(known.values())
    local = LocalDeviceIndex(FEATURES).of(state.nodes["n"].offer.place, state.snapshot)
    left = local.idle_by_unit
    use = TypicalUse(counted)
    worth = starved = weights = Fraction(0)
    free, idle = Fraction(state.nodes["n"].free["cpu"], 10**9), sum(left)
    for (cores, (count, milli)), number in known.items():
        copies = sum(each // milli for each in left) if count == 1 else _largest(left, milli, count)
        worth += Fraction(number, total) * copies * count * milli
        weights += number * count * milli
        memory = Fraction(state.nodes["n"].free["memory"], 2**30 * 10**9) * count * milli
        usable = min(free * count * milli / cores, memory)
        starved += number * count * milli * max(Fraction(0), idle - usable)
    assert abs(use.worth(local) / ONE - worth) < 1
    assert abs(use.starved(local, state.nodes["n"].free) / ONE - starved / weights) < idle // 50 + 1


def _size(counted: CountedPod) -> tuple[int, int]:
    demand = counted.requirements.demand
    assert demand is not None
    [alternative] = demand.alternatives
    asked = alternative.criteria.asked
    assert asked is not None
    return alternative.count, asked["milli"].nanos // 10**9


def _largest(left: tuple[int, ...], milli: int, count: int) -> int:
    return max(c for c in range(100) if sum(min(each // milli, c) for each in left) >= c * count)


def test_fragments_are_filled_first() -> None:
    state = cluster({"a": (64, 256, 2), "b": (64, 256, 2)})
    cycle = Cycle(state, GATES, strategies=StrategySettings(default=FRAGMENTATION_AWARE, typical=MIX))
    first = place(state, cycle, pod(state, "one", 4, 1, 500))
    assert place(state, cycle, pod(state, "two", 4, 1, 500)) == first, "the other half of a device"
    other = {"a": "b", "b": "a"}[first or ""]
    assert place(state, cycle, pod(state, "three", 8, 2, 1000)) == other


def test_pods_without_devices_leave_devices_their_cpu() -> None:
    state = cluster({"gpu": (16, 64, 2), "cpu": (16, 64, 0)})
    for strategy in (PACK, FRAGMENTATION_AWARE):
        cycle = Cycle(state, GATES, strategies=StrategySettings(default=strategy, typical=MIX))
        found = cycle.placement(pod(state, "plain", 8), NOW)
        assert found is not None
        assert found.node == "cpu"


def test_pack_fills_devices_then_cpu() -> None:
    state = cluster({"a": (64, 256, 2), "b": (64, 256, 2), "c": (16, 64, 0), "d": (16, 64, 0)})
    cycle = Cycle(state, GATES, strategies=StrategySettings(default=PACK))
    first = place(state, cycle, pod(state, "one", 4, 1, 300))
    assert place(state, cycle, pod(state, "two", 4, 1, 300)) == first
    last = place(state, cycle, pod(state, "plain", 2))
    assert last in {"c", "d"}
    assert place(state, cycle, pod(state, "plain-too", 2)) == last


@pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)
def test_a_node_with_the_first_alternative_wins_whatever_the_strategy_prefers(strategy: ScoredBy) -> None:
    """P5: `b` has one device, a part of which is used, and much cpu, so that every strategy prefers it."""
    state = cluster({"a": (16, 64, 2), "b": (64, 256, 1)})
    state.assume(pod(state, "busy", 8), "a", {})
    cycle = Cycle(state, GATES, strategies=StrategySettings(default=strategy, typical=MIX))
    assert place(state, cycle, pod(state, "half", 4, 1, 500)) == "b"
    assert place(state, cycle, pod(state, "fragment", 1, 1, 200)) == "b"
    share = {"milli": "300"}
    two, one = alternative("two", count=2, capacity=share), alternative("one", capacity=share)
    for name, alternatives, expected in (("one", (one,), "b"), ("either", (two, one), "a"), ("worse", (one, two), "b")):
        state.claim_changed(None, claim(name, first_available("g", *alternatives), namespace="d"))
        wanting = pod(state, f"{name}-pod", 1)
        spec = replace(wanting.spec, resource_claims=(PodResourceClaim(name="g", resource_claim_name=name),))
        found = cycle.placement(replace(wanting, spec=spec), NOW)
        assert found is not None
        assert found.node == expected, name


def test_typical_pods_are_learnt_from_the_pods_that_come() -> None:
    def run() -> list[str | None]:
        state = cluster({f"n{i}": (32, 128, 4) for i in range(4)})
        cycle = Cycle(state, GATES, strategies=StrategySettings(default=FRAGMENTATION_AWARE))
        chance = random.Random(3)
        return [place(state, cycle, pod(state, f"p{i}", 1, 1, chance.choice([200, 500]))) for i in range(70)]

    assert run() == run()


def test_a_pod_may_choose_only_an_allowed_strategy() -> None:
    settings = StrategySettings(allowed={"Pack": PACK})
    state = cluster({"a": (64, 256, 2)})
    assert settings.of(pod(state, "packed", 1, strategy="Pack")) is PACK
    assert settings.of(pod(state, "not-allowed", 1, strategy="FragmentationAware")) is SPREAD
    assert settings.of(pod(state, "plain", 1)) is SPREAD


def test_a_strategy_of_ones_own() -> None:
    def second(scored: ScoredNode) -> int:
        assert len(scored.idle_after) == 2
        assert sum(scored.idle_before) - sum(scored.idle_after) == 300
        return 100 * (scored.node.name == "b")

    state = cluster({"a": (64, 256, 2), "b": (64, 256, 2)})
    cycle = Cycle(state, GATES, strategies=StrategySettings(default=ScoredBy("Second", second)))
    assert place(state, cycle, pod(state, "one", 4, 1, 300)) == "b"


HEADER = "apiVersion: scheduler.dralloc.io/v1alpha1\nkind: SchedulerConfiguration\n"


def test_the_strategy_of_a_file_and_of_an_option(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(HEADER + "placement: {strategy: Pack, allowedOnPods: [Spread]}\n")
    strategies = read_configuration(path, GATES).strategies
    assert (strategies.default, list(strategies.allowed)) == (PACK, ["Spread"])
    assert read_configuration(path, GATES, "FragmentationAware").strategies.default is FRAGMENTATION_AWARE
    assert read_configuration(None, GATES).strategies.default is SPREAD
    path.write_text(HEADER + "placement: {strategy: Best}\n")
    for faulty, option in ((path, None), (None, "Best")):
        with pytest.raises(SystemExit):
            read_configuration(faulty, GATES, option)
        assert "'Best' is not one of Spread, Pack, FragmentationAware" in capsys.readouterr().err
