"""Requests for the status of pools, over HTTP (KEP-5677)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dralloc.kube.codec import encode
from dralloc.kube.core_v1 import Namespace
from dralloc.kube.resource_v1 import ResourceSlice
from dralloc.kube.resource_v1alpha3 import PoolStatus, ResourcePoolStatusRequest, ResourcePoolStatusRequestStatus
from dralloc.primitives.errors import ApiError, Invalid, NotFound
from dralloc.testing.builders import DRIVER, claim, device, device_class, request, resource_slice, taint, taint_rule
from tests.support.running_cluster import RunningCluster, in_running_cluster, in_running_cluster_with
from tests.support.scheduled_cluster import node, our_pod

pytestmark = pytest.mark.slow

GATES = "DRAResourcePoolStatus=true,DRAPartitionableDevicesType=true"


def asked(name: str, **spec: Any) -> dict[str, Any]:
    kind = {"apiVersion": "resource.k8s.io/v1alpha3", "kind": "ResourcePoolStatusRequest"}
    return {**kind, "metadata": {"name": name}, "spec": {"driver": DRIVER, **spec}}


async def answer(cluster: RunningCluster, name: str, **spec: Any) -> ResourcePoolStatusRequestStatus:
    """The answer to a new request."""
    await cluster.create(asked(name, **spec))
    found = await cluster.until(
        ResourcePoolStatusRequest, name, lambda item: item is not None and item.status is not None, namespace=""
    )
    assert found is not None
    assert found.status is not None
    return found.status


def counts(pool: PoolStatus) -> tuple[int | None, ...]:
    return pool.total_devices, pool.allocated_devices, pool.available_devices, pool.unavailable_devices


@in_running_cluster_with(GATES)
async def test_KEP_5677_a_request_is_answered_once(cluster: RunningCluster) -> None:
    devices = [device(f"gpu-{number}") for number in range(9)]
    broken = device("gpu-9", taints=[taint("broken")])
    await cluster.create(device_class(), node("node-a"), resource_slice("gpus", *devices, broken))
    before = await answer(cluster, "before")
    assert before.pool_count == 1
    assert counts(before.pools[0]) == (10, 0, 9, 1)
    assert (before.pools[0].node_name, before.pools[0].partition_summary) == ("node-a", ())
    assert [(each.type, each.status, each.reason) for each in before.conditions] == [
        ("Complete", "True", "CalculationComplete")
    ]
    await cluster.create(claim("c", request(count=2)), our_pod("p", "c"))
    await cluster.running("p")
    assert counts((await answer(cluster, "after")).pools[0]) == (10, 2, 7, 1)
    unchanged = await cluster.client.get(ResourcePoolStatusRequest, "before")
    assert unchanged.status == before, "a new answer takes a new request"
    patch = {"status": {"poolCount": 3}}
    with pytest.raises(Invalid, match="immutable"):
        await cluster.client.patch(ResourcePoolStatusRequest, "before", patch, subresource="status")
    with pytest.raises(Invalid, match="immutable"):
        await cluster.client.patch(ResourcePoolStatusRequest, "before", {"spec": {"driver": "other.example.com"}})


@in_running_cluster_with(GATES)
async def test_KEP_5677_pools_are_selected_and_limited(cluster: RunningCluster) -> None:
    for name in ("a", "b"):
        await cluster.create(resource_slice(name, device("gpu-0"), pool=name, node_name=None, all_nodes=True))
    both = await answer(cluster, "both")
    assert [pool.pool_name for pool in both.pools] == ["a", "b"]
    assert both.pools[0].node_name is None
    only = await answer(cluster, "only", poolName="b")
    assert (only.pool_count, [pool.pool_name for pool in only.pools]) == (1, ["b"])
    first = await answer(cluster, "first", limit=1)
    assert (first.pool_count, [pool.pool_name for pool in first.pools]) == (2, ["a"])
    none = await answer(cluster, "none", driver="other.example.com")
    assert (none.pool_count, none.pools, none.conditions[0].type) == (0, (), "Complete")


@in_running_cluster_with(GATES)
async def test_KEP_5677_an_incomplete_pool_is_listed_with_its_error(cluster: RunningCluster) -> None:
    await cluster.create(resource_slice("gpus", device("gpu-0"), of=2))
    found = await answer(cluster, "free")
    assert "observed 1/2 slices" in (found.pools[0].validation_error or "")
    assert counts(found.pools[0]) == (None,) * 4
    assert found.conditions[0].message == "Calculated status for 1 pools (1 incomplete)"


@in_running_cluster_with(GATES)
async def test_KEP_5677_partitions_and_shared_devices_are_summed_up(cluster: RunningCluster) -> None:
    def partition(name: str, kind: str, amount: str) -> Any:
        return device(name, attributes={"profile": kind}, draws={"gpu": {"memory": amount}})

    parts = (partition("full", "Full", "2"), partition("half-0", "Half", "1"), partition("half-1", "Half", "1"))
    counters = resource_slice("counters", of=2, counters={"gpu": {"memory": "2"}})
    await cluster.create(counters, resource_slice("parts", *parts, of=2))
    shared = [device(name, shareable=True, capacity={"memory": "8"}) for name in ("a", "b")]
    await cluster.create(resource_slice("shared", *shared, driver="nic.example.com"))
    typed = await answer(cluster, "typed", defaultPartitionTypeAttribute=f"{DRIVER}/profile")
    assert [(each.type, each.total, each.allocatable) for each in typed.pools[0].partition_summary] == [
        ("Full", 1, 1),
        ("Half", 2, 2),
    ]
    untyped = (await answer(cluster, "untyped")).pools[0]
    assert (untyped.partition_summary, untyped.validation_error) == ((), None)
    summary = (await answer(cluster, "nics", driver="nic.example.com")).pools[0].shareable_summary
    assert summary is not None
    assert (summary.fully_available_devices, summary.partially_available_devices) == (2, 0)
    assert [(each.name, str(each.available)) for each in summary.capacity] == [("memory", "16")]


@in_running_cluster_with(GATES)
async def test_KEP_5677_invalid_requests_are_refused(cluster: RunningCluster) -> None:
    wrong: tuple[dict[str, Any], ...] = (
        {"driver": ""},
        {"limit": 0},
        {"limit": 1001},
        {"driver": "a b"},
        {"poolName": ""},
    )
    for number, spec in enumerate(wrong):
        with pytest.raises(Invalid):
            await cluster.create(asked(f"bad-{number}", **spec))


@in_running_cluster
async def test_KEP_5677_the_gate_is_switched_on_and_off(cluster: RunningCluster) -> None:
    await cluster.create(resource_slice("gpus", device("gpu-0")))
    with pytest.raises((NotFound, ApiError)):
        await cluster.create(asked("early"))
    await cluster.serve(GATES)
    await cluster.create(asked("waits"))
    await cluster.control(GATES)
    assert (await answer(cluster, "answered")).pool_count == 1
    await cluster.until(
        ResourcePoolStatusRequest, "waits", lambda item: item is not None and item.status is not None, namespace=""
    )
    await cluster.serve()
    with pytest.raises((NotFound, ApiError)):
        await cluster.client.get(ResourcePoolStatusRequest, "answered")
    assert await cluster.exists(ResourceSlice, "gpus", namespace="")


@in_running_cluster_with(GATES)
async def test_KEP_5677_devices_are_counted_once(cluster: RunningCluster) -> None:
    """Taint rules make devices unavailable; admin access is no allocation; shares of one device count as one."""
    shared = device("shared", shareable=True, capacity={"memory": "8"})
    plain = [device(f"gpu-{number}") for number in range(3)]
    gpus = resource_slice("gpus", shared, *plain, pool="node-a", node_name="node-a")
    await cluster.create(device_class(), node("node-a"), gpus)
    allowed = {"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}}
    await cluster.client.patch(Namespace, "default", allowed)
    admin = request("all", everything=True, admin=True)
    memory = [request(name, where="device.allowMultipleAllocations", capacity={"memory": "2"}) for name in ("a", "b")]
    await cluster.create(claim("admin", admin), our_pod("watcher", "admin"))
    await cluster.create(claim("shares", *memory), our_pod("p", "shares"))
    await cluster.running("watcher")
    await cluster.running("p")
    await cluster.create(taint_rule("broken", taint("broken"), driver=DRIVER, device="gpu-0"))
    (pool,) = (await answer(cluster, "counted")).pools
    assert counts(pool) == (4, 1, 2, 1)
    summary = pool.shareable_summary
    assert summary is not None
    assert [(each.name, str(each.consumed), str(each.available)) for each in summary.capacity] == [("memory", "4", "4")]


@in_running_cluster_with(GATES)
async def test_KEP_5677_a_request_is_an_object_like_others(cluster: RunningCluster) -> None:
    """The limit has a default, a status is not created, labels may change, and tables have columns for people."""
    await cluster.create(resource_slice("gpus", device("gpu-0"), device("gpu-1"), pool="node-a", node_name="node-a"))
    await cluster.create({**asked("mine"), "status": {"poolCount": 7, "pools": [], "conditions": []}})
    found = await cluster.until(
        ResourcePoolStatusRequest, "mine", lambda item: item is not None and item.status is not None, namespace=""
    )
    assert found is not None
    assert found.status is not None
    assert (found.spec.limit, found.status.pool_count) == (100, 1)
    labelled = await cluster.client.patch(ResourcePoolStatusRequest, "mine", {"metadata": {"labels": {"a": "b"}}})
    assert (labelled.metadata.labels, labelled.status) == ({"a": "b"}, found.status)
    path = "/apis/resource.k8s.io/v1alpha3/resourcepoolstatusrequests"
    shown = await cluster.table(path)
    assert [column["name"] for column in shown["columnDefinitions"]][:9] == [
        *("Name", "Driver", "Total", "Available", "Allocated", "Unavailable", "Errors", "Pools", "Status"),
    ]
    (row,) = shown["rows"]
    assert [str(cell) for cell in row["cells"][:9]] == ["mine", DRIVER, "2", "2", "0", "0", "0", "1", "Complete"]


@in_running_cluster_with(GATES)
async def test_KEP_5677_typed_partitions_are_validated(cluster: RunningCluster) -> None:
    """A slice that names the attribute needs devices that consume counters, and each of them the string."""
    attribute = {"partitionTypeAttribute": f"{DRIVER}/profile"}
    part = device("part", draws={"gpu": {"memory": "1"}})
    for made in (resource_slice("plain", device("gpu-0")), resource_slice("parts", part)):
        document = msgspec.json.decode(encode(made))
        document["spec"] |= attribute
        with pytest.raises(Invalid, match=r"partitionTypeAttribute|attributes"):
            await cluster.create({**document, "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice"})


@in_running_cluster_with(GATES)
async def test_KEP_5677_what_is_wrong_with_partitions_leaves_the_counts(cluster: RunningCluster) -> None:
    """Each pool has its own error; the request is complete all the same."""

    def part(name: str, amount: str, **attributes: Any) -> Any:
        return device(name, attributes=attributes, draws={"gpu": {"memory": amount}})

    pools = {
        "mismatch": (part("a", "1", profile="Half"), part("b", "2", profile="Half")),
        "missing": (part("a", "1", profile="Half"), part("b", "1")),
        "right": (part("a", "1", profile="Half"), part("b", "1", profile="Half")),
    }
    for name, parts in pools.items():
        where: dict[str, Any] = {"pool": name, "node_name": "node-a", "of": 2}
        await cluster.create(resource_slice(f"{name}-counters", counters={"gpu": {"memory": "2"}}, **where))
        await cluster.create(resource_slice(name, *parts, **where))
    found = await answer(cluster, "typed", defaultPartitionTypeAttribute=f"{DRIVER}/profile")
    by_name = {pool.pool_name: pool for pool in found.pools}
    assert (by_name["mismatch"].validation_error or "").startswith("PartitionCostMismatch:")
    assert (by_name["missing"].validation_error or "").startswith("PartitionTypeMissing:")
    assert [counts(by_name[name]) for name in pools] == [(2, 0, 2, 0)] * 3
    assert [by_name[name].partition_summary != () for name in pools] == [False, False, True]
    condition = found.conditions[0]
    assert (condition.type, condition.message) == ("Complete", "Calculated status for 3 pools (2 incomplete)")
