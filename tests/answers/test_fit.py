"""How many more copies fit: the count is the scheduler's, and what is stranded is free and of no use."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from dralloc.answers.cluster_objects import ClusterObjects
from dralloc.answers.engine import Engine
from dralloc.answers.fit import FitReport, fit
from dralloc.kube.core_v1 import Node, NodeSpec, ResourceQuota, ResourceQuotaSpec, Taint
from dralloc.kube.meta_v1 import ApiObject, ObjectMeta
from dralloc.kube.pod_v1 import Pod, PodResourceClaim, PodSchedulingGate
from dralloc.kube.resource_v1 import (
    NO_SCHEDULE,
    DeviceRequest,
    ResourceClaimTemplate,
    ResourceClaimTemplateSpec,
    ResourceSlice,
)
from dralloc.primitives.features import FeatureGates
from dralloc.primitives.quantity import Quantity
from dralloc.testing.builders import claim, device, device_class, match, request, resource_slice, taint
from tests.answers.test_engine import node
from tests.answers.test_engine import pod as plain_pod

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def gpus(name: str, *devices: Any, **more: Any) -> ResourceSlice:
    """The slice of a node."""
    published = resource_slice(f"{name}-gpus", *devices, pool=name, **more)
    return replace(published, spec=replace(published.spec, node_name=name, all_nodes=None))


def cards(count: int, **more: Any) -> list[Any]:
    return [device(f"gpu-{number}", **more) for number in range(count)]


def template(*requests: DeviceRequest, constraints: Sequence[Any] = ()) -> ResourceClaimTemplate:
    spec = claim("any", *requests, constraints=list(constraints)).spec
    return ResourceClaimTemplate(
        metadata=ObjectMeta(name="gpu", namespace="default"), spec=ResourceClaimTemplateSpec(spec=spec)
    )


def pod(name: str = "more", cpu: str = "1", on: str = "") -> Pod:
    """A pod with a claim of its own."""
    made = plain_pod(name, cpu=cpu, on=on)
    entry = PodResourceClaim(name="gpu", resource_claim_template_name="gpu")
    return replace(made, spec=replace(made.spec, resource_claims=(entry,)))


def fitted(model: Any, *items: ApiObject, copies_max: int = 10_000) -> FitReport:
    objects = ClusterObjects(FeatureGates.defaults())
    for item in (device_class(), *items):
        objects.add(item)
    return fit(Engine(objects, NOW), model, copies_max)


def stranded(report: FitReport) -> list[tuple[str, int, dict[str, str]]]:
    return [
        (each.message, len(each.devices), {name: str(amount) for name, amount in each.free.items()})
        for each in report.stranded
    ]


def test_copies_of_a_pod_have_claims_of_their_own() -> None:
    report = fitted(pod(), node("n1"), node("n2"), gpus("n1", *cards(3)), gpus("n2", *cards(1)), template(request()))
    assert (report.count, report.by_node) == (4, {"n1": 3, "n2": 1})
    assert report.message == "0/2 nodes are available: 2 nodes: devices are in use"
    assert report.stranded == ()


def test_copies_of_a_pod_that_names_a_claim_share_it() -> None:
    report = fitted(plain_pod("more", "shared", cpu="1"), node("n1"), gpus("n1", *cards(1)), claim("shared", request()))
    assert (report.count, report.message) == (8, "0/1 nodes are available: 1 node: insufficient cpu")


def test_copies_of_a_claim() -> None:
    model = claim("wanted", request())
    assert fitted(model, node("n1"), gpus("n1", *cards(3))).count == 3


def test_what_cpu_strands() -> None:
    report = fitted(pod(cpu="4"), node("n1"), gpus("n1", *cards(5, capacity={"memory": "40Gi"})), template(request()))
    assert report.count == 2
    assert stranded(report) == [("insufficient cpu", 3, {"memory": "120Gi"})]
    assert {name: str(reason) for name, reason in report.reasons.items()} == {"n1": "insufficient cpu"}


def test_a_device_that_lacks_something_is_stranded_by_that_whatever_its_node_lacks() -> None:
    shared = cards(2, capacity={"memory": "40Gi"}, shareable=True)
    report = fitted(pod(cpu="4"), node("n1"), gpus("n1", *shared), template(request(capacity={"memory": "15Gi"})))
    assert report.count == 2
    assert stranded(report) == [
        ("insufficient memory: requested 15Gi, available 10Gi", 1, {"memory": "10Gi"}),
        ("insufficient cpu", 1, {"memory": "40Gi"}),
    ]


def test_what_remainders_strand() -> None:
    shared = cards(2, capacity={"memory": "40Gi"}, shareable=True)
    report = fitted(pod(), node("n1"), gpus("n1", *shared), template(request(capacity={"memory": "15Gi"})))
    assert report.count == 4
    assert stranded(report) == [("insufficient memory: requested 15Gi, available 10Gi", 2, {"memory": "20Gi"})]


def test_devices_that_are_full_are_not_stranded() -> None:
    shared = cards(1, capacity={"memory": "40Gi"}, shareable=True)
    report = fitted(pod(), node("n1"), gpus("n1", *shared), template(request(capacity={"memory": "20Gi"})))
    assert (report.count, report.stranded) == (2, ())


def test_what_taints_strand() -> None:
    devices = [*cards(1), device("broken", taints=[taint("broken", "yes", NO_SCHEDULE)])]
    report = fitted(pod(), node("n1"), gpus("n1", *devices), template(request()))
    assert (report.count, stranded(report)) == (1, [("untolerated taint broken=yes:NoSchedule", 1, {})])


def test_what_taints_of_nodes_strand() -> None:
    tainted = replace(node("n1"), spec=NodeSpec(taints=(Taint(key="a", effect="NoSchedule"),)))
    report = fitted(pod(), tainted, gpus("n1", *cards(2)), template(request()))
    assert (report.count, stranded(report)) == (0, [("taint a:NoSchedule is not tolerated", 2, {})])


def test_what_a_count_strands() -> None:
    report = fitted(pod(), node("n1"), gpus("n1", *cards(5)), template(request(count=2)))
    assert (report.count, stranded(report)) == (2, [("only 1 of 2 devices: 4 in use", 1, {})])


def test_what_a_constraint_strands() -> None:
    devices = [device(f"gpu-{number}", attributes={"numa": number}) for number in range(2)]
    wants = template(request("a"), request("b"), constraints=[match("gpu.example.com/numa")])
    report = fitted(pod(), node("n1"), gpus("n1", *devices), wants)
    assert (report.count, stranded(report)) == (0, [("no 2 devices have the same gpu.example.com/numa", 2, {})])


def test_what_counters_strand() -> None:
    """Three partitions of 30 on a card of 80: two fit, and 20 of the card are left."""
    parts = [device(f"part-{number}", draws={"card": {"memory": "30"}}) for number in range(3)]
    published = gpus("n1", *parts, of=2)
    counters = resource_slice("n1-counters", pool="n1", of=2, counters={"card": {"memory": "80"}})
    counters = replace(counters, spec=replace(counters.spec, node_name="n1", all_nodes=None))
    report = fitted(pod(), node("n1"), published, counters, template(request()))
    assert report.count == 2
    assert stranded(report) == [("insufficient counter memory: needs 30, available 20", 1, {"memory": "20"})]


def test_pods_that_wait_come_first() -> None:
    cluster = [node("n1"), gpus("n1", *cards(3)), template(request())]
    urgent = pod("urgent")
    urgent = replace(urgent, spec=replace(urgent.spec, priority=1))
    report = fitted(pod(), *cluster, urgent, pod("same"))
    assert (report.count, report.placed_first) == (1, 2)
    model = pod()
    report = fitted(replace(model, spec=replace(model.spec, priority=1)), *cluster, urgent, pod("less"))
    assert (report.count, report.placed_first) == (2, 1)


def test_the_count_stops_at_its_limit() -> None:
    report = fitted(pod(), node("n1"), gpus("n1", *cards(3)), template(request()), copies_max=2)
    assert (report.count, report.is_limited, report.message) == (2, True, "")


def test_a_pod_from_a_cluster_is_a_model_like_any_other() -> None:
    running = pod("more-1", on="n1")
    running = replace(running, metadata=replace(running.metadata, uid="u"))
    cluster = [node("n1"), gpus("n1", *cards(3)), template(request())]
    held = claim("more-1-gpu", request())
    report = fitted(running, *cluster, running, replace(held, metadata=replace(held.metadata, namespace="default")))
    assert report.count == 3


def test_a_missing_template_fits_nowhere() -> None:
    report = fitted(pod(), node("n1"), gpus("n1", *cards(3)))
    assert (report.count, report.is_error, report.stranded) == (0, True, ())
    assert "template default/gpu does not exist" in report.message


def test_quotas_stop_copies() -> None:
    """Claims that exist count; the claims of copies are charged one after the other."""
    hard = {"gpu.deviceclass.resource.k8s.io/devices": Quantity.parse(3)}
    quota = ResourceQuota(metadata=ObjectMeta(name="few", namespace="default"), spec=ResourceQuotaSpec(hard=hard))
    cluster = [node("n1"), gpus("n1", *cards(5)), template(request()), quota, claim("other", request())]
    for model in (pod(), claim("wanted", request())):
        report = fitted(model, *cluster)
        assert (report.count, report.is_error) == (2, True)
        assert "exceeded quota: few" in report.message


def test_a_gated_pod_fits_nowhere() -> None:
    gated = pod()
    gated = replace(gated, spec=replace(gated.spec, scheduling_gates=(PodSchedulingGate(name="wait"),)))
    report = fitted(gated, node("n1"), gpus("n1", *cards(5)), template(request()))
    assert (report.count, report.is_error, report.reasons, report.stranded) == (0, True, {}, ())


# --- Exactness ------------------------------------------------------------------------------------------------------------

Sizes = st.lists(st.lists(st.sampled_from([5, 10, 17, 40]), max_size=3), min_size=1, max_size=4)


@settings(max_examples=60, deadline=None)
@given(
    devices=Sizes,
    cpus=st.lists(st.integers(0, 6), min_size=4, max_size=4),
    wanted=st.sampled_from([5, 7, 10]),
    cpu=st.integers(1, 3),
    is_shared=st.booleans(),
)
def test_the_count_equals_that_of_each_node_by_itself(
    devices: list[list[int]], cpus: list[int], wanted: int, cpu: int, is_shared: bool
) -> None:
    """Where nodes share nothing, copies are counted node by node: by cpu, and by what is left of each device."""
    items: list[ApiObject] = []
    expected = {}
    for number, (sizes, cpus_of_node) in enumerate(zip(devices, cpus, strict=False)):
        name = f"n{number}"
        published = [
            device(f"gpu-{index}", capacity={"memory": str(size)}, shareable=is_shared or None)
            for index, size in enumerate(sizes)
        ]
        items += [_node(name, cpus_of_node), *([gpus(name, *published)] if published else [])]
        each = [size // wanted if is_shared else int(size >= wanted) for size in sizes]
        expected[name] = min(cpus_of_node // cpu, sum(each))
    report = fitted(pod(cpu=str(cpu)), *items, template(request(capacity={"memory": str(wanted)})))
    assert report.by_node == expected


def _node(name: str, cpu: int) -> Node:
    made = node(name, cpu=str(cpu))
    return replace(
        made, status=replace(made.status, allocatable={**made.status.allocatable, "pods": Quantity.parse(50)})
    )


def test_any_number_of_copies_of_admin_access_stops_at_the_limit() -> None:
    model = claim("wanted", request(admin=True))
    report = fitted(model, node("n1"), gpus("n1", *cards(1)), copies_max=7)
    assert report.is_limited or report.is_error, report.message


@pytest.mark.parametrize("copies", [1, 5])
def test_notes_say_nothing_about_copies(copies: int) -> None:
    objects = ClusterObjects(FeatureGates.defaults())
    for item in (device_class(), node("n1"), gpus("n1", *cards(3)), template(request())):
        objects.add(item)
    fit(Engine(objects, NOW), pod(), copies)
    assert objects.notes == []
