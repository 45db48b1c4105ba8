"""Many pods share a claim: each listed in `reservedFor` up to a limit, or through their workload (KEP-5194)."""

from __future__ import annotations

import pytest

from dralloc.client.transport import ClientRequest, ClientResponse, Transport
from dralloc.kube.codec import encode
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import ConsumerReference, ResourceClaim
from dralloc.testing.builders import claim, device, device_class, request, resource_slice
from dralloc.testing.virtual_time import run_virtual
from tests.support.relay_transport import RelayTransport
from tests.support.scheduled_cluster import ScheduledCluster, in_cluster, node, our_pod, scheduled_cluster
from tests.support.scripted_transport import Loss, ScriptedTransport

JOB = ConsumerReference(api_group="batch", resource="jobs", name="training", uid="uid-of-training")


def fabric() -> object:
    return resource_slice("fabric", device("tpu"), pool="fabric", all_nodes=True)


def for_job(name: str = "c") -> dict[str, object]:
    spec = {"devices": {"requests": [{"name": "tpu", "exactly": {"deviceClassName": "gpu"}}]}, "reservedFor": JOB}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": name}, "spec": spec}


async def placed(cluster: ScheduledCluster) -> int:
    return sum(bool(pod.spec.node_name) for pod in await cluster.client.list(Pod))


class CountingTransport(RelayTransport):
    """Counts the writes of claims."""

    def __init__(self) -> None:
        self.claim_writes = 0

    def around(self, inner: Transport) -> Transport:
        super().__init__(inner)
        return self

    async def send(self, request: ClientRequest) -> ClientResponse:
        self.claim_writes += request.method == "PATCH" and "/resourceclaims/" in request.path
        return await self._inner.send(request)


@pytest.mark.slow
def test_256_pods_share_a_claim_in_few_writes_and_the_257th_is_rejected() -> None:
    async def main() -> None:
        counting = CountingTransport()
        async with scheduled_cluster(wrap=counting.around) as cluster:
            await cluster.create(device_class(), fabric(), *(node(f"node-{n}") for n in range(4)))
            await cluster.create(claim("c", request()), *(our_pod(f"p{number}", "c") for number in range(257)))
            await cluster.settle(10)
            assert await placed(cluster) == 256
            assert len((await cluster.claim("c")).status.reserved_for) == 256
            # Reservations in batches.
            assert counting.claim_writes < 100
            left = next(pod for pod in await cluster.client.list(Pod) if not pod.spec.node_name)
            message = (await cluster.condition(left.metadata.name)).message
            assert message == "claim default/c is reserved for 256 pods, the maximum"

            listed = (await cluster.claim("c")).status.reserved_for
            await cluster.remove_pod(listed[0].name)
            patch = {"status": {"reservedFor": listed[1:]}}
            await cluster.client.patch(ResourceClaim, "c", patch, subresource="status")
            await cluster.settle(10)
            assert await cluster.node_of(left.metadata.name)

    run_virtual(main())


@pytest.mark.slow
def test_any_number_of_pods_share_a_claim_through_their_workload() -> None:
    count = 2_000

    async def main() -> None:
        counting = CountingTransport()
        async with scheduled_cluster(wrap=counting.around) as cluster:
            await cluster.create(device_class(), fabric(), *(node(f"node-{n}") for n in range(20)))
            await cluster.create(for_job(), *(our_pod(f"p{number}", "c") for number in range(count)))
            await cluster.settle(10)
            assert await placed(cluster) == count
            stored = await cluster.claim("c")
            assert stored.status.reserved_for == (JOB,)
            assert stored.status.allocation is not None
            assert stored.status.allocation.reserved_for_any_pod is True
            assert len(encode(stored)) < 4096
            assert counting.claim_writes == 1

    run_virtual(main())


@in_cluster()
async def test_pods_that_share_a_claim_run_where_its_devices_are(cluster: ScheduledCluster) -> None:
    await cluster.create(device_class(), *(node(f"node-{n}") for n in range(3)))
    await cluster.create(resource_slice("gpus", device("gpu"), pool="node-1", node_name="node-1"))
    await cluster.create(claim("c", request()), *(our_pod(f"p{number}", "c") for number in range(5)))
    await cluster.settle()
    assert [await cluster.node_of(f"p{number}") for number in range(5)] == ["node-1"] * 5
    assert len((await cluster.claim("c")).status.reserved_for) == 5


