"""The scheduler makes claims for extended resources that devices serve, and leaves none behind."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from dralloc.client.transport import ClientRequest, ClientResponse, Transport
from dralloc.kube.core_v1 import Node
from dralloc.kube.extended_resources import ExtendedResourceClasses
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import DeviceClass, ResourceClaim
from dralloc.scheduler.decide.extended_supply import ExtendedNeeds
from dralloc.testing.builders import claim, device_class, request
from dralloc.testing.virtual_time import run_virtual
from tests.scheduler.pod_specs import container, spec
from tests.support.object_graph import held_by_tasks
from tests.support.relay_transport import RelayTransport
from tests.support.scheduled_cluster import ScheduledCluster, gpus, in_cluster, node, our_pod, scheduled_cluster
from tests.support.scripted_transport import Loss, ScriptedTransport

GPU, NIC = "example.com/gpu", "example.com/nic"
IMPLICIT = "deviceclass.resource.kubernetes.io/gpu"


def plugin_node(name: str, amount: str, resource: str = GPU, **more: str) -> dict[str, Any]:
    """A node whose device plugin offers the resource."""
    made = node(name, **more)  # type: ignore[arg-type]
    made["status"]["allocatable"][resource] = amount
    return made


def gpu_pod(name: str, *claims: str, **requests: str) -> dict[str, Any]:
    """A pod that asks for extended resources; `gpu` and `implicit` are short names."""
    names = {"gpu": GPU, "implicit": IMPLICIT}
    amounts = {names.get(key, key): value for key, value in (requests or {"gpu": "1"}).items()}
    made = our_pod(name, *claims, requests=amounts)
    made["spec"]["containers"][0]["resources"]["limits"] = amounts
    return made


async def own_claim(cluster: ScheduledCluster, pod: str) -> ResourceClaim:
    """The claim that the pod's status names."""
    status = (await cluster.pod(pod)).status.extended_resource_claim_status
    assert status is not None, f"pod {pod} has no claim for extended resources"
    return await cluster.claim(status.resource_claim_name)


# --- What a pod gets --------------------------------------------------------------------------------------------


@in_cluster()
async def test_a_pod_gets_a_claim_for_its_extended_resources(cluster: ScheduledCluster) -> None:
    await cluster.create(device_class(extended=GPU), node("a"), gpus("a", 3))
    await cluster.create(gpu_pod("p", gpu="2", implicit="1", cpu="1"))
    await cluster.settle()
    pod, made = await cluster.pod("p"), await own_claim(cluster, "p")
    assert pod.spec.node_name == "a"
    assert made.metadata.annotations == {"resource.kubernetes.io/extended-resource-claim": "true"}
    assert [(owner.kind, owner.name, owner.controller) for owner in made.metadata.owner_references] == [
        ("Pod", "p", True)
    ]
    assert made.metadata.generate_name == "p-extended-resources-"
    counts = {each.name: each.exactly.count for each in made.spec.devices.requests or () if each.exactly is not None}
    assert counts == {"container-0-request-1": 1, "container-0-request-2": 2}
    assert {reference.name for reference in made.status.reserved_for} == {"p"}
    assert made.status.allocation is not None
    assert len(made.status.allocation.devices.results) == 3
    mapped = pod.status.extended_resource_claim_status
    assert mapped is not None
    assert {(each.resource_name, each.request_name) for each in mapped.request_mappings} == {
        (GPU, "container-0-request-2"),
        (IMPLICIT, "container-0-request-1"),
    }


@in_cluster()
async def test_zero_asks_for_nothing(cluster: ScheduledCluster) -> None:
    await cluster.create(device_class(extended=GPU), node("a"), gpu_pod("p", gpu="0"))
    await cluster.settle()
    assert await cluster.node_of("p") == "a"
    assert (await cluster.pod("p")).status.extended_resource_claim_status is None
    assert await cluster.claims() == ()


