"""The usage of a namespace, against a count of everything."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dralloc.api.quota import QuotaFacts, usage_of_claim
from dralloc.api.resource_v1 import ResourceClaim
from dralloc.controllers.quota.namespace_usage import NamespaceUsage
from dralloc.primitives.quantity import Quantity
from dralloc.testing.builders import alternative, claim, device_class, first_available, request

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
                usage.change_claim(present.pop(name), -1)
            else:
                present[name] = claim(name, *requests)
                usage.change_claim(present[name], 1)
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
                total[name] += amount
    assert usage.of("default", names) == total