@in_cluster("DRAReservedForWorkloads=false")
async def test_pods_are_listed_while_the_feature_is_off_and_mixed_lists_work_afterwards(
    cluster: ScheduledCluster,
) -> None:
    await cluster.create(device_class(), fabric(), node("node-a"), for_job(), our_pod("early", "c"))
    await cluster.settle()
    stored = await cluster.claim("c")
    assert [entry.name for entry in stored.status.reserved_for] == ["early"]
    assert stored.status.allocation is not None
    assert stored.status.allocation.reserved_for_any_pod is None
    await cluster.restart()
    patch = {"status": {"reservedFor": [*stored.status.reserved_for, JOB]}}
    await cluster.client.patch(ResourceClaim, "c", patch, subresource="status")
    await cluster.create(our_pod("late", "c"))
    await cluster.settle()
    # The allocation is not for any pod, so this pod must be listed.
    assert [entry.name for entry in (await cluster.claim("c")).status.reserved_for] == ["early", "training", "late"]
    assert await cluster.node_of("late") == "node-a"


# --- Claims that block their pod --------------------------------------------------------------------------------


async def pools_of(cluster: ScheduledCluster, name: str) -> list[str]:
    """The pools of the claim's devices."""
    allocation = (await cluster.claim(name)).status.allocation
    return [result.pool for result in allocation.devices.results] if allocation is not None else []


async def claim_on_a_full_node(cluster: ScheduledCluster, wanted: object) -> None:
    """The claim is allocated on a node without room for the next pod; another node has room and a device."""
    await cluster.create(device_class(), node("node-a", cpu="1"))
    for name in ("node-a", "node-b"):
        await cluster.create(resource_slice(f"gpus-{name}", device("gpu"), pool=name, node_name=name))
    await cluster.create(wanted, our_pod("first", "c"))
    await cluster.settle()
    await cluster.remove_pod("first")
    await cluster.create(our_pod("filler", requests={"cpu": "1"}))
    await cluster.settle()
    await cluster.create(node("node-b"))


@in_cluster()
async def test_an_unused_claim_on_a_full_node_is_deallocated_and_allocated_elsewhere(cluster: ScheduledCluster) -> None:
    await claim_on_a_full_node(cluster, claim("c", request()))
    await cluster.client.patch(ResourceClaim, "c", {"status": {"reservedFor": None}}, subresource="status")
    await cluster.create(our_pod("second", "c", requests={"cpu": "1"}))
    await cluster.settle(10)
    assert await cluster.node_of("second") == "node-b"
    assert await pools_of(cluster, "c") == ["node-b"]


