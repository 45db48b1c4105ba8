"""Defragmentation: the fewest moves, each possible in its turn, and nothing else moves."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from dralloc.answers.cluster_objects import ClusterObjects
from dralloc.answers.defrag import DefragPlan, DefragQuestion, plan_defrag
from dralloc.kube.meta_v1 import ApiObject, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, OwnerReference
from dralloc.kube.pod_claims import POD_CLAIM_NAME, pod_reference
from dralloc.kube.pod_v1 import Pod, PodResourceClaim, PodResourceClaimStatus, PodStatus
from dralloc.kube.resource_v1 import ResourceClaim
from dralloc.primitives.features import FeatureGates
from dralloc.testing.builders import allocation, claim, device, device_class, held, request
from tests.answers.defrag_model import UNITS, Model, ModelPod, Spot, fewest_moves, most_freed, random_pod
from tests.answers.test_drain import OWNER
from tests.answers.test_engine import node
from tests.answers.test_engine import pod as plain_pod
from tests.answers.test_fit import gpus

MOVES_MAX = 3


def cluster(*items: ApiObject) -> ClusterObjects:
    objects = ClusterObjects(FeatureGates.defaults())
    for item in (device_class(), *items):
        objects.add(item)
    return objects


def wanting(name: str, cpu: int, units: int, count: int = 1) -> tuple[Pod, ResourceClaim]:
    """A pod that waits, and the claim that was made for it."""
    made = plain_pod(name, cpu=str(cpu))
    metadata = replace(made.metadata, uid=f"uid-{name}", owner_references=(OWNER,))
    entry = PodResourceClaim(name="gpu", resource_claim_template_name="gpu")
    status = PodStatus(resource_claim_statuses=(PodResourceClaimStatus(name="gpu", resource_claim_name=f"{name}-gpu"),))
    pod = replace(made, metadata=metadata, spec=replace(made.spec, resource_claims=(entry,)), status=status)
    owner = OwnerReference(api_version="v1", kind="Pod", name=name, uid=metadata.uid, controller=True)
    wanted = claim(f"{name}-gpu", request(count=count, capacity={"memory": f"{units}Gi"}))
    named = replace(
        wanted.metadata, namespace="default", annotations={POD_CLAIM_NAME: "gpu"}, owner_references=(owner,)
    )
    return pod, replace(wanted, metadata=named)


def running(name: str, cpu: int, units: int, on: str, *devices: str) -> tuple[Pod, ResourceClaim]:
    """A pod on a node, with shares of these devices."""
    pod, wanted = wanting(name, cpu, units, len(devices))
    pod = replace(pod, spec=replace(pod.spec, node_name=on))
    results = [held(each, pool=on, share_id=f"{name}-{each}", consumed={"memory": f"{units}Gi"}) for each in devices]
    term = NodeSelectorTerm(match_fields=(NodeSelectorRequirement(key="metadata.name", operator="In", values=(on,)),))
    usable = replace(allocation(*results), node_selector=NodeSelector(node_selector_terms=(term,)))
    status = replace(wanted.status, allocation=usable, reserved_for=(pod_reference(pod),))
    return pod, replace(wanted, status=status)


def cards(count: int) -> list[Any]:
    return [device(f"gpu-{number}", capacity={"memory": f"{UNITS}Gi"}, shareable=True) for number in range(count)]


def told(plan: DefragPlan) -> list[tuple[str, str, str]]:
    return [
        (moved.pod.metadata.name, moved.pod.spec.node_name, moved.node) for move in plan.moves for moved in move.pods
    ]


def plan_for(objects: ClusterObjects, *wanted: tuple[Pod, ResourceClaim], **more: Any) -> DefragPlan:
    for _, its in wanted:
        objects.add(its)
    return plan_defrag(objects, DefragQuestion(targets=[pod for pod, _ in wanted], **more))


TWO_HALVES = (
    *(node("n1"), node("n2"), gpus("n1", *cards(1)), gpus("n2", *cards(1))),
    *(*running("a", 1, 2, "n1", "gpu-0"), *running("b", 1, 2, "n2", "gpu-0")),
)


def test_one_move_makes_room_for_a_whole_device() -> None:
    plan = plan_for(cluster(*TWO_HALVES), wanting("new", 1, 4))
    assert told(plan) in ([("a", "n1", "n2")], [("b", "n2", "n1")])
    [placed] = plan.placed
    assert placed.node == plan.moves[0].pods[0].pod.spec.node_name
    assert plan.moves[0].holds.nodes == {placed.node}, "so that neither the moved pod nor another one takes the place"


def test_no_move_where_the_pod_fits_already() -> None:
    plan = plan_for(cluster(*TWO_HALVES), wanting("new", 1, 2))
    assert (told(plan), plan.placed[0].pod.metadata.name, plan.message) == ([], "new", "")


def test_shares_move_to_another_device_of_the_same_node() -> None:
    items = (node("n1"), gpus("n1", *cards(2)))
    pods = (*running("a", 1, 2, "n1", "gpu-0"), *running("b", 1, 2, "n1", "gpu-1"))
    plan = plan_for(cluster(*items, *pods), wanting("new", 1, 4))
    assert [(pod, to) for pod, _, to in told(plan)] == [("a", "n1")]
    [moved] = plan.moves[0].pods
    assert (moved.before, moved.after) != (moved.after, moved.before)
    assert plan.moves[0].holds.devices >= moved.before


def test_a_chain_of_moves() -> None:
    """The whole device needs the pod b away; b only fits where c is; c fits on the third node."""
    items = (
        *(node("n1", cpu="4"), node("n2", cpu="3"), node("n3", cpu="1")),
        *(gpus("n1", *cards(1)), gpus("n2", *cards(1)), gpus("n3", *cards(1))),
        *running("b", 3, 1, "n1", "gpu-0"),
        *running("c", 1, 1, "n2", "gpu-0"),
    )
    plan = plan_for(cluster(*items), wanting("new", 4, 4))
    assert told(plan) == [("c", "n2", "n3"), ("b", "n1", "n2")]


def test_a_gang_gets_room_for_all_its_pods() -> None:
    items: list[ApiObject] = [node(f"n{number}") for number in range(4)]
    items += [gpus(f"n{number}", *cards(1)) for number in range(4)]
    pods = [each for number in range(4) for each in running(f"p{number}", 1, 2, f"n{number}", "gpu-0")]
    plan = plan_for(cluster(*items, *pods), wanting("x", 1, 4), wanting("y", 1, 4))
    assert (plan.pods_moved, len({placed.node for placed in plan.placed})) == (2, 2)


def test_what_is_not_moved_and_why() -> None:
    bare, its = running("a", 1, 2, "n1", "gpu-0")
    bare = replace(bare, metadata=replace(bare.metadata, owner_references=()))
    objects = cluster(*TWO_HALVES, bare, its, *running("b", 1, 2, "n2", "gpu-0"))
    plan = plan_for(objects, wanting("new", 1, 4))
    assert told(plan) == [("b", "n2", "n1")]
    assert [(each.pod.metadata.name, each.reason) for each in plan.fixed] == [
        ("a", "no controller creates it again: it would be lost (--bare-pods moves it all the same)")
    ]
    asked = plan_for(objects, wanting("new", 1, 4), bare_pods=True)
    assert asked.fixed == ()


# --- Comparison with every sequence of moves ------------------------------------------------------------------------------


def objects_of(model: Model) -> ClusterObjects:
    items: list[ApiObject] = []
    for number, (cpu, count) in enumerate(zip(model.cpus, model.devices, strict=True)):
        items += (node(f"n{number}", cpu=str(cpu)), gpus(f"n{number}", *cards(count)))
    for pod, spot in zip(model.pods, model.spots, strict=True):
        items += running(pod.name, pod.cpu, pod.units, f"n{spot.node}", *(f"gpu-{each}" for each in spot.devices))
    return cluster(*items)


def replayed(model: Model, plan: DefragPlan) -> Model:
    """The model after the moves, each of which must be possible in its turn."""
    numbers = {pod.name: number for number, pod in enumerate(model.pods)}
    for move in plan.moves:
        for moved in move.pods:
            number = numbers.pop(moved.pod.metadata.name)
            devices = tuple(sorted(int(each.device.removeprefix("gpu-")) for each in moved.after))
            spot = Spot(int(moved.node.removeprefix("n")), devices)
            assert spot in set(model.spots_for(model.pods[number], without=number))
            model = model.after(number, spot)
    return model


@pytest.mark.parametrize("seed", range(100))
def test_plans_for_a_pod_have_the_fewest_moves(seed: int) -> None:
    random = Random(seed)
    model, new = Model.random(random), random_pod(random, "new")
    expected = fewest_moves(model, MOVES_MAX, lambda state: any(state.spots_for(new)))
    plan = plan_for(objects_of(model), wanting("new", new.cpu, new.units, new.count), moves_max=MOVES_MAX)
    assert (None if plan.message else plan.pods_moved) == expected, told(plan)
    assert plan.is_fewest
    if expected is not None:
        [placed] = plan.placed
        after = replayed(model, plan)
        assert int(placed.node.removeprefix("n")) in {spot.node for spot in after.spots_for(new)}


@pytest.mark.parametrize("seed", range(60))
def test_plans_that_free_devices_free_the_most(seed: int) -> None:
    model = Model.random(Random(1000 + seed))
    plan = plan_defrag(objects_of(model), DefragQuestion(moves_max=MOVES_MAX))
    assert (plan.gain, plan.pods_moved) == most_freed(model, MOVES_MAX), told(plan)
    assert replayed(model, plan).free_devices() == model.free_devices() + plan.gain


def test_the_model_counts_moves() -> None:
    pod = ModelPod("p", 0, 2, 1)
    model = Model((1, 1), (1, 1), (pod, ModelPod("q", 0, 2, 1)), (Spot(0, (0,)), Spot(1, (0,))))
    assert most_freed(model, 3) == (1, 1)
    assert fewest_moves(model, 3, lambda state: any(state.spots_for(ModelPod("new", 0, 4, 1)))) == 1


def many_nodes(count: int, units: int) -> ClusterObjects:
    """Nodes with two cards, each of which has one pod with so many units."""
    items: list[ApiObject] = []
    for number in range(count):
        items += (node(f"n{number}"), gpus(f"n{number}", *cards(2)))
        for card in range(2):
            items += running(f"p{number}-{card}", 1, units, f"n{number}", f"gpu-{card}")
    return cluster(*items)


@pytest.mark.slow
def test_devices_of_many_nodes_are_freed_without_comparing_all_plans() -> None:
    plan = plan_defrag(many_nodes(20, 2), DefragQuestion(moves_max=4, decisions_max=100))
    assert (plan.gain, plan.pods_moved, plan.is_fewest) == (4, 4, True), "no plan can free more devices than pods move"


@pytest.mark.slow
def test_a_budget_that_is_used_up_is_told() -> None:
    plan = plan_defrag(many_nodes(20, 3), DefragQuestion(moves_max=4, decisions_max=100))
    assert (plan.gain, plan.moves, plan.is_fewest) == (0, (), False)
