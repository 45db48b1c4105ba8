"""Prioritized alternatives over HTTP. docs/quality/parity.md says what the ids in the test names are."""

from __future__ import annotations

import pytest
from msgspec import Raw
from msgspec.json import decode, encode

from dralloc.kube.resource_v1 import (
    AllocationResult,
    DeviceClaimConfiguration,
    OpaqueDeviceConfiguration,
    ResourceClaim,
)
from dralloc.primitives.errors import Invalid
from dralloc.testing.builders import (
    CLASS,
    DRIVER,
    alternative,
    claim,
    device,
    device_class,
    first_available,
    match,
    request,
    resource_slice,
)
from tests.support.running_cluster import RunningCluster, in_running_cluster
from tests.support.scheduled_cluster import gpus, node, our_pod

pytestmark = pytest.mark.slow


async def allocated(cluster: RunningCluster, wanted: ResourceClaim) -> AllocationResult:
    """Returns the results of the claim after a pod used it."""
    name = wanted.metadata.name
    await cluster.create(wanted, our_pod(name, name))
    await cluster.running(name)
    allocation = (await cluster.claim(name)).status.allocation
    assert allocation is not None
    return allocation


def requests_of(allocation: AllocationResult) -> list[str]:
    return [result.request for result in allocation.devices.results]


def configured(kind: str, *requests: str) -> DeviceClaimConfiguration:
    opaque = OpaqueDeviceConfiguration(driver=DRIVER, parameters=Raw(encode({"kind": kind})))
    return DeviceClaimConfiguration(requests=requests, opaque=opaque)


def kinds_of(allocation: AllocationResult) -> list[str]:
    return [decode(config.opaque.parameters)["kind"] for config in allocation.devices.config if config.opaque]


def of_model(model: int) -> str:
    return f'device.attributes["{DRIVER}"].model == {model}'


@in_running_cluster
async def test_L1_the_first_alternative_with_enough_devices_is_allocated(cluster: RunningCluster) -> None:
    await cluster.create(device_class(), node("node-a"), gpus("node-a", 2))
    counts = [alternative(f"sub-request-{position}", count=count) for position, count in ((1, 3), (2, 2), (3, 1))]
    allocation = await allocated(cluster, claim("c", first_available("request-1", *counts)))
    assert requests_of(allocation) == ["request-1/sub-request-2"] * 2


@in_running_cluster
async def test_L2_the_configuration_of_the_request_and_of_the_chosen_alternative_apply(cluster: RunningCluster) -> None:
    await cluster.create(device_class(), node("node-a"), gpus("node-a", 2))
    asked = first_available(
        "request-1", *(alternative(name, count=count) for name, count in (("a", 3), ("b", 2), ("c", 1)))
    )
    config = [configured("main", "request-1"), *(configured(name, f"request-1/{name}") for name in "abc")]
    allocation = await allocated(cluster, claim("c", asked, config=config))
    assert requests_of(allocation) == ["request-1/b"] * 2
    assert kinds_of(allocation) == ["main", "b"]


@in_running_cluster
async def test_L3_an_alternative_whose_constraint_fails_is_skipped(cluster: RunningCluster) -> None:
    unequal = [device(f"gpu-{number}", attributes={"model": number}) for number in range(2)]
    await cluster.create(device_class(), node("node-a"), resource_slice("s", *unequal, node_name="node-a"))
    asked = first_available("request-1", alternative("sub-request-1", count=2), alternative("sub-request-2", count=1))
    constrained = claim("c", asked, constraints=[match(f"{DRIVER}/model", "request-1/sub-request-1")])
    assert requests_of(await allocated(cluster, constrained)) == ["request-1/sub-request-2"]


