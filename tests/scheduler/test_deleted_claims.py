"""A claim that is being deleted is given to no pod any more, so pods without a node must not keep it from going."""

from __future__ import annotations

from functools import partial

import pytest

from dralloc.client.transport import ClientRequest
from dralloc.kube.pod_claims import CLAIM_FINALIZER, group_reference
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import ConsumerReference, ResourceClaim
from dralloc.kube.scheduling_v1beta1 import PodGroup
from dralloc.scheduler.bind.claim_writer import ATTEMPTS_MAX
from dralloc.testing.builders import allocation, claim, device_class, held, request
from dralloc.testing.virtual_time import run_virtual
from tests.support.scheduled_cluster import ScheduledCluster, gpus, in_cluster, node, our_pod, scheduled_cluster
from tests.support.scripted_transport import Loss, ScriptedTransport
from tests.support.workloads import Document, existing, pod_group

GROUPS = "GenericWorkload=true,DRAWorkloadResourceClaims=true"
JOB = ConsumerReference(api_group="batch", resource="jobs", name="training", uid="uid-of-training")


async def is_held(cluster: ScheduledCluster, name: str = "shared") -> bool:
    status = (await cluster.client.get(ResourceClaim, name)).status
    return status.allocation is not None or bool(status.reserved_for)


async def run_two_of_three(cluster: ScheduledCluster, *objects: object) -> None:
    """Two pods run with the claim; the node has no room for the third."""
    await cluster.create(device_class(), node("node-a", pods="2"), gpus("node-a", 1), *objects)
    await cluster.settle()
    assert len(await running(cluster)) == 2


async def running(cluster: ScheduledCluster) -> list[str]:
    return [pod.metadata.name for pod in await cluster.client.list(Pod) if pod.spec.node_name]


async def delete_running_pods(cluster: ScheduledCluster) -> None:
    for name in await running(cluster):
        await cluster.remove_pod(name)
    await cluster.settle(30)


async def delete_claim_then_running_pods(cluster: ScheduledCluster) -> None:
    await cluster.client.delete(ResourceClaim, "shared")
    await cluster.settle(30)
    assert await is_held(cluster), "pods run with its devices"
    await delete_running_pods(cluster)
    assert not await is_held(cluster)


def gang() -> list[Document]:
    pods = (our_pod(name, "shared") for name in ("one", "two", "three"))
    members = [{**pod, "spec": {**pod["spec"], "schedulingGroup": {"podGroupName": "gang"}}} for pod in pods]
    return [pod_group("gang", {"shared": existing("shared")}, min_count=2), *members]


@in_cluster(GROUPS)
async def test_a_group_that_had_nodes_does_not_keep_a_deleted_claim_for_its_waiting_pods(
    cluster: ScheduledCluster,
) -> None:
    await run_two_of_three(cluster, claim("shared", request()), *gang())
    await delete_claim_then_running_pods(cluster)


@in_cluster(GROUPS)
async def test_a_pod_does_not_take_a_deleted_claim_from_a_group_that_it_is_not_a_member_of(
    cluster: ScheduledCluster,
) -> None:
    """Another scheduler may be about to bind the members of the group."""
    group, *_ = gang()
    await cluster.create(claim("shared", request()), group)
    consumer = group_reference(await cluster.client.get(PodGroup, "gang"))
    status = {"allocation": allocation(held("gpu-0")), "reservedFor": [consumer]}
    await cluster.client.patch(ResourceClaim, "shared", {"metadata": {"finalizers": [CLAIM_FINALIZER]}})
    await cluster.client.patch(ResourceClaim, "shared", {"status": status}, subresource="status")
    await cluster.client.delete(ResourceClaim, "shared")
    await cluster.create(our_pod("stranger", "shared"))
    await cluster.settle(30)
    assert (await cluster.claim("shared")).status.reserved_for == (consumer,)


@in_cluster("DRAReservedForWorkloads=true")
async def test_a_job_keeps_a_deleted_claim_until_its_controller_gives_it_up(cluster: ScheduledCluster) -> None:
    spec = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}, "reservedFor": JOB}
    shared = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "shared"}, "spec": spec}
    await run_two_of_three(cluster, shared, *(our_pod(name, "shared") for name in ("one", "two", "three")))
    await cluster.client.delete(ResourceClaim, "shared")
    await delete_running_pods(cluster)
    assert (await cluster.claim("shared")).status.reserved_for == (JOB,)


@pytest.mark.parametrize("lost", [0, 2 * ATTEMPTS_MAX])
def test_pods_that_were_not_bound_do_not_keep_a_deleted_claim(lost: int) -> None:
    """Two pods are listed in `reservedFor`, their bindings are lost, and the claim is deleted: each takes itself off the list.

    So many of their writes are lost as well.
    """

    async def main() -> None:
        is_deleted = False
        left = lost

        def script(request: ClientRequest) -> Loss:
            nonlocal left
            if is_deleted and left and request.method == "PATCH" and request.path.endswith("/shared/status"):
                left -= 1
                return Loss.REQUEST
            return Loss.REQUEST if request.path.endswith("/binding") else Loss.NOTHING

        async with scheduled_cluster(wrap=lambda inner: ScriptedTransport(inner, script)) as cluster:
            await cluster.create(device_class(), node("node-a"), gpus("node-a", 1), claim("shared", request()))
            await cluster.create(our_pod("one", "shared"), our_pod("two", "shared"))
            await cluster.settle()
            assert len((await cluster.claim("shared")).status.reserved_for) == 2
            is_deleted = True
            await cluster.client.delete(ResourceClaim, "shared")
            await cluster.settle(30)
            assert not await is_held(cluster)

    run_virtual(main())


def test_pods_that_give_up_a_claim_together_share_its_writes() -> None:
    async def main() -> None:
        releases: list[str] = []

        def is_release(request: ClientRequest) -> bool:
            return request.method == "PATCH" and request.path.endswith("/shared/status")

        def script(request: ClientRequest) -> Loss:
            releases.extend([request.path] if is_release(request) else [])
            return Loss.REQUEST if request.path.endswith("/binding") else Loss.NOTHING

        slowly = partial(ScriptedTransport, script=script, delay_s=lambda each: 0.01 if is_release(each) else 0.0)
        async with scheduled_cluster(wrap=slowly) as cluster:
            await cluster.create(
                device_class(), node("node-a", cpu="40"), gpus("node-a", 1), claim("shared", request())
            )
            await cluster.create(*(our_pod(f"p{number}", "shared") for number in range(20)))
            await cluster.settle()
            assert len((await cluster.claim("shared")).status.reserved_for) == 20
            releases.clear()
            await cluster.client.delete(ResourceClaim, "shared")
            await cluster.settle(30)
            assert not await is_held(cluster)
            assert len(releases) < 5

    run_virtual(main())


@in_cluster(GROUPS)
async def test_a_group_that_had_nodes_keeps_a_claim_that_is_not_deleted(cluster: ScheduledCluster) -> None:
    await run_two_of_three(cluster, claim("shared", request()), *gang())
    await delete_running_pods(cluster)
    assert await is_held(cluster), "pods that replace the members are to get the same devices"
