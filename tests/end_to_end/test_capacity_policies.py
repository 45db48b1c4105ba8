"""Limits, strategies, named policies, capacities that are not consumed and remainders, over HTTP.

docs/quality/parity.md says what the ids in the test names are.
"""

from __future__ import annotations

import msgspec
import pytest

from dralloc.kube.codec import encode
from dralloc.kube.device_parts import capacity, request_policy
from dralloc.kube.resource_v1 import Device, DeviceRequestAllocationResult, ResourceClaim, ResourceSlice
from dralloc.primitives.errors import Conflict
from dralloc.testing.builders import (
    allocation,
    alternative,
    claim,
    device,
    device_class,
    first_available,
    held,
    request,
    resource_slice,
)
from tests.support.running_cluster import RunningCluster, in_running_cluster_with
from tests.support.scheduled_cluster import node, our_pod

pytestmark = pytest.mark.slow

GATES = (
    "DRACapacityLimits=true,DRACapacityStrategies=true,DRANamedRequestPolicies=true,DRAZeroConsumption=true,"
    "DRACapacityRemainder=true"
)


def published(*devices: Device) -> ResourceSlice:
    return resource_slice("nics", *devices, node_name="node-a", pool="node-a")


def nic(strategy: str) -> ResourceSlice:
    bandwidth = capacity("10", default="2", strategy=strategy)
    return published(device("nic", shareable=True, capacity={"bandwidth": bandwidth}))


async def create_user(
    cluster: RunningCluster, name: str, bandwidth: str | None = None, limit: str | None = None
) -> None:
    """Creates a pod and a claim of the same name that requests the bandwidth."""
    asked = request(
        capacity={"bandwidth": bandwidth} if bandwidth else None, limits={"bandwidth": limit} if limit else None
    )
    await cluster.create(claim(name, asked), our_pod(name, name))


async def result_of(cluster: RunningCluster, name: str) -> DeviceRequestAllocationResult:
    """The result of the claim of a pod that runs."""
    await cluster.running(name)
    allocation = (await cluster.client.get(ResourceClaim, name)).status.allocation
    assert allocation is not None
    (result,) = allocation.devices.results
    return result


async def consumed(cluster: RunningCluster, name: str) -> dict[str, str]:
    return {key: str(amount) for key, amount in (await result_of(cluster, name)).consumed_capacity.items()}


async def release(cluster: RunningCluster, name: str) -> None:
    await cluster.delete_pod(name)
    await cluster.claim_where(name, lambda stored: stored.status.allocation is None)


async def write_allocation(cluster: RunningCluster, name: str, result: DeviceRequestAllocationResult) -> None:
    status = {"allocation": msgspec.json.decode(encode(allocation(result)))}
    await cluster.client.patch(ResourceClaim, name, {"status": status}, subresource="status")


@in_running_cluster_with(GATES)
async def test_F1_a_limit_is_passed_on_and_not_accounted(cluster: RunningCluster) -> None:
    await cluster.create(device_class(), node("node-a"), nic(""))
    for name in ("a", "b", "c"):
        await create_user(cluster, name, "3", limit="10")
        result = await result_of(cluster, name)
        assert str(result.consumed_capacity["bandwidth"]) == "3"
        assert str(result.capacity_limits["bandwidth"]) == "10"
    await create_user(cluster, "too-much", "1", limit="11")
    await cluster.refused("too-much", "insufficient bandwidth: limit 11, the largest device has 10")
    await create_user(cluster, "limit-alone", limit="2")
    await cluster.refused("limit-alone", "insufficient bandwidth: requested 2, available 1")
    await release(cluster, "a")
    assert await consumed(cluster, "limit-alone") == {"bandwidth": "2"}


@in_running_cluster_with(GATES)
async def test_F1_limits_of_alternatives(cluster: RunningCluster) -> None:
    await cluster.create(device_class(), node("node-a"), nic(""))
    fast = alternative("fast", capacity={"bandwidth": "2"}, limits={"bandwidth": "20"})
    slow = alternative("slow", capacity={"bandwidth": "2"}, limits={"bandwidth": "8"})
    await cluster.create(claim("c", first_available("r", fast, slow)), our_pod("c", "c"))
    result = await result_of(cluster, "c")
    assert result.request == "r/slow"
    assert str(result.capacity_limits["bandwidth"]) == "8"


@in_running_cluster_with(GATES)
async def test_F3_the_first_user_decides_whether_a_capacity_is_consumable(cluster: RunningCluster) -> None:
    await cluster.create(device_class(), node("node-a"), nic("ConsumedOrNever"))
    await create_user(cluster, "first")
    assert await consumed(cluster, "first") == {}
    await create_user(cluster, "second")
    assert await consumed(cluster, "second") == {}
    await create_user(cluster, "guaranteed", "4")
    await cluster.refused("guaranteed", "bandwidth is not consumable while shares without a request for it are in use")
    # The state is that of the living shares, in a new scheduler, too.
    await cluster.schedule(GATES)
    await release(cluster, "first")
    await cluster.refused("guaranteed", "bandwidth is not consumable")
    await release(cluster, "second")
    assert await consumed(cluster, "guaranteed") == {"bandwidth": "4"}
    await cluster.schedule(GATES)
    await create_user(cluster, "follower")
    assert await consumed(cluster, "follower") == {"bandwidth": "2"}
    await create_user(cluster, "much", "5")
    await cluster.refused("much", "insufficient bandwidth: requested 5, available 4")