@in_cluster()
async def test_a_pod_may_have_other_claims_as_well(cluster: ScheduledCluster) -> None:
    await cluster.create(device_class(extended=GPU), node("a"), gpus("a", 1), node("b"), gpus("b", 2))
    await cluster.create(claim("c", request()), gpu_pod("p", "c", gpu="1"))
    await cluster.settle()
    assert await cluster.node_of("p") == "b"
    made = await own_claim(cluster, "p")
    assert sorted(await cluster.devices_of("c") + await cluster.devices_of(made.metadata.name)) == ["gpu-0", "gpu-1"]


@in_cluster()
async def test_devices_run_out_and_come_back(cluster: ScheduledCluster) -> None:
    await cluster.create(device_class(extended=GPU), node("a"), gpus("a", 2), gpu_pod("p", gpu="2"))
    await cluster.settle()
    await cluster.create(gpu_pod("q", gpu="1"))
    await cluster.settle()
    assert await cluster.node_of("q") == ""
    made = await own_claim(cluster, "p")
    await cluster.client.patch(Pod, "p", {"status": {"phase": "Succeeded"}}, subresource="status")
    await cluster.release(made.metadata.name)
    await cluster.settle(30)
    assert await cluster.node_of("q") == "a"


@in_cluster()
async def test_a_pod_waits_for_the_class_of_its_resource(cluster: ScheduledCluster) -> None:
    await cluster.create(node("a"), gpus("a", 2), gpu_pod("explicit"), gpu_pod("implicit", implicit="1"))
    await cluster.settle()
    assert f"insufficient {GPU}" in (await cluster.condition("explicit")).message
    assert f"insufficient {IMPLICIT}" in (await cluster.condition("implicit")).message
    await cluster.create(device_class())
    await cluster.settle(30)
    assert await cluster.node_of("implicit") == "a"
    assert await cluster.node_of("explicit") == ""
    await cluster.client.patch(DeviceClass, "gpu", {"spec": {"extendedResourceName": GPU}})
    await cluster.settle(30)
    assert await cluster.node_of("explicit") == "a"


@in_cluster("DRAExtendedResource=false")
async def test_without_the_feature_no_claim_is_made(cluster: ScheduledCluster) -> None:
    await cluster.create(device_class(extended=GPU), node("a"), gpus("a", 1), gpu_pod("p", implicit="1"))
    await cluster.settle()
    assert f"insufficient {IMPLICIT}" in (await cluster.condition("p")).message
    await cluster.restart()
    await cluster.settle(30)
    assert await cluster.node_of("p") == "a"


@in_cluster()
async def test_more_requests_than_a_claim_may_have(cluster: ScheduledCluster) -> None:
    await cluster.create(device_class(extended=GPU), node("a"), gpus("a", 40))
    many = gpu_pod("p")
    first = many["spec"]["containers"][0]
    many["spec"]["containers"] = [{**first, "name": f"c{number}"} for number in range(33)]
    await cluster.create(many, gpu_pod("q"))
    await cluster.settle()
    assert "need 33 requests, a claim may have 32" in (await cluster.condition("p")).message
    assert await cluster.node_of("q") == "a"


@in_cluster()
async def test_a_pod_that_asks_for_many_resources_is_told_the_first_that_nodes_lack(cluster: ScheduledCluster) -> None:
    """A pod has room for 180,000, and each node may lack others."""
    names = [f"example.com/r{number:04}" for number in range(1_000)]
    nodes = [plugin_node(f"n{number}", "1", resource) for number, resource in enumerate(names[:3])]
    await cluster.create(*nodes, gpu_pod("p", **dict.fromkeys(names, "1")), our_pod("other"))
    await cluster.settle()
    first = [names[number] for number in range(17)]
    groups = [", ".join(name for name in first if name != offered) for offered in first[:3]]
    told = (await cluster.condition("p")).message.removeprefix("0/3 nodes are available: ").split("; ")
    assert sorted(told) == sorted(f"1 node: insufficient {group} and others" for group in groups)
    assert await cluster.node_of("other")


