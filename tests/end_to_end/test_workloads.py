"""One claim for all pods of a workload over HTTP. docs/quality/parity.md says what the ids in the test names are."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from dralloc.controllers.jobs.plan import SHARED_CLAIMS
from dralloc.kube.batch_v1 import Job
from dralloc.kube.core_v1 import Node
from dralloc.kube.pod_claims import pod_reference
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import ConsumerReference, ResourceClaim
from dralloc.testing.builders import DRIVER, claim, device, device_class, request, resource_slice, taint, taint_rule
from tests.support.running_cluster import RunningCluster, in_running_cluster
from tests.support.scheduled_cluster import node, our_pod
from tests.support.workloads import claim_template, existing, job

pytestmark = pytest.mark.slow

GATE = "DRAReservedForWorkloads"
# A workload of a kind that no server here knows; the test acts as its controller.
TRAINING = ConsumerReference(
    api_group="example.com", resource="trainings", name="big", uid="8a7e5b80-0000-4000-8000-000000000001"
)


def for_training(name: str = "c") -> ResourceClaim:
    plain = claim(name, request())
    return replace(plain, spec=replace(plain.spec, reserved_for=TRAINING))


async def create_nodes(cluster: RunningCluster, *names: str) -> None:
    await cluster.create(device_class())
    for name in names:
        gpus = resource_slice(f"gpus-of-{name}", device("gpu-0"), pool=name, node_name=name)
        await cluster.create(node(name, cpu="1000", pods="1000"), gpus)


async def give_up(cluster: RunningCluster, name: str = "c") -> None:
    """Removes the workload from `reservedFor` and keeps the other consumers."""
    stored = await cluster.claim(name)
    kept = [entry for entry in stored.status.reserved_for if entry.uid != TRAINING.uid]
    await cluster.client.patch(ResourceClaim, name, {"status": {"reservedFor": kept}}, subresource="status")


def is_free(stored: ResourceClaim) -> bool:
    return stored.status.allocation is None and not stored.status.reserved_for


@in_running_cluster
async def test_R2_the_first_pod_reserves_the_claim_for_its_workload_and_later_pods_write_nothing(
    cluster: RunningCluster,
) -> None:
    await create_nodes(cluster, "node-a")
    await cluster.create(for_training(), our_pod("first", "c"))
    await cluster.running("first")
    stored = await cluster.claim("c")
    assert stored.status.reserved_for == (TRAINING,)
    assert stored.status.allocation is not None
    assert stored.status.allocation.reserved_for_any_pod
    await cluster.create(our_pod("second", "c"))
    await cluster.running("second")
    assert await cluster.claim("c") == stored


@in_running_cluster
async def test_R3_more_pods_than_reservedFor_can_hold_share_a_claim_through_their_workload(
    cluster: RunningCluster,
) -> None:
    await create_nodes(cluster, "node-a")
    await cluster.create(for_training())
    names = [f"p{number}" for number in range(260)]
    await cluster.create(*(our_pod(name, "c") for name in names))
    for name in names:
        await cluster.running(name)
    assert (await cluster.claim("c")).status.reserved_for == (TRAINING,)


@in_running_cluster
async def test_R4_a_claim_is_deallocated_when_its_workload_released_it_and_no_pod_uses_it(
    cluster: RunningCluster,
) -> None:
    await create_nodes(cluster, "node-a")
    await cluster.create(for_training(), our_pod("p", "c"))
    await cluster.running("p")
    await cluster.end_pod("p")
    # Once the claim of a later pod is deallocated, the controllers have seen that the first one ended.
    await cluster.create(node("node-b"), resource_slice("more", device("gpu-0"), pool="node-b", node_name="node-b"))
    await cluster.create(claim("later", request()), our_pod("later", "later"))
    await cluster.running("later")
    await cluster.delete_pod("later")
    await cluster.claim_where("later", is_free)
    assert (await cluster.claim("c")).status.reserved_for == (TRAINING,), "only its owner speaks for it"
    await give_up(cluster)
    await cluster.claim_where("c", is_free)


@in_running_cluster
async def test_R4_a_job_reserves_the_claim_for_its_pods_and_releases_it_when_it_ends(cluster: RunningCluster) -> None:
    await create_nodes(cluster, "node-a")
    document: dict[str, Any] = job(
        "train", {"gpu": existing("gpu")}, annotations={SHARED_CLAIMS: "gpu=t"}, parallelism=3, completions=3
    )
    document["spec"]["template"]["spec"]["schedulerName"] = "dralloc"
    await cluster.create(claim_template("t", request()), document)
    await cluster.until(Job, "train", lambda item: item is not None and item.status.active == 3)
    pods = [await cluster.running(item.metadata.name) for item in await cluster.client.list(Pod)]
    stored = await cluster.claim("gpu")
    assert [(entry.resource, entry.name) for entry in stored.status.reserved_for] == [("jobs", "train")]
    for item in pods:
        await cluster.end_pod(item.metadata.name)
    await cluster.until(Job, "train", lambda item: item is not None and item.is_finished)
    await cluster.claim_where("gpu", is_free)


@in_running_cluster
async def test_R6_a_claim_reserved_for_a_workload_is_not_deallocated_for_a_pod_that_needs_another_node(
    cluster: RunningCluster,
) -> None:
    await create_nodes(cluster, "node-a", "node-b")
    await cluster.create(for_training(), our_pod("first", "c"))
    cordoned = (await cluster.running("first")).spec.node_name
    await cluster.delete_pod("first")
    await cluster.client.patch(Node, cordoned, {"spec": {"unschedulable": True}})
    await cluster.create(our_pod("second", "c"))
    await cluster.refused("second")
    stored = await cluster.claim("c")
    assert stored.status.allocation is not None
    assert [result.pool for result in stored.status.allocation.devices.results] == [cordoned]
    # Once no consumer holds the claim, it is deallocated.
    await give_up(cluster)
    await cluster.running("second")


@in_running_cluster
async def test_R8_a_claim_reserved_for_pods_and_a_workload_is_deallocated_when_both_are_gone(
    cluster: RunningCluster,
) -> None:
    await create_nodes(cluster, "node-a")
    await cluster.create(for_training(), our_pod("before", "c"))
    await cluster.running("before")
    for start in (cluster.serve, cluster.schedule, cluster.control):
        await start(f"{GATE}=false")
    await cluster.create(our_pod("meanwhile", "c"))
    listed = pod_reference(await cluster.running("meanwhile"))
    assert set((await cluster.claim("c")).status.reserved_for) >= {TRAINING, listed}
    for start in (cluster.serve, cluster.schedule, cluster.control):
        await start()
    await cluster.create(our_pod("after", "c"))
    await cluster.running("after")
    await give_up(cluster)
    for name in ("before", "after"):
        await cluster.end_pod(name)
    await cluster.claim_where("c", lambda stored: stored.status.reserved_for == (listed,))
    assert (await cluster.claim("c")).status.allocation is not None
    await cluster.end_pod("meanwhile")
    await cluster.claim_where("c", is_free)


@in_running_cluster
async def test_R7_pods_that_reservedFor_does_not_list_are_evicted_from_a_tainted_device(
    cluster: RunningCluster,
) -> None:
    await create_nodes(cluster, "node-a")
    await cluster.create(for_training(), our_pod("first", "c"), our_pod("second", "c"))
    for name in ("first", "second"):
        await cluster.running(name)
    await cluster.create(taint_rule("drain", taint("drain", effect="NoExecute"), driver=DRIVER))
    for name in ("first", "second"):
        await cluster.until_gone(name, Pod)
