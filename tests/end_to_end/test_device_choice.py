"""Aggregated capacity, device preference, conditions on allocations and distinct attributes, over HTTP.

docs/quality/parity.md says what the ids in the test names are.
"""

from __future__ import annotations

import msgspec
import pytest

from dralloc.kube.codec import encode
from dralloc.kube.device_parts import capacity
from dralloc.kube.resource_v1 import (
    LEAST_AVAILABLE,
    MOST_AVAILABLE,
    Device,
    DeviceClass,
    DeviceRequest,
    ResourceClaim,
    ResourceSlice,
)
from dralloc.primitives.errors import ApiError, Conflict
from dralloc.testing.builders import (
    DRIVER,
    allocation,
    alternative,
    claim,
    device,
    device_class,
    distinct_in_any,
    first_available,
    held,
    match,
    request,
    resource_slice,
)
from tests.support.running_cluster import RunningCluster, in_running_cluster, in_running_cluster_with
from tests.support.scheduled_cluster import node, our_pod

pytestmark = pytest.mark.slow

AGGREGATED = "DRAAggregatedCapacity=true"
PREFERENCE = "DRADevicePreference=true"
ALL_ALPHA = "AllAlpha=true"


def published(*devices: Device) -> ResourceSlice:
    return resource_slice("nics", *devices, node_name="node-a", pool="node-a")


def nics(**bandwidth: str) -> ResourceSlice:
    return published(
        *(device(name, shareable=True, capacity={"bandwidth": amount}) for name, amount in bandwidth.items())
    )


def together(amount: str, *, count: int = 32) -> DeviceRequest:
    return request("r", together=True, count=count, capacity={"bandwidth": amount})


async def use(cluster: RunningCluster, made: ResourceClaim) -> None:
    """Creates the claim and a pod of the same name that uses it."""
    name = made.metadata.name or ""
    await cluster.create(made, our_pod(name, name))


async def given(cluster: RunningCluster, name: str) -> list[str]:
    """The results of the claim of a pod that runs, with the bandwidth that each share consumes."""
    await cluster.running(name)
    found = (await cluster.client.get(ResourceClaim, name)).status.allocation
    assert found is not None
    return [
        f"{result.device}={result.consumed_capacity['bandwidth']}" if result.consumed_capacity else result.device
        for result in found.devices.results
    ]


# --- F2 ----------------------------------------------------------------------------------------------------------------


@in_running_cluster_with(AGGREGATED)
async def test_F2_devices_have_a_bandwidth_together(cluster: RunningCluster) -> None:
    """Use case 11: any number of network devices with 10 of bandwidth together."""
    await cluster.create(device_class(), node("node-a"), nics(a="4", b="4", c="4"))
    await use(cluster, claim("ten", together("10")))
    assert await given(cluster, "ten") == ["a=4", "b=4", "c=2"]
    stored = (await cluster.client.get(ResourceClaim, "ten")).status.allocation
    assert stored is not None
    assert len({result.share_id for result in stored.devices.results}) == 3
    await use(cluster, claim("three", together("3")))
    await cluster.refused("three", "insufficient bandwidth: requested 3, 3 devices can give 2")
    await use(cluster, claim("two", request(capacity={"bandwidth": "2"})))
    assert await given(cluster, "two") == ["c=2"]
    await cluster.delete_pod("ten")
    await cluster.claim_where("ten", lambda found: found.status.allocation is None)
    assert await given(cluster, "three") == ["a=3"]


@in_running_cluster_with(AGGREGATED)
async def test_F2_with_policies_constraints_and_alternatives(cluster: RunningCluster) -> None:
    rounded = capacity("8", default="2", minimum="2", step="2")
    devices = [
        device(name, shareable=True, capacity={"bandwidth": rounded}, attributes={"numa": numa})
        for name, numa in (("a", 0), ("b", 1), ("c", 1))
    ]
    await cluster.create(device_class(), node("node-a"), published(*devices))
    numa = match(f"{DRIVER}/numa")
    await use(cluster, claim("aligned", together("11"), constraints=[numa]))
    assert await given(cluster, "aligned") == ["b=8", "c=4"]
    one = alternative("one", capacity={"bandwidth": "10"})
    many = alternative("many", together=True, count=2, capacity={"bandwidth": "10"})
    await use(cluster, claim("either", first_available("r", one, many)))
    assert await given(cluster, "either") == ["a=8", "c=2"]
    await use(cluster, claim("few", together("3", count=1)))
    await cluster.refused("few", "insufficient bandwidth: requested 3, 1 device can give 2")


