"""The usage of a namespace, against a count of everything."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dralloc.controllers.quota import NamespaceUsage
from dralloc.kube.extended_resources import extended_claim
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.quota import QuotaFacts, usage_of_claim
from dralloc.kube.resource_v1 import DeviceRequest, ResourceClaim
from dralloc.primitives.quantity import Quantity
from dralloc.testing.builders import alternative, claim, device_class, first_available, request
from tests.support.workloads import pod, seen

CLAIMS = "count/resourceclaims.resource.k8s.io"
GPUS = "gpu.deviceclass.resource.k8s.io/devices"
TPUS = "tpu.deviceclass.resource.k8s.io/devices"


REQUESTS = st.lists(
    st.sampled_from(
        [
            request("a", count=2),
            request("b", device_class="tpu", everything=True),
            first_available("c", alternative("x"), alternative("y", device_class="tpu", count=3)),
        ]
    ),
    unique_by=lambda entry: entry.name,
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["c1", "c2", "c3"]), REQUESTS),
        st.sampled_from([None, "example.com/gpu", "example.com/card"]),
    ),
    max_size=12,
)


@given(steps=STEPS)
def test_incremental_counts_agree_with_a_full_count(steps: list[Any]) -> None:
    """Claims are added and deleted, and the extended resource of the class changes."""
    usage, present, gpu = NamespaceUsage(counts_extended=True), dict[str, ResourceClaim](), device_class()
    for step in steps:
        if isinstance(step, tuple):
            name, requests = step
            if name in present:
                usage.change_claim(present.pop(name), None)
            else:
                present[name] = claim(name, *requests)
                usage.change_claim(None, present[name])
        else:
            changed = type(gpu)(metadata=gpu.metadata, spec=type(gpu.spec)(extended_resource_name=step))
            if usage.change_class(gpu, changed):
                usage.recount_claims(present.values())
            gpu = changed
    extended = gpu.spec.extended_resource_name
    facts = QuotaFacts(extended_names={"gpu": extended} if extended else {})
    names = [CLAIMS, GPUS, TPUS, *([f"requests.{extended}"] if extended else [])]
    total = dict.fromkeys(names, Quantity.ZERO)
    for item in present.values():
        for name, amount in usage_of_claim(item, facts).items():
            if name in total:
                total[name] += Quantity.of(amount)
    assert usage.of("default", names) == total


def special(pod: Pod, *requests: DeviceRequest) -> ResourceClaim:
    return extended_claim(pod, requests, "p-extended-resources-1")


def test_a_pod_and_its_claim_for_extended_resources_are_charged_once() -> None:
    """In either order, and again when the pod ends before its claim."""
    name = "requests.example.com/gpu"
    running = seen(pod("p", requests={"example.com/gpu": "2"}))
    made = special(running, request("container-0-request-0", count=2))
    steps = {
        "pod": lambda usage: usage.change_pod(None, running),
        "claim": lambda usage: usage.change_claim(None, made),
    }
    for first, second in (("pod", "claim"), ("claim", "pod")):
        usage = NamespaceUsage(counts_extended=True)
        usage.change_class(None, device_class(extended="example.com/gpu"))
        steps[first](usage)
        steps[second](usage)
        assert usage.of("default", [name, GPUS]) == {name: Quantity.of(2), GPUS: Quantity.of(2)}
        ended = seen(pod("p", requests={"example.com/gpu": "2"}), phase="Succeeded")
        assert usage.change_pod(running, ended)
        assert usage.of("default", [name]) == {name: Quantity.of(2)}, "the claim is there still"
        usage.change_claim(made, None)
        assert usage.of("default", [name, GPUS]) == {name: Quantity.ZERO, GPUS: Quantity.ZERO}
        assert not usage.change_pod(ended, None)


def test_a_claim_that_replaces_another_is_not_charged_as_that_one() -> None:
    """A watch that fell behind shows an object and its successor of the same name as one change."""
    name = "requests.example.com/gpu"
    usage = NamespaceUsage(counts_extended=True)
    usage.change_class(None, device_class(extended="example.com/gpu"))
    first, second = (seen(pod("p", requests={"example.com/gpu": "1"}), uid=uid) for uid in ("first", "second"))
    before = special(first, request("container-0-request-0", count=3))
    after = special(second, request("container-0-request-0", count=5))
    usage.change_pod(None, first)
    usage.change_claim(None, before)
    usage.change_pod(None, second)
    usage.change_claim(before, after)
    usage.change_pod(first, None)
    assert usage.of("default", [name, GPUS]) == {name: Quantity.of(5), GPUS: Quantity.of(5)}
    usage.change_claim(after, None)
    usage.change_pod(second, None)
    assert usage.of("default", [name, GPUS]) == {name: Quantity.ZERO, GPUS: Quantity.ZERO}


def test_nothing_is_kept_of_pods_that_are_gone() -> None:
    usage = NamespaceUsage(counts_extended=True)
    for number in range(3):
        running = seen(pod("p", requests={"example.com/gpu": "1"}), uid=str(number))
        made = special(running, request("r"))
        usage.change_pod(None, running)
        usage.change_claim(None, made)
        usage.change_claim(made, None)
        usage.change_pod(running, None)
    assert not usage._owned


def test_the_claim_of_another_pod_is_charged_in_full() -> None:
    usage = NamespaceUsage(counts_extended=True)
    usage.change_pod(None, seen(pod("p", requests={"example.com/gpu": "1"})))
    usage.change_class(None, device_class(extended="example.com/gpu"))
    usage.change_claim(None, special(seen(pod("p"), uid="another"), request("container-0-request-0")))
    assert usage.of("default", ["requests.example.com/gpu"]) == {"requests.example.com/gpu": Quantity.of(2)}