@in_running_cluster_with(GATES)
async def test_F3_the_first_user_without_a_request_blocks_the_device(cluster: RunningCluster) -> None:
    await cluster.create(device_class(), node("node-a"), nic("BlockOrShare"))
    await create_user(cluster, "alone")
    assert await consumed(cluster, "alone") == {"bandwidth": "10"}
    await create_user(cluster, "asking", "3")
    await cluster.refused("asking", "insufficient bandwidth: requested 3, available 0")
    await cluster.schedule(GATES)
    await release(cluster, "alone")
    assert await consumed(cluster, "asking") == {"bandwidth": "3"}
    await create_user(cluster, "follower")
    assert await consumed(cluster, "follower") == {"bandwidth": "2"}


@in_running_cluster_with(GATES)
async def test_F3_a_pod_that_fits_beside_the_share_of_another_claim_is_tried_again(cluster: RunningCluster) -> None:
    """Alone, its request without an amount decides that the other one cannot be served."""
    await cluster.create(device_class(), node("node-a"), nic("ConsumedOrNever"))
    both = claim("both", request("any"), request("some", capacity={"bandwidth": "3"}))
    await cluster.create(both, our_pod("both", "both"))
    await cluster.refused("both", "requests any and some fit separately, but not together")
    await create_user(cluster, "first", "1")
    await cluster.running("both")
    allocated = (await cluster.client.get(ResourceClaim, "both")).status.allocation
    assert allocated is not None
    amounts = [str(result.consumed_capacity["bandwidth"]) for result in allocated.devices.results]
    assert amounts == ["2", "3"]


@in_running_cluster_with(GATES)
async def test_F3_the_server_refuses_shares_that_divide_a_capacity(cluster: RunningCluster) -> None:
    """What another scheduler writes that does not know of the first share yet."""
    await cluster.create(device_class(), node("node-a"), nic("ConsumedOrNever"))
    await create_user(cluster, "first")
    await cluster.running("first")
    await cluster.create(claim("other", request(capacity={"bandwidth": "4"})))
    share = held("nic", pool="node-a", share_id="11111111-2222-4333-8444-555555555555", consumed={"bandwidth": "4"})
    with pytest.raises(Conflict, match="consumed by all shares or by none, and shares without a request"):
        await write_allocation(cluster, "other", share)
    without = held("nic", pool="node-a", share_id="11111111-2222-4333-8444-555555555555")
    await write_allocation(cluster, "other", without)


@in_running_cluster_with(GATES)
async def test_F4_a_policy_by_name_rounds_every_capacity_that_names_it(cluster: RunningCluster) -> None:
    capacities = {"bandwidth": capacity("10", policy_name="steps"), "slots": capacity("8", policy_name="steps")}
    card = device(
        "nic",
        shareable=True,
        capacity=capacities,
        policies={"steps": request_policy(default="2", minimum="2", step="2")},
    )
    await cluster.create(device_class(), node("node-a"), published(card))
    await create_user(cluster, "a", "3")
    assert await consumed(cluster, "a") == {"bandwidth": "4", "slots": "2"}


@in_running_cluster_with(GATES)
async def test_F5_a_capacity_that_is_not_consumed_is_a_condition(cluster: RunningCluster) -> None:
    """Use cases 5 and 6: at least so much bandwidth, and a limited number of users."""
    card = device(
        "nic",
        shareable=True,
        capacity={
            "bandwidth": capacity("10", consumed=False),
            "users": capacity("2", default="1", valid=("1",)),
        },
    )
    await cluster.create(device_class(), node("node-a"), published(card))
    for name in ("a", "b"):
        await create_user(cluster, name, "10")
        assert await consumed(cluster, name) == {"bandwidth": "0", "users": "1"}
    await create_user(cluster, "c", "10")
    await cluster.refused("c", "insufficient users: needs 1, available 0")
    await create_user(cluster, "d", "11")
    await cluster.refused("d", "insufficient bandwidth: requested 11, the largest device has 10")


@in_running_cluster_with(GATES)
async def test_F6_the_last_share_gets_the_rest(cluster: RunningCluster) -> None:
    card = device("gpu", shareable=True, capacity={"core": "100", "memory": "80"}, remainder="GiveToLast")
    await cluster.create(device_class(), node("node-a"), published(card))
    for name, core, memory, want in (("a", "80", "40", "40"), ("last", "20", "20", "40")):
        await cluster.create(claim(name, request(capacity={"core": core, "memory": memory})), our_pod(name, name))
        assert await consumed(cluster, name) == {"core": core, "memory": want}


@in_running_cluster_with(GATES)
async def test_F1_to_F6_a_scheduler_without_the_features_leaves_devices_and_claims_alone(
    cluster: RunningCluster,
) -> None:
    await cluster.create(device_class(), node("node-a"), nic("ConsumedOrNever"))
    await create_user(cluster, "first")
    await cluster.running("first")
    await cluster.schedule()
    await create_user(cluster, "plain")
    await cluster.refused("plain", "devices need the feature DRACapacityStrategies, which is off")
    await create_user(cluster, "limited", "1", limit="2")
    await cluster.refused("limited", "has capacity limits, but the feature DRACapacityLimits is off")
    await cluster.schedule(GATES)
    assert await consumed(cluster, "plain") == {}
