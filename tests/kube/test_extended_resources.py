"""Extended resources that devices serve: the class of a name, and the claim of a pod."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from dralloc.kube.extended_resources import (
    ExtendedResourceClasses,
    extended_claim_name,
    extended_names,
    extended_requests,
    is_extended,
    uncountable_names,
)
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import DeviceClass
from dralloc.testing.builders import device_class
from tests.support.workloads import seen

GPU, IMPLICIT = "example.com/gpu", "deviceclass.resource.kubernetes.io/gpu"


def container(name: str, *, is_sidecar: bool = False, **requests: str) -> dict[str, Any]:
    """A container; `gpu` and `nic` are extended resources, other names are taken as they are."""
    names = {"gpu": GPU, "nic": "example.com/nic", "implicit": IMPLICIT}
    amounts = {names.get(key, key): value for key, value in requests.items()}
    found: dict[str, Any] = {"name": name, "resources": {"requests": amounts}}
    return {**found, "restartPolicy": "Always"} if is_sidecar else found


def pod(*containers: dict[str, Any], init: tuple[dict[str, Any], ...] = ()) -> Pod:
    metadata = {"name": "p", "namespace": "default", "uid": "u1"}
    return seen({"metadata": metadata, "spec": {"containers": list(containers), "initContainers": list(init)}})


def asked(item: Pod, **classes: str) -> tuple[dict[str, int], list[str]]:
    """The counts of the requests, and the mappings as `container resource request`."""
    names = {"gpu": GPU, "nic": "example.com/nic", "implicit": IMPLICIT}
    found = extended_requests(item.spec, {names[key]: value for key, value in (classes or {"gpu": "gpu"}).items()})
    counts = {each.name: each.exactly.count for each in found.requests if each.exactly is not None}
    return counts, [f"{each.container_name} {each.resource_name} {each.request_name}" for each in found.mappings]


# --- Requests and mappings --------------------------------------------------------------------------------------


def test_cpu_and_memory_count_for_the_number_of_a_request() -> None:
    counts, mappings = asked(pod(container("main", cpu="1", gpu="2", memory="1Gi")))
    assert counts == {"container-0-request-1": 2}
    assert mappings == [f"main {GPU} container-0-request-1"]


def test_each_container_that_lasts_has_its_own_request() -> None:
    counts, mappings = asked(
        pod(container("a", gpu="1"), container("b", gpu="2"), init=(container("s", is_sidecar=True, gpu="1"),))
    )
    assert counts == {"container-0-request-0": 1, "container-1-request-0": 1, "container-2-request-0": 2}
    assert [each.split()[0] for each in mappings] == ["s", "a", "b"]


def test_an_init_container_uses_the_devices_of_those_that_start_later() -> None:
    first, late = container("first", gpu="3"), container("late", is_sidecar=True, gpu="1")
    counts, mappings = asked(
        pod(container("main", gpu="4"), init=(container("early", is_sidecar=True, gpu="9"), first, late))
    )
    assert counts == {"container-0-request-0": 9, "container-2-request-0": 1, "container-3-request-0": 4}
    assert mappings[3:] == [f"first {GPU} container-2-request-0", f"first {GPU} container-3-request-0"]


def test_only_the_largest_shortfall_of_init_containers_is_requested() -> None:
    init = (container("a", gpu="3"), container("b", gpu="5"), container("c", gpu="1"))
    counts, mappings = asked(pod(container("main", gpu="2"), init=init))
    assert counts == {"container-1-request-0": 3, "container-3-request-0": 2}
    assert mappings == [
        f"main {GPU} container-3-request-0",
        f"a {GPU} container-3-request-0",
        f"a {GPU} container-1-request-0",
        f"b {GPU} container-3-request-0",
        f"b {GPU} container-1-request-0",
        f"c {GPU} container-3-request-0",
    ]


def test_requests_are_sorted_as_text_and_mappings_by_resource() -> None:
    containers = [container(f"c{number}", gpu="1", nic="1") for number in range(11)]
    counts, mappings = asked(pod(*containers), gpu="gpu", nic="nic")
    assert list(counts)[:5] == [
        "container-0-request-0",
        "container-0-request-1",
        "container-1-request-0",
        "container-1-request-1",
        "container-10-request-0",
    ]
    assert [each.split()[1] for each in mappings] == [GPU] * 11 + ["example.com/nic"] * 11


def test_both_names_of_a_class_are_two_requests() -> None:
    counts, _ = asked(pod(container("main", gpu="1", implicit="1")), gpu="gpu", implicit="gpu")
    assert counts == {"container-0-request-0": 1, "container-0-request-1": 1}


def test_zero_and_other_resources_ask_for_nothing() -> None:
    asked_for = {"hugepages-2Mi": "2Mi", "kubernetes.io/x": "1"}
    plain = container("main", gpu="0", cpu="1")
    plain["resources"]["requests"].update(asked_for)
    item = pod(plain)
    assert extended_names(item.spec) == frozenset()
    assert asked(item) == ({}, [])


def test_only_whole_devices_can_be_counted() -> None:
    assert not uncountable_names(pod(container("main", gpu="2")).spec)
    assert uncountable_names(pod(container("main", gpu="1500m")).spec) == {GPU}


@given(st.lists(st.tuples(st.sampled_from(("init", "sidecar", "main")), st.integers(0, 4)), min_size=1, max_size=6))
def test_no_container_has_less_than_it_asks_for_and_nothing_is_requested_in_vain(drawn: list[tuple[str, int]]) -> None:
    """At every moment of the pod's life, the containers that run then do not share devices, and get what they ask for."""
    numbered = [(kind, amount, f"c{number}") for number, (kind, amount) in enumerate(drawn)]
    init = tuple(
        container(name, is_sidecar=kind == "sidecar", gpu=str(n)) for kind, n, name in numbered if kind != "main"
    )
    item = pod(*(container(name, gpu=str(n)) for kind, n, name in numbered if kind == "main"), init=init)
    counts, mappings = asked(item)
    of = {name: [line.split()[2] for line in mappings if line.split()[0] == name] for _, _, name in numbered}
    order = [each.name for each in (*item.spec.init_containers, *item.spec.containers)]
    kinds = {name: (kind, amount) for kind, amount, name in numbered}
    for name in order:
        kind, amount = kinds[name]
        assert sum(counts[each] for each in of[name]) >= amount
        if kind == "init":
            running = [other for other in order[: order.index(name)] if kinds[other][0] == "sidecar"]
            assert not set(of[name]) & {each for other in running for each in of[other]}
    lasting = [each for name in order if kinds[name][0] != "init" for each in of[name]]
    assert len(lasting) == len(set(lasting))
    assert set(counts) == {each for used in of.values() for each in used}