@in_cluster()
async def test_an_unused_claim_stays_allocated_if_deallocation_helps_no_pod(cluster: ScheduledCluster) -> None:
    """The only other node rejects the pod for another reason."""
    await claim_on_a_full_node(cluster, claim("c", request()))
    await cluster.client.patch(ResourceClaim, "c", {"status": {"reservedFor": None}}, subresource="status")
    bound_to_a = our_pod("second", "c", requests={"cpu": "1"})
    bound_to_a["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "node-a"}
    await cluster.create(bound_to_a)
    await cluster.settle(20)
    assert await cluster.node_of("second") == ""
    assert await pools_of(cluster, "c") == ["node-a"]


@in_cluster()
async def test_an_unused_claim_stays_allocated_if_a_used_claim_blocks_the_pod_anyway(
    cluster: ScheduledCluster,
) -> None:
    """The unused claim is on a node without access to the used claim, which is on a full node; a third node has neither."""
    await cluster.create(device_class())
    for name in ("node-a", "node-b"):
        await cluster.create(node(name, cpu="1"), resource_slice(name, device("gpu"), pool=name, node_name=name))
        first = our_pod(name, f"on-{name}", requests={"cpu": "1"})
        first["spec"]["nodeSelector"] = {"kubernetes.io/hostname": name}
        await cluster.create(claim(f"on-{name}", request()), first)
    await cluster.settle()
    await cluster.remove_pod("node-a")
    idle = {"status": {"reservedFor": None}}
    await cluster.client.patch(ResourceClaim, "on-node-a", idle, subresource="status")
    await cluster.create(node("node-c"), our_pod("p", "on-node-a", "on-node-b", requests={"cpu": "1"}))
    await cluster.settle(20)
    assert await cluster.node_of("p") == ""
    assert await pools_of(cluster, "on-node-a") == ["node-a"]


@in_cluster()
async def test_a_claim_reserved_for_a_workload_is_never_deallocated(cluster: ScheduledCluster) -> None:
    await claim_on_a_full_node(cluster, for_job())
    await cluster.create(our_pod("second", "c", requests={"cpu": "1"}))
    await cluster.settle(20)
    assert await cluster.node_of("second") == ""
    message = (await cluster.condition("second")).message
    assert "1 node: claim default/c is allocated on node node-a, which this node cannot use" in message
    assert "1 node: insufficient cpu" in message
    assert (await cluster.claim("c")).status.reserved_for == (JOB,)


@in_cluster()
async def test_running_pods_keep_their_devices_after_the_workload_gave_up_the_reservation(
    cluster: ScheduledCluster,
) -> None:
    """`reservedFor` is empty then, and the pods were never listed."""
    await cluster.create(device_class(), for_job())
    for name in ("node-a", "node-b"):
        await cluster.create(node(name), resource_slice(name, device("gpu"), pool=name, node_name=name))
    await cluster.create(our_pod("first", "c"), our_pod("second", "c"))
    await cluster.settle()
    home = await cluster.node_of("first")
    [away] = {"node-a", "node-b"} - {home}
    await cluster.client.patch(ResourceClaim, "c", {"status": {"reservedFor": None}}, subresource="status")
    waiting = our_pod("third", "c")
    waiting["spec"]["nodeSelector"] = {"kubernetes.io/hostname": away}
    await cluster.create(waiting)
    await cluster.settle(20)
    assert await pools_of(cluster, "c") == [home]
    await cluster.remove_pod("first")
    await cluster.settle(20)
    assert await pools_of(cluster, "c") == [home]
    assert await cluster.node_of("third") == ""
    await cluster.remove_pod("second")
    await cluster.settle(20)
    assert await pools_of(cluster, "c") == [away]
    assert await cluster.node_of("third") == away


def test_releasing_a_reservation_keeps_the_devices_for_pods_that_are_not_listed() -> None:
    """With the feature off the pod is listed, and the first write of its other claim fails."""
    lost = iter([Loss.REQUEST] * 5)
    given_back: list[str] = []

    def script(sent: ClientRequest) -> Loss:
        if b'"allocation":null' in sent.body:
            given_back.append(sent.path)
        return next(lost, Loss.NOTHING) if sent.path.endswith("/other/status") else Loss.NOTHING

    async def main() -> None:
        async with scheduled_cluster(wrap=lambda sound: ScriptedTransport(sound, script)) as cluster:
            gpus = resource_slice("gpus", device("gpu-0"), device("gpu-1"), pool="node-a", node_name="node-a")
            await cluster.create(device_class(), node("node-a"), gpus, for_job(), our_pod("runs", "c"))
            await cluster.settle()
            await cluster.client.patch(ResourceClaim, "c", {"status": {"reservedFor": None}}, subresource="status")
            await cluster.restart("DRAReservedForWorkloads=false")
            await cluster.create(claim("other", request()), our_pod("p", "c", "other"))
            await cluster.settle(30)
            assert next(lost, None) is None
            assert await cluster.node_of("p") == "node-a"
            assert given_back == []

    run_virtual(main())


@in_cluster()
async def test_a_claim_used_by_another_pod_is_not_deallocated(cluster: ScheduledCluster) -> None:
    await cluster.create(device_class(), node("node-a", cpu="1"), node("node-b"))
    await cluster.create(resource_slice("gpus", device("gpu"), pool="node-a", node_name="node-a"))
    await cluster.create(claim("c", request()), our_pod("first", "c", requests={"cpu": "1"}))
    await cluster.settle()
    await cluster.create(our_pod("second", "c", requests={"cpu": "1"}))
    await cluster.settle(20)
    assert [await cluster.node_of(name) for name in ("first", "second")] == ["node-a", ""]
    assert [entry.name for entry in (await cluster.claim("c")).status.reserved_for] == ["first"]