def test_what_many_containers_ask_for_is_read_once() -> None:
    """All containers were looked at again for each resource: 3 s of processor time for 8,000, four times as long with twice as many."""
    containers = [container(f"c{number}", **{f"example.com/r{number}": "1"}) for number in range(10_000)]
    pod = Pod(spec=spec(initContainers=containers))
    started = time.process_time()
    needs = ExtendedNeeds.of(pod, ExtendedResourceClasses())
    assert time.process_time() - started < 1
    assert needs is not None
    assert len(needs.names) == len(containers)


# --- Device plugins ---------------------------------------------------------------------------------------------


@in_cluster()
async def test_a_node_whose_plugin_offers_the_resource_serves_it_by_the_plugin(cluster: ScheduledCluster) -> None:
    await cluster.create(device_class(extended=GPU), plugin_node("a", "1"), gpus("a", 8), gpu_pod("p"))
    await cluster.settle()
    assert await cluster.node_of("p") == "a"
    assert await cluster.claims() == ()
    await cluster.create(gpu_pod("q"), gpu_pod("r", implicit="1"))
    await cluster.settle()
    assert f"insufficient {GPU}" in (await cluster.condition("q")).message, (
        "the plugin is exhausted, devices do not help"
    )
    assert await cluster.node_of("r") == "a", "the plugin does not offer the implicit name"
    # The plugin is removed: its resource has the amount 0.
    amounts = {"cpu": "4", "memory": "32Gi", "pods": "110", GPU: "0"}
    await cluster.client.patch(Node, "a", {"status": {"allocatable": amounts}}, subresource="status")
    await cluster.settle(30)
    assert await cluster.node_of("q") == "a"
    assert (await own_claim(cluster, "q")).status.allocation is not None


@in_cluster()
async def test_plugins_and_devices_serve_one_pod_differently_on_each_node(cluster: ScheduledCluster) -> None:
    await cluster.create(device_class(extended=GPU), device_class("nic", extended=NIC, where="false"))
    await cluster.create(node("no-nic"), gpus("no-nic", 2), plugin_node("both", "1", NIC), gpus("both", 1))
    await cluster.create(gpu_pod("p", **{GPU: "1", NIC: "1"}))
    await cluster.settle()
    assert await cluster.node_of("p") == "both"
    made = await own_claim(cluster, "p")
    assert [each.name for each in made.spec.devices.requests or ()] == ["container-0-request-0"]
    await cluster.create(gpu_pod("q", **{GPU: "1", NIC: "1"}))
    await cluster.settle()
    assert "insufficient example.com/nic" in (await cluster.condition("q")).message


@in_cluster()
async def test_pods_with_devices_take_nothing_from_a_plugin_that_comes_later(cluster: ScheduledCluster) -> None:
    await cluster.create(device_class(extended=GPU), node("a"), gpus("a", 1), gpu_pod("by-device"))
    await cluster.settle()
    amounts = {"cpu": "4", "memory": "32Gi", "pods": "110", GPU: "1"}
    await cluster.client.patch(Node, "a", {"status": {"allocatable": amounts}}, subresource="status")
    await cluster.create(gpu_pod("by-plugin"))
    await cluster.settle(30)
    assert await cluster.node_of("by-plugin") == "a"
    assert len(await cluster.claims()) == 1


# --- Failures ---------------------------------------------------------------------------------------------------


class FailingTransport(RelayTransport):
    """Lets the n-th write fail: before the server executes it, or after. It then dies, or the response is an error."""

    def __init__(self, write: int, *, is_done: bool, dies: bool) -> None:
        self._left, self._is_done, self._dies = write, is_done, dies
        self.has_failed = asyncio.Event()

    def around(self, inner: Transport) -> Transport:
        super().__init__(inner)
        return self

    async def send(self, request: ClientRequest) -> ClientResponse:
        if request.method != "GET" and "/events" not in request.path:
            self._left -= 1
            if self._left == 0:
                self.has_failed.set()
                if self._is_done:
                    await self._inner.send(request)
                if not self._dies:
                    body = (
                        b'{"kind":"Status","status":"Failure","reason":"InternalError","code":500,"message":"broken"}'
                    )
                    return ClientResponse(status=500, body=body)
        if self._dies and self.has_failed.is_set():
            await asyncio.Event().wait()
        return await self._inner.send(request)


