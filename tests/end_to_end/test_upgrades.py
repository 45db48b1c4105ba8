"""Upgrade and downgrade paths of the KEPs: features are switched off and on while pods run, everywhere or in one component."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from dralloc.kube.device_parts import capacity
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import ConsumerReference, ResourceClaim, ResourceClaimTemplate, ResourceSlice
from dralloc.primitives.errors import Invalid
from dralloc.testing.builders import alternative, claim, device, device_class, first_available, request, resource_slice
from tests.support.running_cluster import RunningCluster, in_running_cluster
from tests.support.scheduled_cluster import node, our_pod
from tests.support.workloads import claim_template, pod, template

pytestmark = pytest.mark.slow


def network_card() -> ResourceSlice:
    bandwidth = capacity("10G", default="1G", minimum="1G")
    return resource_slice("nics", device("nic", shareable=True, capacity={"bandwidth": bandwidth}), node_name="node-a")


def of_bandwidth(name: str, amount: str) -> dict[str, object]:
    return claim_template(name, request(capacity={"bandwidth": amount}))


def templated(name: str, source: str) -> dict[str, object]:
    return pod(name, {"nic": template(source)}, scheduler="dralloc")


def consumed(stored: ResourceClaim) -> str:
    assert stored.status.allocation is not None
    (result,) = stored.status.allocation.devices.results
    return str(result.consumed_capacity["bandwidth"])


@in_running_cluster
async def test_KEP_5075_the_feature_is_switched_off_and_on_while_a_pod_holds_half_of_a_device(
    cluster: RunningCluster,
) -> None:
    await cluster.create(
        device_class(), node("node-a"), network_card(), of_bandwidth("five", "5G"), of_bandwidth("two", "2G")
    )
    await cluster.create(templated("five", "five"))
    await cluster.running("five")
    before = await cluster.claim_of("five", "nic")
    assert consumed(before) == "5G"
    await cluster.create(claim("asked-before", request(capacity={"bandwidth": "2G"})))

    await cluster.restart_all("DRAConsumableCapacity=false")
    await cluster.create(templated("two", "two"), our_pod("asked-before", "asked-before"))
    assert (await cluster.refused("two")).reason == "Unschedulable"
    await cluster.refused("asked-before", "DRAConsumableCapacity is off")
    await cluster.create(of_bandwidth("new", "1G"))
    (asked,) = (await cluster.client.get(ResourceClaimTemplate, "new")).spec.spec.devices.requests or ()
    assert asked.exactly is not None
    assert asked.exactly.capacity is None
    assert await cluster.claim_of("five", "nic") == before
    for name in ("two", "asked-before"):
        await cluster.delete_pod(name)

    await cluster.restart_all()
    await cluster.create(of_bandwidth("eight", "8G"), templated("eight", "eight"), templated("two", "two"))
    await cluster.running("two")
    assert consumed(await cluster.claim_of("two", "nic")) == "2G"
    await cluster.refused("eight", "0/1 nodes are available")
    assert await cluster.claim_of("five", "nic") == before
    assert (await cluster.client.get(Pod, "five")).status.phase == "Running"


@in_running_cluster
async def test_KEP_5075_a_scheduler_without_the_feature_adds_no_share(cluster: RunningCluster) -> None:
    """Version skew: the server has the feature and the scheduler does not."""
    await cluster.create(device_class(), node("node-a"), network_card(), of_bandwidth("five", "5G"))
    await cluster.create(templated("five", "five"))
    await cluster.running("five")
    await cluster.schedule("DRAConsumableCapacity=false")
    await cluster.create(claim("plain", request()), our_pod("plain", "plain"))
    await cluster.create(claim("asks", request(capacity={"bandwidth": "1G"})), our_pod("asks", "asks"))
    await cluster.refused("plain", "0/1 nodes are available")
    await cluster.refused("asks", "DRAConsumableCapacity is off")
    await cluster.schedule()
    await cluster.running("plain")
    await cluster.running("asks")


def listed(name: str) -> ResourceClaim:
    return claim(name, first_available("gpu", alternative("two", count=2), alternative("one")))


@in_running_cluster
async def test_KEP_4816_a_scheduler_without_the_feature_rejects_alternatives(
    cluster: RunningCluster,
) -> None:
    gpus = resource_slice("gpus", *(device(f"gpu-{number}") for number in range(2)), node_name="node-a")
    await cluster.create(device_class(), node("node-a"), gpus)
    await cluster.schedule("DRAPrioritizedList=false")
    await cluster.create(listed("list"), our_pod("list", "list"))
    await cluster.refused("list", "DRAPrioritizedList is off")
    await cluster.create(claim("plain", request()), our_pod("plain", "plain"))
    await cluster.running("plain")
    await cluster.schedule()
    await cluster.running("list")
    allocation = (await cluster.claim("list")).status.allocation
    assert allocation is not None
    assert [result.request for result in allocation.devices.results] == ["gpu/one"]


@in_running_cluster
async def test_KEP_4816_a_server_without_the_feature_keeps_existing_lists_and_rejects_new_ones(
    cluster: RunningCluster,
) -> None:
    gpus = resource_slice("gpus", *(device(f"gpu-{number}") for number in range(4)), node_name="node-a")
    await cluster.create(
        device_class(), node("node-a"), gpus, listed("running"), listed("waiting"), our_pod("running", "running")
    )
    await cluster.running("running")
    await cluster.serve("DRAPrioritizedList=false")
    with pytest.raises(Invalid):
        await cluster.create(listed("new"))
    await cluster.client.patch(ResourceClaim, "waiting", {"metadata": {"labels": {"changed": "yes"}}})
    (kept,) = (await cluster.claim("waiting")).spec.devices.requests or ()
    assert [entry.name for entry in kept.first_available] == ["two", "one"]
    assert (await cluster.client.get(Pod, "running")).status.phase == "Running"
    await cluster.create(our_pod("waiting", "waiting"))
    await cluster.running("waiting")
    await cluster.serve()
    await cluster.create(listed("new"))


@in_running_cluster
async def test_KEP_5194_the_recipe_for_turning_the_feature_off(cluster: RunningCluster) -> None:
    """docs/operations.md: references of pods replace that of their workload before the gate is turned off."""
    workload = ConsumerReference(api_group="example.com", resource="trainings", name="training", uid="uid-of-training")
    training = claim("training", request())
    await cluster.create(device_class(), node("node-a"), resource_slice("gpus", device("gpu"), node_name="node-a"))
    await cluster.create(replace(training, spec=replace(training.spec, reserved_for=workload)))
    for name in ("one", "two"):
        await cluster.create(our_pod(name, "training"))
        await cluster.running(name)
    found = await cluster.claim("training")
    assert found.status.allocation is not None
    assert found.status.allocation.reserved_for_any_pod, "step 2 of the recipe finds the claim"
    assert found.status.reserved_for == (workload,)

    users = [
        {"resource": "pods", "name": each.metadata.name, "uid": each.metadata.uid}
        for each in await cluster.client.list(Pod)
        if any(entry.resource_claim_name == "training" for entry in each.spec.resource_claims)
    ]
    assert len(users) == 2
    await cluster.client.patch(ResourceClaim, "training", {"status": {"reservedFor": users}}, subresource="status")
    await cluster.restart_all("DRAReservedForWorkloads=false")

    await cluster.create(our_pod("late", "training"))
    await cluster.running("late")
    listed_now = (await cluster.claim("training")).status.reserved_for
    assert sorted(user.name for user in listed_now) == ["late", "one", "two"]
    for name in ("one", "two", "late"):
        await cluster.delete_pod(name)
    await cluster.claim_where("training", lambda found: found.status.allocation is None)