@in_running_cluster_with(AGGREGATED)
async def test_F2_shares_are_accounted_and_guarded(cluster: RunningCluster) -> None:
    await cluster.create(device_class(), node("node-a"), nics(a="4", b="4"))
    await use(cluster, claim("six", together("6")))
    assert await given(cluster, "six") == ["a=4", "b=2"]
    await cluster.create(claim("other", together("3")))
    shares = [
        held(
            "b",
            pool="node-a",
            request="r",
            share_id="5f2f8f44-0000-4000-8000-000000000001",
            consumed={"bandwidth": "3"},
        )
    ]
    status = {"allocation": msgspec.json.decode(encode(allocation(*shares)))}
    with pytest.raises(Conflict, match="insufficient bandwidth"):
        await cluster.client.patch(ResourceClaim, "other", {"status": status}, subresource="status")


@in_running_cluster_with(AGGREGATED)
async def test_F2_quota_counts_the_most_devices(cluster: RunningCluster) -> None:
    quota = {"hard": {"gpu.deviceclass.resource.k8s.io/devices": "5"}}
    await cluster.create({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": quota})
    await cluster.create(device_class(), node("node-a"), nics(a="4", b="4"))
    with pytest.raises(ApiError, match="exceeded quota"):
        await cluster.create(claim("many", together("6", count=6)))
    await use(cluster, claim("few", together("6", count=5)))
    assert await given(cluster, "few") == ["a=4", "b=2"]


@in_running_cluster_with(AGGREGATED)
async def test_F2_the_gate_is_switched_off_and_on(cluster: RunningCluster) -> None:
    await cluster.create(device_class(), node("node-a"), nics(a="4", b="4"))
    await use(cluster, claim("six", together("6")))
    assert await given(cluster, "six") == ["a=4", "b=2"]
    await cluster.create(claim("later", together("2")))
    before = await cluster.client.get(ResourceClaim, "six")
    await cluster.restart_all()
    with pytest.raises(ApiError, match="allocationMode"):
        await cluster.create(claim("new", together("2")))
    await cluster.create(our_pod("later", "later"))
    await cluster.refused("later", "DRAAggregatedCapacity is off")
    assert (await cluster.client.get(ResourceClaim, "six")).status == before.status
    await cluster.restart_all(AGGREGATED)
    assert await given(cluster, "later") == ["b=2"]


# --- F7 ----------------------------------------------------------------------------------------------------------------


@in_running_cluster_with(PREFERENCE)
async def test_F7_requests_pack_or_spread_and_the_request_wins_over_the_class(cluster: RunningCluster) -> None:
    spread = device_class("spread", prefer=MOST_AVAILABLE)
    await cluster.create(device_class(), spread, node("node-a"), nics(a="8", b="6", c="9"))
    two = {"bandwidth": "2"}
    for name, made, want in (
        ("first", request(capacity=two), "a=2"),
        ("packed", request(capacity=two, prefer=LEAST_AVAILABLE), "a=2"),
        ("of-class", request(capacity=two, device_class="spread"), "c=2"),
        ("again", request(capacity=two, device_class="spread"), "c=2"),
        ("wins", request(capacity=two, device_class="spread", prefer=LEAST_AVAILABLE), "a=2"),
    ):
        await use(cluster, claim(name, made))
        assert await given(cluster, name) == [want], name


@in_running_cluster_with(PREFERENCE)
async def test_F7_a_condition_on_allocations_waits_for_other_pods(cluster: RunningCluster) -> None:
    """A pod that wants a device in use becomes possible when another pod gets one."""
    await cluster.create(
        device_class(), node("node-a"), published(device("a", shareable=True), device("b", shareable=True))
    )
    await use(cluster, claim("joins", request(allocations=(1, None))))
    await cluster.refused("joins", "no device has at least 1 allocations")
    await use(cluster, claim("unused", request(allocations=(None, 0))))
    assert await given(cluster, "unused") == ["a"]
    assert await given(cluster, "joins") == ["a"]
    await use(cluster, claim("unused-2", request(allocations=(0, 0))))
    assert await given(cluster, "unused-2") == ["b"]
    await use(cluster, claim("unused-3", request(allocations=(0, 0))))
    await cluster.refused("unused-3", "no device has at most 0 allocations")
    await cluster.delete_pod("unused-2")
    assert await given(cluster, "unused-3") == ["b"]


@in_running_cluster_with(PREFERENCE)
async def test_F7_the_gate_is_switched_off_and_on(cluster: RunningCluster) -> None:
    spread = device_class("spread", prefer=MOST_AVAILABLE)
    await cluster.create(device_class(), spread, node("node-a"), nics(a="4", b="8"))
    two = {"bandwidth": "2"}
    await cluster.create(claim("prefers", request(capacity=two, prefer=MOST_AVAILABLE)))
    await cluster.create(claim("of-class", request(capacity=two, device_class="spread")))
    await cluster.restart_all()
    await cluster.create(claim("dropped", request(capacity=two, prefer=MOST_AVAILABLE)))
    (asked,) = (await cluster.client.get(ResourceClaim, "dropped")).spec.devices.requests or ()
    assert asked.exactly is not None
    assert asked.exactly.device_preference is None
    assert (await cluster.client.get(DeviceClass, "spread")).spec.device_preference == MOST_AVAILABLE
    for name in ("prefers", "of-class", "dropped"):
        await cluster.create(our_pod(name, name))
    await cluster.refused("prefers", "DRADevicePreference is off")
    await cluster.refused("of-class", "DRADevicePreference is off")
    assert await given(cluster, "dropped") == ["a=2"]
    await cluster.restart_all(PREFERENCE)
    assert await given(cluster, "prefers") == ["b=2"]
    assert await given(cluster, "of-class") == ["b=2"]


# --- F8 ----------------------------------------------------------------------------------------------------------------


@in_running_cluster_with("DRADistinctAttributes=true")
async def test_F8_devices_differ_in_one_of_several_attributes(cluster: RunningCluster) -> None:
    devices = [
        device(name, attributes={"numa": numa, "port": port})
        for name, numa, port in (("a", 0, 1), ("b", 0, 1), ("c", 0, 2), ("d", 1, 2))
    ]
    await cluster.create(device_class(), node("node-a"), published(*devices))
    constraint = distinct_in_any([f"{DRIVER}/numa", f"{DRIVER}/port"])
    await use(cluster, claim("three", request("r", count=3), constraints=[constraint]))
    assert await given(cluster, "three") == ["a", "c", "d"]
    await use(cluster, claim("four", request("r", count=4), constraints=[constraint]))
    await cluster.refused("four", "only 1 of 4 devices")
    with pytest.raises(ApiError, match="distinctAttributes"):
        await cluster.create(claim("one", request(), constraints=[distinct_in_any([f"{DRIVER}/numa"])]))


@in_running_cluster
async def test_F8_a_scheduler_without_the_feature_refuses_the_claim(cluster: RunningCluster) -> None:
    await cluster.serve("DRADistinctAttributes=true")
    devices = [device(name, attributes={"numa": 0, "port": port}) for name, port in (("a", 1), ("b", 2))]
    await cluster.create(device_class(), node("node-a"), published(*devices))
    constraint = distinct_in_any([f"{DRIVER}/numa", f"{DRIVER}/port"])
    await use(cluster, claim("two", request("r", count=2), constraints=[constraint]))
    await cluster.refused("two", "DRADistinctAttributes is off")
    await cluster.schedule("DRADistinctAttributes=true")
    assert await given(cluster, "two") == ["a", "b"]


@in_running_cluster_with(ALL_ALPHA)
async def test_F2_F7_F8_together(cluster: RunningCluster) -> None:
    devices = [
        device(name, shareable=True, capacity={"bandwidth": amount}, attributes={"numa": numa, "port": port})
        for name, amount, numa, port in (("a", "4", 0, 1), ("b", "6", 0, 1), ("c", "5", 0, 2))
    ]
    await cluster.create(device_class(), node("node-a"), published(*devices))
    constraint = distinct_in_any([f"{DRIVER}/numa", f"{DRIVER}/port"])
    asked = request(
        "r", together=True, count=8, capacity={"bandwidth": "8"}, prefer=MOST_AVAILABLE, allocations=(None, 1)
    )
    await use(cluster, claim("c", asked, constraints=[constraint]))
    assert await given(cluster, "c") == ["b=6", "c=2"]