@in_running_cluster
async def test_L4_two_requests_choose_alternatives_and_configuration_separately(cluster: RunningCluster) -> None:
    await cluster.create(device_class(), node("node-a"), gpus("node-a", 3))
    many_or_one = [alternative("many", count=20), alternative("one", count=1)]
    asked = [first_available("request-1", *many_or_one), first_available("request-2", *many_or_one)]
    config = [
        configured("first", "request-1/one"),
        configured("never", "request-1/many"),
        configured("second", "request-2"),
    ]
    wanted = claim("c", *asked, config=config)
    user = our_pod("p", "c")
    (container,) = user["spec"]["containers"]
    user["spec"]["containers"] = [
        {**container, "name": name, "resources": {"claims": [{"name": "c", "request": asked_by}]}}
        for name, asked_by in (("one", "request-1"), ("two", "request-2"))
    ]
    await cluster.create(wanted, user)
    await cluster.running("p")
    allocation = (await cluster.claim("c")).status.allocation
    assert allocation is not None
    assert requests_of(allocation) == ["request-1/one", "request-2/one"]
    by_request = {config.requests: config.opaque for config in allocation.devices.config}
    assert set(by_request) == {("request-1/one",), ("request-2",)}


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
def test_L5_alternatives_in_older_api_versions_are_chosen_the_same_way(version: str) -> None:
    @in_running_cluster
    async def test(cluster: RunningCluster) -> None:
        await cluster.create(device_class(), node("node-a"), gpus("node-a", 2))
        listed = [{"name": f"s{count}", "deviceClassName": CLASS, "count": count} for count in (3, 2, 1)]
        document = {
            "apiVersion": f"resource.k8s.io/{version}",
            "kind": "ResourceClaim",
            "metadata": {"name": "c"},
            "spec": {"devices": {"requests": [{"name": "r", "firstAvailable": listed}]}},
        }
        await cluster.post(f"/apis/resource.k8s.io/{version}/namespaces/default/resourceclaims", document)
        await cluster.create(our_pod("p", "c"))
        await cluster.running("p")
        allocation = (await cluster.claim("c")).status.allocation
        assert allocation is not None
        assert requests_of(allocation) == ["r/s2", "r/s2"]

    test()


@in_running_cluster
async def test_L6_a_pod_whose_alternatives_all_fail_waits_with_a_count_of_nodes(
    cluster: RunningCluster,
) -> None:
    await cluster.create(device_class())
    for number in range(8):
        await cluster.create(node(f"node-{number}"), gpus(f"node-{number}"))
    asked = first_available("r", alternative("none", where="false"), alternative("many", count=9))
    await cluster.create(claim("c", asked), our_pod("p", "c"))
    condition = await cluster.refused("p", "0/8 nodes are available: 8 nodes: ")
    assert condition.reason == "Unschedulable"


@in_running_cluster
async def test_L7_the_node_where_the_first_alternative_fits_wins(cluster: RunningCluster) -> None:
    await cluster.create(device_class())
    for rank in range(8):
        await cluster.create(node(f"node-{rank}"), gpus(f"node-{rank}", attributes={"model": rank}))
    asked = first_available("r", *(alternative(f"choice-{rank}", where=of_model(rank)) for rank in range(8)))
    allocation = await allocated(cluster, claim("c", asked))
    assert requests_of(allocation) == ["r/choice-0"]
    assert [result.pool for result in allocation.devices.results] == ["node-0"]


@in_running_cluster
async def test_L8_the_node_with_the_best_sum_of_alternatives_wins(cluster: RunningCluster) -> None:
    # By node: the alternatives that its devices serve, for the first and for the second claim.
    ranks = {"node-0": (1, 3), "node-1": (2, 1), "node-2": (3, 2)}
    await cluster.create(device_class())
    for name, (first, second) in ranks.items():
        devices = [device("a", attributes={"model": 10 + first}), device("b", attributes={"model": 20 + second})]
        await cluster.create(node(name), resource_slice(f"gpus-of-{name}", *devices, pool=name, node_name=name))
    for name, base in (("first", 10), ("second", 20)):
        choices = [alternative(f"choice-{rank}", where=of_model(base + rank)) for rank in (1, 2, 3)]
        await cluster.create(claim(name, first_available("r", *choices)))
    await cluster.create(our_pod("p", "first", "second"))
    assert (await cluster.running("p")).spec.node_name == "node-1", "8-1 + 8-0 = 15, against 14 and 13"


@in_running_cluster
async def test_L9_a_server_with_the_feature_off_rejects_new_lists(cluster: RunningCluster) -> None:
    await cluster.serve("DRAPrioritizedList=false")
    with pytest.raises(Invalid, match="exactly"):
        await cluster.create(claim("c", first_available("r", alternative("one"))))
    await cluster.create(claim("plain", request()))