# The claim, its status with its finalizer, the pod's status, the binding.
WRITES = 4


@pytest.mark.parametrize("dies", [False, True], ids=["error", "crash"])
@pytest.mark.parametrize("is_done", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("write", range(1, WRITES + 1))
def test_whatever_write_fails_the_pod_gets_one_claim_and_no_device_is_lost(
    write: int, is_done: bool, dies: bool
) -> None:
    async def main() -> None:
        failing = FailingTransport(write, is_done=is_done, dies=dies)
        async with scheduled_cluster(wrap=failing.around) as cluster:
            await cluster.create(device_class(extended=GPU), node("a"), gpus("a", 1), gpu_pod("p"))
            await failing.has_failed.wait()
            if dies:
                await cluster.kill()
                failing.has_failed.clear()
                await cluster.restart()
            await cluster.settle(60)
            assert await cluster.node_of("p") == "a"
            assert [each.metadata.name for each in await cluster.claims()] == [
                (await own_claim(cluster, "p")).metadata.name
            ]
            assert [each.name for each in (await own_claim(cluster, "p")).status.reserved_for] == ["p"]

    run_virtual(main())


@pytest.mark.parametrize("write", range(1, WRITES))
def test_a_pod_that_goes_to_a_plugin_after_a_failure_names_no_claim(write: int) -> None:
    async def main() -> None:
        failing = FailingTransport(write, is_done=True, dies=True)
        async with scheduled_cluster(wrap=failing.around) as cluster:
            await cluster.create(device_class(extended=GPU), node("a"), gpus("a", 1), gpu_pod("p"))
            await failing.has_failed.wait()
            await cluster.kill()
            await cluster.create(plugin_node("b", "4", cpu="64", memory="512Gi"))
            failing.has_failed.clear()
            await cluster.restart()
            await cluster.settle(60)
            assert await cluster.node_of("p") == "b"
            assert (await cluster.pod("p")).status.extended_resource_claim_status is None
            assert await cluster.claims() == ()

    run_virtual(main())


@in_cluster()
async def test_a_claim_that_another_scheduler_left_is_deleted_first(cluster: ScheduledCluster) -> None:
    await cluster.create(device_class(extended=GPU), node("a"), gpus("a", 1))
    waiting = gpu_pod("p")
    waiting["spec"]["schedulingGates"] = [{"name": "later"}]
    await cluster.create(waiting)
    pod = await cluster.pod("p")
    left = claim("p-extended-resources-xxxxx", request("container-0-request-0"))
    left.metadata.annotations["resource.kubernetes.io/extended-resource-claim"] = "true"
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": pod.metadata.uid, "controller": True}
    await cluster.create(left)
    patch = {"metadata": {"ownerReferences": [owner], "finalizers": ["resource.kubernetes.io/delete-protection"]}}
    await cluster.client.patch(ResourceClaim, left.metadata.name, patch)
    await cluster.settle()
    await cluster.client.patch(Pod, "p", {"spec": {"schedulingGates": None}})
    await cluster.settle(30)
    assert [each.metadata.name for each in await cluster.claims()] == [(await own_claim(cluster, "p")).metadata.name]
    assert not await cluster.exists(ResourceClaim, left.metadata.name)


def test_nothing_is_kept_of_pods_that_are_deleted_between_two_attempts() -> None:
    """Their claims are written, and their bindings are lost."""

    def script(request: ClientRequest) -> Loss:
        return Loss.REQUEST if request.path.endswith("/binding") else Loss.NOTHING

    async def main() -> None:
        async with scheduled_cluster(wrap=lambda inner: ScriptedTransport(inner, script)) as cluster:
            await cluster.create(device_class(extended=GPU), node("a"), gpus("a", 8))
            for number in range(5):
                await cluster.create(gpu_pod(f"p-{number}"))
                await cluster.settle(0.5)
                await cluster.remove_pod(f"p-{number}")
                await cluster.settle()
            assert held_by_tasks()["ExtendedClaimWriter._written"] <= 1

    run_virtual(main())
