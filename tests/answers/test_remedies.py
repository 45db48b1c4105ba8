"""Remedies: every change that an explanation proposes is applied to the manifests, and the pod is placed then."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace as change
from datetime import UTC, datetime
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from dralloc.answers.cluster_objects import ClusterObjects
from dralloc.answers.engine import Engine
from dralloc.answers.pod_explanation import explain_pod
from dralloc.kube import core_v1
from dralloc.kube.device_parts import capacity
from dralloc.kube.meta_v1 import ApiObject, ObjectMeta
from dralloc.kube.pod_claims import pod_reference
from dralloc.kube.pod_v1 import Container, Pod, PodResourceClaim, PodSpec, ResourceRequirements
from dralloc.kube.resource_v1 import (
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceClaimTemplateSpec,
    ResourceSlice,
)
from dralloc.primitives.features import FeatureGates
from dralloc.primitives.quantity import Quantity
from dralloc.testing import builders as build
from dralloc.testing.builders import claim, device, device_class, request, resource_slice
from tests.support.manifest_changes import changed, manifests_of, objects_of
from tests.support.plain_pools import World
from tests.support.questions import gates_of
from tests.support.random_worlds import random_world

NOW = datetime(2026, 1, 1, tzinfo=UTC)
Remedy = dict[str, Any]


def node(name: str, cpu: str = "8") -> core_v1.Node:
    allocatable = {"cpu": Quantity.parse(cpu), "memory": Quantity.parse("64Gi"), "pods": Quantity.parse(110)}
    metadata = ObjectMeta(name=name, labels={"zone": "z1"})
    return core_v1.Node(metadata=metadata, status=core_v1.NodeStatus(allocatable=allocatable))


def pod(name: str, *claims: str, template: str = "", cpu: str = "1", on: str = "") -> Pod:
    entries = [PodResourceClaim(name=each, resource_claim_name=each) for each in claims]
    if template:
        entries.append(PodResourceClaim(name="made", resource_claim_template_name=template))
    container = Container(name="c", resources=ResourceRequirements(requests={"cpu": Quantity.parse(cpu)}))
    return Pod(
        metadata=ObjectMeta(name=name, namespace="default", uid=name),
        spec=PodSpec(containers=(container,), resource_claims=tuple(entries), node_name=on),
    )


def template_of(found: ResourceClaim, name: str = "template") -> ResourceClaimTemplate:
    metadata = ObjectMeta(name=name, namespace="default")
    return ResourceClaimTemplate(metadata=metadata, spec=ResourceClaimTemplateSpec(spec=found.spec))


def cluster(*objects: ApiObject, gates: FeatureGates | None = None) -> ClusterObjects:
    made = ClusterObjects(gates or FeatureGates.defaults())
    for obj in objects:
        made.add(obj)
    return made


def remedies(objects: ClusterObjects, name: str = "pod") -> list[Remedy]:
    engine = Engine(objects, NOW)
    found = explain_pod(engine, objects.find(Pod, "pod", f"default/{name}"))
    values = json.loads(json.dumps(found.values()))
    assert not values.get("nearestMisses") or not found.is_good
    return list(values.get("nearestMisses", []))


def verify(objects: ClusterObjects, found: list[Remedy], name: str = "pod") -> None:
    """Applies each remedy to the manifests and explains again."""
    manifests = manifests_of(objects)
    for remedy in found:
        after = objects_of(*changed(manifests, objects.gates, remedy["changes"]))
        again = explain_pod(Engine(after, NOW), after.find(Pod, "pod", f"default/{name}"))
        assert again.is_good, f"{remedy['message']}: {next(again.lines())}"
        assert (
            again.explanation is None
            or again.explanation.choice is None
            or (again.explanation.choice.node == remedy["node"])
        )


def messages(objects: ClusterObjects) -> list[str]:
    found = remedies(objects)
    verify(objects, found)
    return [remedy["message"] for remedy in found]


GPU = 'device.attributes["gpu.example.com"]'
CLASS = device_class()


def gpus(name: str, *devices: object, **options: Any) -> ResourceSlice:
    return resource_slice(name, *devices, pool=name, node_name=name, **options)  # type: ignore[arg-type]


# --- What helps on one node, and not when it is followed --------------------------------------------------------------------


def test_an_error_on_another_node_leaves_only_what_corrects_it() -> None:
    """More devices on one node, or a release there, would not help: the selector fails on the other node."""
    held = claim("held", allocation=build.allocation(build.held("gpu-0", pool="a")))
    objects = cluster(
        *(node("a"), node("b"), CLASS, held, pod("pod", "claim")),
        gpus("a", device("gpu-0", attributes={"model": "h100"})),
        gpus("b", device("gpu-0")),
        claim("claim", request(where=f'{GPU}.model == "h100"')),
    )
    found = messages(objects)
    assert found == [f'remove the selector {GPU}.model == "h100" from request request']


def test_a_request_for_all_devices_is_not_helped_by_more_of_them() -> None:
    held = claim("held", allocation=build.allocation(build.held("gpu-0", pool="a")))
    objects = cluster(
        *(node("a"), CLASS, held, pod("pod", "claim")),
        gpus("a", device("gpu-0"), device("gpu-1")),
        claim("claim", request(everything=True)),
    )
    assert messages(objects) == [
        "request 1 device instead of all in request request",
        "release claim default/held",
    ]


def test_devices_added_to_an_incomplete_pool_do_not_help() -> None:
    objects = cluster(
        *(node("a"), CLASS, claim("claim", request()), pod("pod", "claim")),
        gpus("a", device("gpu-0"), of=2),
    )
    assert messages(objects) == ["wait until all slices of pool gpu.example.com/a are published"]


def test_a_slice_has_no_room_for_more_devices_than_the_api_allows() -> None:
    held = claim("held", allocation=build.allocation(*(build.held(f"gpu-{n}", pool="a") for n in range(32))))
    full = gpus("a", *(device(f"gpu-{number}", taints=[build.taint("x", "y")]) for number in range(64)))
    objects = cluster(node("a"), CLASS, held, claim("claim", request()), pod("pod", "claim"), full)
    assert not [message for message in messages(objects) if message.startswith("add")]


def test_a_pod_that_no_node_has_cpu_for_is_not_helped_by_devices() -> None:
    held = claim("held", allocation=build.allocation(build.held("gpu-0", pool="a")))
    objects = cluster(
        *(node("a", cpu="2"), node("b"), CLASS, held, claim("claim", request()), pod("pod", "claim", cpu="4")),
        gpus("a", device("gpu-0")),
    )
    assert messages(objects) == []


# --- The likeliest remedy comes first ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (
            request(where='device.attributes["gpu.example.org"].model == "h100-pcie"'),
            "read the attribute gpu.example.com/model instead of gpu.example.org/model in the selector of request request",
        ),
        (
            request(where=f'{GPU}.modle == "h100-pcie"'),
            "read the attribute gpu.example.com/model instead of gpu.example.com/modle in the selector of request request",
        ),
        (
            request(where=f'{GPU}.?modle.orValue("") == "h100-pcie"'),
            "read the attribute gpu.example.com/model instead of gpu.example.com/modle in the selector of request request",
        ),
        (
            request(where=f'{GPU}.model == "H100 PCIe"'),
            'use "h100-pcie" instead of "H100 PCIe" in the selector of request request',
        ),
        (
            request(where=f'{GPU}.model == "h100-pice"'),
            'use "h100-pcie" instead of "h100-pice" in the selector of request request',
        ),
        (
            request(where='device.capacity["gpu.example.org"].memory.isGreaterThan(quantity("1Gi"))'),
            "read the capacity gpu.example.com/memory instead of gpu.example.org/memory in the selector of request request",
        ),
        (request(device_class="gqu"), "use class gpu instead of gqu in request request"),
        (
            request(capacity={"memroy": "1Gi"}),
            "request the capacity memory instead of memroy in request request",
        ),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_a_misspelled_name_is_corrected_first(wanted: Any, message: str) -> None:
    model = device("gpu-0", attributes={"model": "h100-pcie"}, capacity={"memory": capacity("80Gi")}, shareable=True)
    tainted = device("gpu-1", attributes={"model": "x"}, taints=[build.taint("broken", "fan")])
    objects = cluster(
        *(node("a"), node("b"), CLASS, claim("claim", wanted), pod("pod", "claim")),
        gpus("a", model, tainted),
    )
    assert messages(objects)[0] == message


def test_a_misspelled_attribute_in_a_class_and_in_a_constraint() -> None:
    wrong = device_class("gpu", 'device.attributes["gpu.example.org"].model == "h100"')
    devices = [device(name, attributes={"model": "h100", "numa": 1}) for name in ("gpu-0", "gpu-1")]
    objects = cluster(node("a"), wrong, claim("claim", request()), pod("pod", "claim"), gpus("a", *devices))
    assert messages(objects)[0] == (
        "read the attribute gpu.example.com/model instead of gpu.example.org/model in the selector of class gpu"
    )
    matching = claim("claim", request(count=2), constraints=[build.match("gpu.example.org/numa")])
    objects = cluster(node("a"), CLASS, matching, pod("pod", "claim"), gpus("a", *devices))
    assert messages(objects)[0] == (
        "use the attribute gpu.example.com/numa instead of gpu.example.org/numa in a constraint of claim default/claim"
    )


def test_several_misspellings_are_corrected_together() -> None:
    where = 'device.attributes["gpu.example.org"].model == "h100"'
    wanted = claim("claim", request("one", where=where), request("two", where=where))
    devices = [device(name, attributes={"model": "h100"}) for name in ("gpu-0", "gpu-1")]
    objects = cluster(node("a"), CLASS, wanted, pod("pod", "claim"), gpus("a", *devices))
    read = "read the attribute gpu.example.com/model instead of gpu.example.org/model in the selector of request"
    assert messages(objects)[0] == f"{read} one and {read} two"


# --- Where a change is made -------------------------------------------------------------------------------------------------


def test_a_claim_of_a_template_is_changed_in_the_template_too() -> None:
    wanted = claim("claim", request(count=3))
    waiting = pod("pod", template="template")
    objects = cluster(*(node("a"), CLASS, template_of(wanted), waiting), gpus("a", device("gpu-0"), device("gpu-1")))
    found = remedies(objects)
    verify(objects, found)
    assert found[0]["changes"] == [
        {
            "action": "set",
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaimTemplate",
            "namespace": "default",
            "name": "template",
            "path": "/spec/spec/devices/requests/0/exactly/count",
            "from": 3,
            "to": 2,
        }
    ]
    engine = Engine(objects, NOW)
    completed = engine.complete(waiting)
    [made] = engine.claims_of(completed)
    objects.add(completed)
    objects.add(made)
    found = remedies(objects)
    verify(objects, found)
    assert [each["kind"] for each in found[0]["changes"]] == ["ResourceClaimTemplate", "ResourceClaim"]


def test_a_claim_is_released_by_deleting_the_pods_that_use_it() -> None:
    user = pod("user", "held", on="a")
    held = claim("held", allocation=build.allocation(build.held("gpu-0", pool="a")))
    held = replace(held, status=replace(held.status, reserved_for=(pod_reference(user),)))
    objects = cluster(
        *(node("a"), CLASS, held, user, claim("claim", request()), pod("pod", "claim", cpu="4")),
        gpus("a", device("gpu-0")),
    )
    found = remedies(objects)
    verify(objects, found)
    assert found[0]["message"] == "release claim default/held (delete pod default/user)"
    assert [(each["action"], each["name"]) for each in found[0]["changes"]] == [("delete", "user"), ("release", "held")]


# --- Random clusters --------------------------------------------------------------------------------------------------------


def random_cluster(seed: int) -> ClusterObjects:
    """Two nodes with the devices of two random problems, pods that use some of them, and a pod that waits."""
    random = Random(seed)
    here, there = random_world(seed), random_world(seed + 1)
    objects = cluster(*here.classes.values(), *here.rules, gates=gates_of(change(here.features)))
    for name in ("node-a", "node-b"):
        objects.add(node(name, cpu=random.choice("248")))
    for world, where in ((here, "a"), (there, "b")):
        for obj in _moved(world, where):
            objects.add(obj)
    held = [each for each in objects.all(ResourceClaim).values() if random.random() < 0.5]
    for number, each in enumerate(held):
        user = pod(f"user-{number}", each.metadata.name, cpu=random.choice(("100m", "1")), on=random.choice("ab"))
        objects.add(replace(user, spec=replace(user.spec, node_name=f"node-{user.spec.node_name}")))
    claims = here.claims[: random.choice((1, 2))]
    if random.random() < 0.5:
        template = claims[-1]
        objects.add(template_of(template))
        claims = claims[:-1]
    for each in claims:
        objects.add(each)
    names = [each.metadata.name for each in claims]
    has_template = bool(objects.all(ResourceClaimTemplate))
    cpu = random.choice(("100m", "1", "2"))
    objects.add(pod("pod", *names, template="template" if has_template else "", cpu=cpu))
    return objects


def _moved(world: World, where: str) -> Iterator[ApiObject]:
    """The slices and allocated claims of the problem, with pools and nodes of their own."""
    for each in world.slices:
        spec = replace(each.spec, pool=replace(each.spec.pool, name=f"{where}-{each.spec.pool.name}"))
        if spec.node_name and where == "b":
            spec = replace(spec, node_name="node-b")
        yield replace(each, metadata=replace(each.metadata, name=f"{where}-{each.metadata.name}"), spec=spec)
    for found in world.allocated:
        allocation = found.status.allocation
        assert allocation is not None
        results = tuple(replace(one, pool=f"{where}-{one.pool}") for one in allocation.devices.results)
        moved = replace(allocation, devices=replace(allocation.devices, results=results))
        metadata = replace(found.metadata, name=f"{where}-{found.metadata.name}".replace(".", "-"))
        yield replace(found, metadata=metadata, status=replace(found.status, allocation=moved))


@pytest.mark.slow
@pytest.mark.fuzz
@given(seed=st.integers(0, 2**32))
def test_every_remedy_works_when_it_is_followed(seed: int) -> None:
    objects = random_cluster(seed)
    verify(objects, remedies(objects))


@pytest.mark.slow
def test_random_clusters_have_remedies_of_every_kind() -> None:
    seen: set[str] = set()
    for seed in range(60):
        seen |= {remedy["change"] for remedy in remedies(random_cluster(seed))}
    assert seen >= {"RequestFewer", "LoosenSelector", "RemoveConstraint", "RemoveRequest", "ReleaseClaim"}
