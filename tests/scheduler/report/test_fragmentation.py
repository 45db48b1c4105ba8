"""What of idle devices no typical pod can use, and why; the incremental figures are those of a new computation."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from dralloc.devices.allocator.features import Features
from dralloc.devices.allocator.requests import compile_demand
from dralloc.kube.core_v1 import Node, NodeSpec, Taint
from dralloc.kube.meta_v1 import ApiObject
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import DeviceTaintRule, ResourceClaim, ResourceSlice
from dralloc.primitives.features import FeatureGates
from dralloc.scheduler.decide.pod_requirements import ClaimSplit, PodRequirements
from dralloc.scheduler.decide.typical_pods import TypicalPod, TypicalPods
from dralloc.scheduler.report.fragmentation import Fragmentation
from dralloc.scheduler.report.stranded_devices import StrandedCause
from dralloc.scheduler.state.cluster_state import ClusterState
from dralloc.testing.builders import (
    CLASS,
    DRIVER,
    allocation,
    claim,
    device,
    device_class,
    held,
    request,
    resource_slice,
    taint,
    taint_rule,
)
from tests.answers.test_engine import node, pod
from tests.answers.test_fit import gpus

FEATURES = Features.of(FeatureGates.defaults()).of_scheduler()
TAINT, COUNTERS, REMAINDER, CPU = StrandedCause


def state(*items: ApiObject) -> ClusterState:
    made = ClusterState()
    for item in (device_class(), *items):
        put(made, None, item)
    return made


def put(made: ClusterState, before: Any, after: Any) -> None:
    match after or before:
        case Node():
            made.node_changed(before, after)
        case ResourceSlice():
            made.slice_changed(before, after)
        case ResourceClaim():
            made.claim_changed(before, after)
        case DeviceTaintRule():
            made.rule_changed(before, after)
        case Pod():
            made.pod_changed(before, after)
        case _:
            made.class_changed(before, after)


def typical(cpu: str = "1", **asked: Any) -> TypicalPod:
    """A pod with one claim of one request."""
    wanted = claim("any", request(**asked))
    demand = compile_demand([wanted], {"gpu": device_class()}, FEATURES)
    return TypicalPod.of(PodRequirements.of(pod("typical", cpu=cpu), ClaimSplit.of([wanted]), demand))


def shared(count: int, memory: str = "80Gi") -> list[Any]:
    return [device(f"gpu-{number}", capacity={"memory": memory}, shareable=True) for number in range(count)]


def share(gpu: str, memory: str, on: str = "n1", name: str = "taken") -> ResourceClaim:
    result = held(gpu, pool=on, consumed={"memory": memory}, share_id="0")
    return claim(name, request(), allocation=allocation(result))


def causes(made: ClusterState, *pods: TypicalPod) -> tuple[int, dict[StrandedCause, int]]:
    idle, stranded = Fragmentation(made, FEATURES, pods).by_driver()[DRIVER]
    return idle, {cause: amount for cause, amount in stranded.items() if amount}


def test_whole_devices_that_pods_can_use_are_not_stranded() -> None:
    made = state(node("n1"), gpus("n1", device("gpu-0"), device("gpu-1")))
    assert causes(made, typical()) == (2000, {})
    made.claim_changed(None, claim("taken", request(), allocation=allocation(held("gpu-0", pool="n1"))))
    assert causes(made, typical()) == (1000, {})


def test_remainders_of_shared_devices() -> None:
    """A quarter of the card is taken, and a request for half of it leaves a quarter."""
    made = state(node("n1"), gpus("n1", *shared(1)), share("gpu-0", "20Gi"))
    assert causes(made, typical(capacity={"memory": "40Gi"})) == (750, {REMAINDER: 250})
    assert causes(made, typical(capacity={"memory": "20Gi"})) == (750, {})
    assert causes(made, typical(capacity={"memory": "70Gi"})) == (750, {REMAINDER: 750})
    two = typical(capacity={"memory": "70Gi"}), typical(capacity={"memory": "60Gi"})
    assert causes(made, *two) == (750, {}), "the request that uses it best counts"


def test_too_few_devices_for_one_request_are_a_remainder() -> None:
    made = state(node("n1"), gpus("n1", *(device(f"gpu-{number}") for number in range(3))))
    assert causes(made, typical(count=4)) == (3000, {REMAINDER: 3000})
    assert causes(made, typical(count=2)) == (3000, {})


def test_nodes_without_cpu_for_more_pods() -> None:
    made = state(node("n1", cpu="8"), gpus("n1", *(device(f"gpu-{number}") for number in range(4))))
    assert causes(made, typical(cpu="4")) == (4000, {CPU: 2000})
    assert causes(made, typical(cpu="4"), typical(cpu="2", count=2)) == (4000, {}), "the pod that uses it best counts"
    put(made, None, pod("busy", cpu="6", on="n1"))
    assert causes(made, typical(cpu="4")) == (4000, {CPU: 4000})


def test_taints_of_devices_and_nodes() -> None:
    tainted = device("gpu-0", taints=[taint("broken")])
    made = state(node("n1"), gpus("n1", tainted, device("gpu-1")))
    assert causes(made, typical()) == (2000, {TAINT: 1000})
    rule = taint_rule("drain", taint("drain"), driver=DRIVER, pool="n1", device="gpu-1")
    put(made, None, rule)
    assert causes(made, typical()) == (2000, {TAINT: 2000})
    put(made, rule, None)
    repelling = replace(node("n1"), spec=NodeSpec(taints=(Taint(key="gpu", effect="NoSchedule"),)))
    put(made, node("n1"), repelling)
    assert causes(made, typical()) == (2000, {TAINT: 2000})
    assert causes(made) == (2000, {TAINT: 2000}), "also where no pod is typical"


def partitions() -> tuple[ResourceSlice, ResourceSlice]:
    """A card of four slots: as a whole, as two halves, or one slot."""
    devices = [
        device(name, draws={"card": {"slots": str(slots)}})
        for name, slots in (("whole", 4), ("left", 2), ("right", 2), ("small", 1))
    ]
    counters = resource_slice("counters", counters={"card": {"slots": "4"}}, pool="cards", of=2, node_name="n1")
    return counters, resource_slice("partitions", *devices, pool="cards", of=2, node_name="n1")


def test_counters_that_no_partition_can_use() -> None:
    made = state(node("n1"), *partitions())
    assert causes(made, typical()) == (1000, {})
    made.claim_changed(None, claim("taken", request(), allocation=allocation(held("small", pool="cards"))))
    assert causes(made, typical()) == (750, {COUNTERS: 250}), "one half fits beside the small one"


def test_devices_of_no_node_know_no_cpu() -> None:
    everywhere = resource_slice("fabric", device("gpu-0"), pool="fabric", all_nodes=True)
    made = state(node("n1", cpu="1"), node("n2", cpu="1"), everywhere)
    assert causes(made, typical(cpu="4")) == (1000, {})


@pytest.mark.parametrize("seed", range(30))
def test_figures_that_follow_changes_are_those_of_a_new_computation(seed: int) -> None:
    random = Random(seed)
    nodes = {f"n{number}": node(f"n{number}", cpu=str(random.randint(2, 8))) for number in range(4)}
    made = state(*nodes.values(), *(gpus(name, *shared(2)) for name in nodes), *(partitions() if seed % 2 else ()))
    pods = (typical(cpu="2", capacity={"memory": "30Gi"}), typical(cpu="1", count=2, capacity={"memory": "50Gi"}))
    followed = Fragmentation(made, FEATURES, pods)
    placed: list[tuple[Pod, ResourceClaim]] = []
    # Scrapes of several programs, each in the middle of its work.
    scrapes = [followed.follow() for _ in range(3)]
    for number in range(25):
        if placed and random.random() < 0.4:
            gone, its = placed.pop(random.randrange(len(placed)))
            put(made, gone, None)
            put(made, its, None)
        elif random.random() < 0.15:
            name = random.choice(sorted(nodes))
            changed = replace(nodes[name], spec=NodeSpec(unschedulable=random.random() < 0.5))
            put(made, nodes[name], changed)
            nodes[name] = changed
        else:
            on = random.choice(sorted(nodes))
            its = share(f"gpu-{random.randrange(2)}", "20Gi", on, f"claim-{number}")
            placed.append((pod(f"pod-{number}", f"claim-{number}", on=on), its))
            put(made, None, its)
            put(made, None, placed[-1][0])
        next(scrapes[random.randrange(3)], None)
        if random.random() < 0.3:
            scrapes[random.randrange(3)] = followed.follow()
            continue
        found = followed.by_driver()
        assert found == Fragmentation(made, FEATURES, pods).by_driver()
        assert all(min(each.stranded.values()) >= 0 for each in found.values())
        assert all(sum(each.stranded.values()) <= each.idle for each in found.values())


def test_typical_are_the_most_frequent_pods() -> None:
    counted = TypicalPods()
    small, large = claim("small", request()), claim("large", request(count=2))
    classes = {CLASS: device_class()}
    for number in range(100):
        counted.count(pod(f"pod-{number}", on="n1"), [large if number % 25 == 0 else small], classes, FEATURES)
    counted.count(pod("without"), [], classes, FEATURES)
    assert [each.requests[0].count for each in counted.top()] == [1]
    for number in range(10):
        counted.count(pod(f"more-{number}"), [large], classes, FEATURES)
    assert sorted(each.requests[0].count for each in counted.top()) == [1, 2]
    assert counted.top() == counted.top()
