"""Extended resources that devices serve, over HTTP (KEP-5004)."""

from __future__ import annotations

from typing import Any

import pytest

from dralloc.api.core_v1 import Node
from dralloc.api.pod_v1 import Pod
from dralloc.api.resource_v1 import DeviceClass, ResourceClaim, ResourceSlice
from dralloc.primitives.errors import Invalid
from dralloc.testing.builders import claim, device, device_class, request, resource_slice
from tests.support.running_cluster import RunningCluster, in_running_cluster
from tests.support.scheduled_cluster import node, our_pod

pytestmark = pytest.mark.slow

GPU, IMPLICIT = "example.com/gpu", "deviceclass.resource.kubernetes.io/gpu"


def gpus(node_name: str = "node-a", count: int = 1) -> ResourceSlice:
    devices = [device(f"gpu-{number}") for number in range(count)]
    return resource_slice(f"gpus-of-{node_name}", *devices, pool=node_name, node_name=node_name)


def asking(name: str, *claims: str, amounts: dict[str, str] | None = None) -> dict[str, Any]:
    """A pod whose container asks for extended resources."""
    wanted = amounts or {GPU: "1"}
    made = our_pod(name, *claims, requests=wanted)
    made["spec"]["containers"][0]["resources"]["limits"] = wanted
    return made


async def own_claim(cluster: RunningCluster, pod: str) -> ResourceClaim:
    status = (await cluster.pod(pod)).status.extended_resource_claim_status
    assert status is not None
    return await cluster.claim(status.resource_claim_name)


async def no_claims(cluster: RunningCluster, name: str) -> None:
    await cluster.until(ResourceClaim, name, lambda found: found is None)


@in_running_cluster
async def test_KEP_5004_explicit_and_implicit_names_in_several_containers(cluster: RunningCluster) -> None:
    await cluster.create(device_class(extended=GPU), node("node-a"), gpus(count=5))
    several = asking("p", amounts={GPU: "1", IMPLICIT: "1"})
    second = asking("q", amounts={GPU: "2"})["spec"]["containers"][0]
    several["spec"]["containers"].append({**second, "name": "second"})
    await cluster.create(several)
    pod = await cluster.running("p")
    made, status = await own_claim(cluster, "p"), pod.status.extended_resource_claim_status
    assert status is not None
    assert {(each.container_name, each.resource_name, each.request_name) for each in status.request_mappings} == {
        ("main", IMPLICIT, "container-0-request-0"),
        ("main", GPU, "container-0-request-1"),
        ("second", GPU, "container-1-request-0"),
    }
    assert made.status.allocation is not None
    assert len(made.status.allocation.devices.results) == 4
    assert not pod.spec.resource_claims


@in_running_cluster
async def test_KEP_5004_init_containers_and_sidecars_share_devices_in_time(cluster: RunningCluster) -> None:
    await cluster.create(device_class(extended=GPU), node("node-a"), gpus(count=3))
    pod = asking("p", amounts={GPU: "1"})
    container = pod["spec"]["containers"][0]
    first = {**container, "name": "first", "resources": {"requests": {GPU: "3"}, "limits": {GPU: "3"}}}
    pod["spec"]["initContainers"] = [first, {**container, "name": "sidecar", "restartPolicy": "Always"}]
    await cluster.create(pod)
    await cluster.running("p")
    made = await own_claim(cluster, "p")
    counts = {each.name: each.exactly.count for each in made.spec.devices.requests or () if each.exactly is not None}
    assert counts == {"container-0-request-0": 1, "container-1-request-0": 1, "container-2-request-0": 1}


@in_running_cluster
async def test_KEP_5004_a_pod_waits_for_the_class_and_for_devices(cluster: RunningCluster) -> None:
    await cluster.create(node("node-a"), gpus(), asking("p"))
    assert (await cluster.refused("p", f"insufficient {GPU}")).reason == "Unschedulable"
    await cluster.create(device_class(extended=GPU))
    await cluster.running("p")
    await cluster.create(asking("q"))
    await cluster.refused("q", "0/1 nodes are available")
    await cluster.client.delete(Pod, "p")
    await cluster.running("q")


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_KEP_5004_the_claim_goes_when_the_pod_ends(phase: str) -> None:
    @in_running_cluster
    async def test(cluster: RunningCluster) -> None:
        await cluster.create(device_class(extended=GPU), node("node-a"), gpus(), asking("p"))
        await cluster.running("p")
        made = await own_claim(cluster, "p")
        await cluster.client.patch(Pod, "p", {"status": {"phase": phase}}, subresource="status")
        await no_claims(cluster, made.metadata.name)
        assert await cluster.exists(Pod, "p")

    test()


@in_running_cluster
async def test_KEP_5004_a_node_with_a_device_plugin_serves_the_resource_itself(cluster: RunningCluster) -> None:
    by_plugin = node("plugin")
    by_plugin["status"]["allocatable"][GPU] = "1"
    await cluster.create(device_class(extended=GPU), by_plugin, gpus("plugin", 4), claim("c", request()))
    await cluster.create(asking("p", "c"))
    assert (await cluster.running("p")).status.extended_resource_claim_status is None
    await cluster.create(asking("q"))
    await cluster.refused("q", f"insufficient {GPU}")
    # The plugin is gone: its resource has the amount 0, and devices serve it.
    allocatable = {**by_plugin["status"]["allocatable"], GPU: "0"}
    await cluster.client.patch(Node, "plugin", {"status": {"allocatable": allocatable}}, subresource="status")
    assert (await cluster.running("q")).status.extended_resource_claim_status is not None


@in_running_cluster
async def test_KEP_5004_an_invalid_name_is_refused(cluster: RunningCluster) -> None:
    for name in ("invalid_resource_name", "kubernetes.io/gpu", "requests.example.com/gpu"):
        with pytest.raises(Invalid, match="extendedResourceName"):
            await cluster.create(device_class(extended=name))


@in_running_cluster
async def test_KEP_5004_the_gate_is_switched_off_and_on(cluster: RunningCluster) -> None:
    await cluster.create(device_class(extended=GPU), node("node-a"), gpus(count=2), asking("before"))
    await cluster.running("before")
    off = "DRAExtendedResource=false"
    await cluster.serve(off)
    await cluster.schedule(off)
    await cluster.control(off)
    assert (await cluster.client.get(DeviceClass, "gpu")).spec.extended_resource_name == GPU, "a field in use stays"
    await cluster.create(device_class("other", extended="example.com/other"))
    assert (await cluster.client.get(DeviceClass, "other")).spec.extended_resource_name is None
    await cluster.create(asking("meanwhile"))
    await cluster.refused("meanwhile", f"insufficient {GPU}")
    made = await own_claim(cluster, "before")
    await cluster.client.delete(Pod, "before")
    await no_claims(cluster, made.metadata.name)
    for restart in (cluster.serve, cluster.schedule, cluster.control):
        await restart()
    await cluster.running("meanwhile")
