"""What quotas say is used: counted as it is charged, and kept up to date."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dralloc.api.core_v1 import ResourceQuota
from dralloc.api.quota import QuotaFacts, usage_of_claim
from dralloc.api.resource_v1 import DeviceClass, ResourceClaim
from dralloc.controllers.quota.namespace_usage import NamespaceUsage
from dralloc.controllers.quota.plan import plan_quota
from dralloc.primitives.quantity import Quantity
from dralloc.simulator.virtual_time import run_virtual
from dralloc.testing.builders import alternative, claim, device_class, first_available, request
from tests.support.controlled_cluster import ControlledCluster, controlled_cluster
from tests.support.workloads import pod, quota

CLAIMS = "count/resourceclaims.resource.k8s.io"
GPUS = "gpu.deviceclass.resource.k8s.io/devices"
TPUS = "tpu.deviceclass.resource.k8s.io/devices"
EXTENDED = "requests.example.com/gpu"


def amounts(**named: int) -> dict[str, Quantity]:
    return {name: Quantity.of(amount) for name, amount in named.items()}


def a_quota(hard: dict[str, Quantity], used: dict[str, Quantity], shown: dict[str, Quantity] | None = None) -> Any:
    quota = ResourceQuota()
    return type(quota)(
        spec=type(quota.spec)(hard=hard),
        status=type(quota.status)(hard=hard if shown is None else shown, used=used),
    )


@pytest.mark.parametrize(
    ("quota", "used", "want"),
    [
        (a_quota(amounts(a=5), amounts(a=1)), amounts(a=1), None),
        (a_quota(amounts(a=5), amounts(a=1)), amounts(a=2), {"hard": amounts(a=5), "used": amounts(a=2)}),
        (a_quota(amounts(a=5, b=1), {}, {}), amounts(a=0), {"hard": amounts(a=5), "used": amounts(a=0)}),
        (
            a_quota(amounts(a=5), amounts(a=1, b=1), amounts(a=5, b=9)),
            amounts(a=1),
            {"hard": {**amounts(a=5), "b": None}, "used": {**amounts(a=1), "b": None}},
        ),
    ],
    ids=["nothing new", "more is used", "what nobody counts is not shown", "what is limited no more is taken out"],
)
def test_plan_quota(quota: ResourceQuota, used: dict[str, Quantity], want: Any) -> None:
    actions = plan_quota(quota, used)
    assert [action.patch for action in actions] == ([] if want is None else [want])


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
def test_counting_change_by_change_is_counting_everything(steps: list[Any]) -> None:
    """Claims come and go, and the class comes to stand for another extended resource."""
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


def test_the_status_follows_what_is_used() -> None:
    async def main() -> None:
        async with controlled_cluster(only=("quota",)) as cluster:
            hard = {CLAIMS: "10", GPUS: "20", TPUS: "40", EXTENDED: "20", "count/pods": "5", "limits.cpu": "3"}
            await cluster.client.create(quota("q", hard))
            await cluster.settle()
            assert await used(cluster) == {CLAIMS: 0, GPUS: 0, TPUS: 0, "count/pods": 0}

            await cluster.client.create(claim("exact", request(count=3)))
            listed = first_available(
                "r", alternative("a", count=2), alternative("b"), alternative("c", device_class="tpu", everything=True)
            )
            await cluster.client.create(claim("listed", listed))
            await cluster.client.create(pod("p"))
            await cluster.settle()
            assert await used(cluster) == {CLAIMS: 2, GPUS: 5, TPUS: 32, "count/pods": 1}

            await cluster.client.create(
                DeviceClass(
                    metadata=device_class().metadata,
                    spec=type(device_class().spec)(extended_resource_name="example.com/gpu"),
                )
            )
            await cluster.client.delete(ResourceClaim, "listed")
            await cluster.settle()
            assert await used(cluster) == {CLAIMS: 1, GPUS: 3, TPUS: 0, EXTENDED: 3, "count/pods": 1}
            shown = (await cluster.client.get(ResourceQuota, "q")).status.hard
            assert set(shown) == set(hard) - {"limits.cpu"}

    run_virtual(main())


async def used(cluster: ControlledCluster) -> dict[str, int]:
    status = (await cluster.client.get(ResourceQuota, "q")).status
    return {name: int(str(amount)) for name, amount in status.used.items()}


def test_a_flood_of_claims_is_not_a_flood_of_writes() -> None:
    async def main() -> None:
        async with controlled_cluster(only=("quota",)) as cluster:
            await cluster.client.create(quota("q", {CLAIMS: "1000"}))
            await cluster.settle()
            before = int((await cluster.client.get(ResourceQuota, "q")).metadata.resource_version)
            for number in range(100):
                await cluster.client.create(claim(f"c{number}", request()))
                await cluster.settle(0.01)
            await cluster.settle()
            assert await used(cluster) == {CLAIMS: 100}
            after = int((await cluster.client.get(ResourceQuota, "q")).metadata.resource_version)
            # Every write, of claims and of the quota, is a revision.
            assert after - before - 100 <= 3

    run_virtual(main())
