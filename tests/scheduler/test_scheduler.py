"""The whole scheduler against a real API server in virtual time: the behaviours that users rely on."""

from __future__ import annotations

from msgspec.structs import replace

from dralloc.kube.core_v1 import Node
from dralloc.kube.device_parts import capacity
from dralloc.kube.meta_v1 import OwnerReference
from dralloc.kube.pod_claims import CLAIM_FINALIZER
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import DeviceClass, ResourceClaim, ResourceSlice
from dralloc.testing.builders import (
    alternative,
    claim,
    device,
    device_class,
    distinct,
    first_available,
    request,
    resource_slice,
    taint,
    taint_rule,
    toleration,
)
from tests.support.scheduled_cluster import ScheduledCluster, gpus, in_cluster, node, our_pod
from tests.support.workloads import existing, pod, template


def shared_memory(size: str = "8Gi") -> ResourceSlice:
    shared = device("gpu-0", shareable=True, capacity={"memory": capacity(size, default="1Gi", minimum="1Gi")})
    return resource_slice("gpus-of-node-a", shared, pool="node-a", node_name="node-a")


async def record(cluster: ScheduledCluster, pod_name: str, claim_name: str) -> None:
    """Records in the pod's status that the claim is for its entry."""
    statuses = {"status": {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": claim_name}]}}
    await cluster.client.patch(Pod, pod_name, statuses, subresource="status")


async def make_for(cluster: ScheduledCluster, pod_name: str, claim_name: str) -> None:
    """Creates a claim that belongs to the pod."""
    owned = await cluster.client.get(Pod, pod_name)
    made = claim(claim_name, request())
    owner = OwnerReference(api_version="v1", kind="Pod", name=pod_name, uid=owned.metadata.uid, controller=True)
    await cluster.create(replace(made, metadata=replace(made.metadata, owner_references=(owner,))))
    await record(cluster, pod_name, claim_name)


def wants_memory(name: str, amount: str) -> ResourceClaim:
    return claim(name, request(capacity={"memory": amount}))


# --- One pod, one claim -----------------------------------------------------------------------------------------


@in_cluster()
async def test_a_pod_gets_a_node_a_device_and_a_reservation(cluster: ScheduledCluster) -> None:
    await cluster.create(device_class(), node("node-a"), gpus("node-a"), claim("c", request()), our_pod("p", "c"))
    await cluster.settle()
    assert await cluster.node_of("p") == "node-a"
    assert await cluster.devices_of("c") == ["gpu-0"]
    stored = await cluster.claim("c")
    assert [(entry.resource, entry.name) for entry in stored.status.reserved_for] == [("pods", "p")]
    assert CLAIM_FINALIZER in stored.metadata.finalizers
    assert [event.reason for event in await cluster.events_of("p")] == ["Scheduled"]
    assert (await cluster.condition("p")).status == "True"


@in_cluster()
async def test_a_claim_that_a_pod_names_twice_is_reserved_once(cluster: ScheduledCluster) -> None:
    twice = pod("p", {"one": existing("c"), "two": existing("c")}, scheduler="dralloc")
    await cluster.create(device_class(), node("node-a"), gpus("node-a"), claim("c", request()), twice)
    await cluster.settle()
    assert await cluster.node_of("p") == "node-a"
    assert await cluster.devices_of("c") == ["gpu-0"]
    assert [entry.name for entry in (await cluster.claim("c")).status.reserved_for] == ["p"]


@in_cluster()
async def test_pods_without_claims_are_scheduled_and_pods_of_other_schedulers_are_not(
    cluster: ScheduledCluster,
) -> None:
    gated = our_pod("gated")
    gated["spec"]["schedulingGates"] = [{"name": "example.com/wait"}]
    await cluster.create(node("node-a"), our_pod("ours"), pod("theirs", scheduler="someone-else"), gated)
    await cluster.settle()
    assert [await cluster.node_of(name) for name in ("ours", "theirs", "gated")] == ["node-a", "", ""]
    await cluster.client.patch(Pod, "gated", {"spec": {"schedulingGates": None}})
    await cluster.settle()
    assert await cluster.node_of("gated") == "node-a"


@in_cluster()
async def test_a_pod_created_before_its_devices_runs_once_they_are_published(cluster: ScheduledCluster) -> None:
    await cluster.create(device_class(), node("node-a"), node("node-b"), claim("c", request()), our_pod("p", "c"))
    await cluster.settle()
    condition = await cluster.condition("p")
    assert (condition.status, condition.reason) == ("False", "Unschedulable")
    assert condition.message.startswith("0/2 nodes are available: 2 nodes: ")
    await cluster.create(gpus("node-b"))
    await cluster.settle(10)
    assert await cluster.node_of("p") == "node-b"


@in_cluster()
async def test_creating_a_missing_device_class_unblocks_the_pod(cluster: ScheduledCluster) -> None:
    await cluster.create(node("node-a"), gpus("node-a"), claim("c", request("gpu")), our_pod("p", "c"))
    await cluster.settle()
    assert "request gpu: device class gpu does not exist" in (await cluster.condition("p")).message
    await cluster.create(device_class())
    await cluster.settle(10)
    assert await cluster.node_of("p") == "node-a"


@in_cluster()
async def test_changing_a_device_class_that_selects_nothing_unblocks_the_pod(cluster: ScheduledCluster) -> None:
    await cluster.create(device_class(where="false"), node("node-a"), gpus("node-a"), claim("c", request()))
    await cluster.create(our_pod("p", "c"))
    await cluster.settle()
    assert await cluster.node_of("p") == ""
    await cluster.client.patch(DeviceClass, "gpu", {"spec": {"selectors": None}})
    await cluster.settle(10)
    assert await cluster.node_of("p") == "node-a"


@in_cluster()
async def test_a_missing_claim_is_reported_only_after_a_delay(cluster: ScheduledCluster) -> None:
    await cluster.create(device_class(), node("node-a"), gpus("node-a", 2), our_pod("p", "c"), our_pod("q", "never"))
    await cluster.settle(2)
    assert (await cluster.client.get(Pod, "p")).status.conditions == ()
    await cluster.create(claim("c", request()))
    await cluster.settle(0.5)
    assert await cluster.node_of("p") == "node-a"
    await cluster.settle(5)
    assert (await cluster.condition("q")).message == "claim default/never does not exist"


@in_cluster()
async def test_a_claim_from_a_template_must_belong_to_the_pod(cluster: ScheduledCluster) -> None:
    await cluster.create(device_class(), node("node-a"), gpus("node-a"), claim("foreign", request()))
    await cluster.create(pod("p", {"gpu": template("t")}, scheduler="dralloc"))
    await cluster.settle()
    assert (await cluster.client.get(Pod, "p")).status.conditions == ()
    await record(cluster, "p", "foreign")
    await cluster.settle()
    assert (await cluster.condition("p")).message == "claim default/foreign was not created for this pod"
    await make_for(cluster, "p", "own")
    await cluster.settle()
    assert await cluster.node_of("p") == "node-a"


@in_cluster()
async def test_a_pod_continues_with_a_replaced_claim_from_its_template(
    cluster: ScheduledCluster,
) -> None:
    await cluster.create(device_class(), node("node-a"), pod("p", {"gpu": template("t")}, scheduler="dralloc"))
    await make_for(cluster, "p", "old")
    await cluster.settle()
    await cluster.client.delete(ResourceClaim, "old")
    await cluster.create(gpus("node-a"))
    await cluster.settle(10)
    assert (await cluster.condition("p")).message == "claim default/old does not exist"
    await make_for(cluster, "p", "new")
    await cluster.settle()
    assert await cluster.node_of("p") == "node-a"


@in_cluster()
async def test_an_entry_that_needs_no_claim_does_not_block_the_pod(cluster: ScheduledCluster) -> None:
    await cluster.create(node("node-a"), pod("p", {"gpu": template("t")}, scheduler="dralloc"))
    statuses = {"status": {"resourceClaimStatuses": [{"name": "gpu"}]}}
    await cluster.client.patch(Pod, "p", statuses, subresource="status")
    await cluster.settle()
    assert await cluster.node_of("p") == "node-a"


@in_cluster()
async def test_a_claim_that_is_being_deleted_is_not_used(cluster: ScheduledCluster) -> None:
    await cluster.create(device_class(), node("node-a"), gpus("node-a"), claim("c", request()))
    await cluster.client.patch(ResourceClaim, "c", {"metadata": {"finalizers": ["example.com/keep"]}})
    await cluster.client.delete(ResourceClaim, "c")
    await cluster.create(our_pod("p", "c"))
    await cluster.settle()
    assert (await cluster.condition("p")).message == "claim default/c is being deleted"


@in_cluster()
async def test_pods_of_groups_are_placed_by_themselves_while_groups_are_off(cluster: ScheduledCluster) -> None:
    grouped = our_pod("p")
    grouped["spec"]["schedulingGroup"] = {"podGroupName": "group"}
    await cluster.create(node("node-a"), grouped)
    await cluster.settle()
    assert await cluster.node_of("p") == "node-a"


@in_cluster()
async def test_a_selector_error_on_one_node_rejects_the_pod_on_all_nodes(cluster: ScheduledCluster) -> None:
    where = 'device.attributes["gpu.example.com"].model == "a"'
    await cluster.create(device_class(where=where), node("node-a"), node("node-b"), gpus("node-a"))
    await cluster.create(
        gpus("node-b", attributes={"gpu.example.com/model": "a"}), claim("c", request()), our_pod("p", "c")
    )
    await cluster.settle()
    condition = await cluster.condition("p")
    assert (condition.reason, await cluster.node_of("p")) == ("SchedulerError", "")
    assert "claim default/c" in condition.message
    assert "no such key: model" in condition.message


@in_cluster()
async def test_a_device_with_a_negative_default_is_not_used_and_stops_no_other(cluster: ScheduledCluster) -> None:
    faulty = device("a", capacity={"memory": capacity("8Gi", default="-1")}, shareable=True)
    sound = device("b", capacity={"memory": "8Gi"}, shareable=True)
    await cluster.create(device_class(), node("node-a"), resource_slice("s", faulty, sound, node_name="node-a"))
    await cluster.create(claim("c", request()), our_pod("p", "c"), claim("d", request(count=2)), our_pod("q", "d"))
    await cluster.settle()
    allocation = (await cluster.claim("c")).status.allocation
    assert allocation is not None
    assert [found.device for found in allocation.devices.results] == ["b"]
    assert (await cluster.condition("q")).reason == "Unschedulable"


# --- Capacity, alternatives, taints -----------------------------------------------------------------------------


@in_cluster()
async def test_a_pod_waits_until_enough_capacity_is_released(cluster: ScheduledCluster) -> None:
    await cluster.create(device_class(), node("node-a"), shared_memory())
    for name, amount in (("one", "4Gi"), ("two", "8Gi"), ("three", "4Gi")):
        await cluster.create(wants_memory(name, amount), our_pod(name, name))
        await cluster.settle()
    assert [await cluster.node_of(name) for name in ("one", "two", "three")] == ["node-a", "", "node-a"]
    for name in ("one", "three"):
        await cluster.remove_pod(name)
        await cluster.release(name)
    await cluster.settle(15)
    assert await cluster.node_of("two") == "node-a"
    allocation = (await cluster.claim("two")).status.allocation
    assert allocation is not None
    assert str(allocation.devices.results[0].consumed_capacity["memory"]) == "8Gi"
    assert allocation.devices.results[0].share_id


@in_cluster()
async def test_each_pod_gets_two_distinct_shares_until_the_node_is_full(cluster: ScheduledCluster) -> None:
    nics = [
        device(f"nic-{n}", shareable=True, attributes={"index": n}, capacity={"bandwidth": "10G"}) for n in range(4)
    ]
    await cluster.create(device_class(), node("node-a"))
    await cluster.create(resource_slice("nics", *nics, pool="node-a", node_name="node-a"))
    pair = request(count=2, capacity={"bandwidth": "2500M"})
    for number in range(9):
        name = f"p{number}"
        await cluster.create(claim(name, pair, constraints=[distinct("gpu.example.com/index")]), our_pod(name, name))
    await cluster.settle(10)
    assert [bool(await cluster.node_of(f"p{number}")) for number in range(9)].count(True) == 8
    used = [name for number in range(9) for name in await cluster.devices_of(f"p{number}")]
    assert sorted(used) == sorted(4 * ["nic-0", "nic-1", "nic-2", "nic-3"])


@in_cluster()
async def test_the_first_alternative_that_fits_is_allocated(cluster: ScheduledCluster) -> None:
    await cluster.create(device_class(), node("node-a"), gpus("node-a", 2))
    wanted = first_available("gpus", alternative("three", count=3), alternative("two", count=2), alternative("one"))
    await cluster.create(claim("c", wanted), our_pod("p", "c"))
    await cluster.settle()
    allocation = (await cluster.claim("c")).status.allocation
    assert allocation is not None
    assert [result.request for result in allocation.devices.results] == ["gpus/two", "gpus/two"]


@in_cluster()
async def test_the_node_with_the_best_alternatives_wins(cluster: ScheduledCluster) -> None:
    await cluster.create(device_class())
    for rank in range(8):
        name = f"node-{rank}"
        await cluster.create(node(name), gpus(name, attributes={"gpu.example.com/rank": (rank + 3) % 8}))
    wanted = [
        alternative(f"rank-{rank}", where=f'device.attributes["gpu.example.com"].rank == {rank}') for rank in range(8)
    ]
    await cluster.create(claim("c", first_available("gpu", *wanted)), our_pod("p", "c"))
    await cluster.settle()
    assert await cluster.node_of("p") == "node-5"


@in_cluster()
async def test_a_taint_rule_excludes_devices_from_claims_without_a_toleration(cluster: ScheduledCluster) -> None:
    await cluster.create(device_class(), node("node-a"), gpus("node-a", 2), taint_rule("broken", taint("broken")))
    await cluster.create(claim("c", request()), our_pod("p", "c"))
    await cluster.create(claim("d", request(tolerations=[toleration("broken")])), our_pod("q", "d"))
    await cluster.settle()
    assert [await cluster.node_of(name) for name in ("p", "q")] == ["", "node-a"]


# --- Features off and on ----------------------------------------------------------------------------------------


@in_cluster()
async def test_capacity_with_the_feature_off_and_on_again(cluster: ScheduledCluster) -> None:
    """The upgrade path of KEP-5075: running pods stay, new pods wait with a message, and usage is right afterwards."""
    await cluster.create(device_class(), node("node-a"), shared_memory("10Gi"))
    await cluster.create(wants_memory("five", "5Gi"), our_pod("five", "five"))
    await cluster.settle()
    await cluster.restart("DRAConsumableCapacity=false,DRAFractionalCapacityRange=false")
    await cluster.create(
        wants_memory("two", "2Gi"), our_pod("two", "two"), claim("any", request()), our_pod("any", "any")
    )
    await cluster.settle()
    assert [await cluster.node_of(name) for name in ("five", "two", "any")] == ["node-a", "", ""]
    assert "DRAConsumableCapacity is off" in (await cluster.condition("two")).message
    await cluster.restart()
    await cluster.create(wants_memory("eight", "8Gi"), our_pod("eight", "eight"))
    await cluster.settle(10)
    assert [await cluster.node_of(name) for name in ("five", "two", "any", "eight")] == [
        "node-a",
        "node-a",
        "node-a",
        "",
    ]


@in_cluster("DRAPrioritizedList=false")
async def test_alternatives_are_rejected_while_the_feature_is_off(cluster: ScheduledCluster) -> None:
    await cluster.create(device_class(), node("node-a"), gpus("node-a"))
    await cluster.create(claim("c", first_available("gpu", alternative("any"))), our_pod("p", "c"))
    await cluster.settle()
    assert "DRAPrioritizedList is off" in (await cluster.condition("p")).message
    await cluster.restart()
    await cluster.settle()
    assert await cluster.node_of("p") == "node-a"


# --- Node resources ---------------------------------------------------------------------------------------------


@in_cluster()
async def test_a_pod_is_scheduled_when_another_pod_ends_or_a_node_is_added(cluster: ScheduledCluster) -> None:
    await cluster.create(node("node-a", cpu="1"))
    await cluster.create(*(our_pod(name, requests={"cpu": "1"}) for name in ("p", "q", "r")))
    await cluster.settle()
    placed = [name for name in ("p", "q", "r") if await cluster.node_of(name)]
    assert len(placed) == 1
    waiting = next(name for name in ("p", "q", "r") if name not in placed)
    assert (await cluster.condition(waiting)).message == "0/1 nodes are available: 1 node: insufficient cpu"
    await cluster.remove_pod(placed[0])
    await cluster.settle(10)
    assert sum([bool(await cluster.node_of(name)) for name in ("p", "q", "r") if name not in placed]) == 1
    await cluster.create(node("node-b", cpu="1"))
    await cluster.settle(10)
    assert all([await cluster.node_of(name) for name in ("p", "q", "r") if name not in placed])


@in_cluster()
async def test_an_uncordoned_node_is_used_again(cluster: ScheduledCluster) -> None:
    await cluster.create(node("node-a", unschedulable=True), our_pod("p"))
    await cluster.settle()
    assert (await cluster.condition("p")).message == "0/1 nodes are available: 1 node: unschedulable"
    await cluster.client.patch(Node, "node-a", {"spec": {"unschedulable": None}})
    await cluster.settle(10)
    assert await cluster.node_of("p") == "node-a"


@in_cluster()
async def test_the_condition_of_a_waiting_pod_is_written_once(cluster: ScheduledCluster) -> None:
    await cluster.create(device_class(), node("node-a", cpu="1"), our_pod("p", requests={"cpu": "2"}))
    await cluster.settle()
    told = (await cluster.client.get(Pod, "p")).metadata.resource_version
    for number in range(30):
        await cluster.create(node(f"small-{number}", cpu="1"))
        await cluster.settle(1)
    assert (await cluster.client.get(Pod, "p")).metadata.resource_version == told
    events = await cluster.events_of("p")
    assert [(event.reason, event.count) for event in events] == [("FailedScheduling", 1)]