# --- Names ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "expected"),
    [(GPU, True), (IMPLICIT, True), ("cpu", False), ("kubernetes.io/x", False), ("requests.a.b/c", False)],
)
def test_which_names_are_extended_resources(name: str, expected: bool) -> None:
    assert is_extended(name) is expected


def test_the_name_of_a_claim_is_that_of_the_pod_and_always_the_same() -> None:
    item = pod(container("main"))
    assert extended_claim_name(item) == extended_claim_name(item)
    assert extended_claim_name(item).startswith("p-extended-resources-")
    long = replace(item, metadata=replace(item.metadata, name="p" * 253))
    assert len(extended_claim_name(long)) == 63


# --- Classes ----------------------------------------------------------------------------------------------------


def created(name: str, at: str, extended: str | None = GPU) -> DeviceClass:
    made = device_class(name, extended=extended)
    return replace(made, metadata=replace(made.metadata, creation_timestamp=f"2026-01-01T00:00:{at}Z"))


def served_by(classes: ExtendedResourceClasses, name: str) -> str | None:
    found = classes.find(name)
    return found.metadata.name if found is not None else None


def test_the_newest_class_serves_a_name_then_the_first_by_name() -> None:
    classes = ExtendedResourceClasses((created("a", "01"), created("c", "02"), created("b", "02")))
    assert served_by(classes, GPU) == "b"
    assert [served_by(classes, f"deviceclass.resource.kubernetes.io/{name}") for name in "abcd"] == [
        "a",
        "b",
        "c",
        None,
    ]


def test_another_class_takes_over_when_the_first_is_deleted_or_renamed() -> None:
    old, new = created("old", "01"), created("new", "02")
    classes = ExtendedResourceClasses((old, new))
    assert classes.change(old, None) == {"deviceclass.resource.kubernetes.io/old"}, "the winner stays"
    assert classes.change(None, old) == {"deviceclass.resource.kubernetes.io/old"}
    assert classes.change(new, created("new", "02", extended=None)) == {GPU}
    assert served_by(classes, GPU) == "old"
    assert classes.change(old, None) == {GPU, "deviceclass.resource.kubernetes.io/old"}
    assert served_by(classes, GPU) is None
