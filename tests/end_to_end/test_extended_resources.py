"""Extended resources that devices serve, over HTTP (KEP-5004)."""

from __future__ import annotations

from typing import Any

import pytest

from dralloc.kube.core_v1 import Node, ResourceQuota
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import DeviceClass, ResourceClaim
from dralloc.primitives.errors import Forbidden, Invalid
from dralloc.testing.builders import DRIVER, claim, device, device_class, request, resource_slice, taint, taint_rule
from tests.support.running_cluster import RunningCluster, in_running_cluster
from tests.support.scheduled_cluster import gpus, node, our_pod
from tests.support.workloads import quota

pytestmark = pytest.mark.slow

GPU, IMPLICIT = "example.com/gpu", "deviceclass.resource.kubernetes.io/gpu"


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
    await cluster.create(device_class(extended=GPU), node("node-a"), gpus("node-a", 5))
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
    await cluster.create(device_class(extended=GPU), node("node-a"), gpus("node-a", 3))
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
    await cluster.create(node("node-a"), gpus("node-a"), asking("p"))
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
        await cluster.create(device_class(extended=GPU), node("node-a"), gpus("node-a"), asking("p"))
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
    await cluster.create(device_class(extended=GPU), node("node-a"), gpus("node-a", 2), asking("before"))
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


@in_running_cluster
async def test_KEP_5004_pods_and_claims_are_charged_to_quotas_by_extended_name(cluster: RunningCluster) -> None:
    """Init container, sidecar, init container and main container ask for one of each name; a claim comes on top."""
    await cluster.create(device_class(extended=GPU), node("node-a"), gpus("node-a", 6))
    hard = {
        "count/resourceclaims.resource.k8s.io": "2",
        "gpu.deviceclass.resource.k8s.io/devices": "9",
        f"requests.{GPU}": "5",
        f"requests.{IMPLICIT}": "5",
    }
    await cluster.create(quota("q", hard))
    pod = asking("p", amounts={GPU: "1", IMPLICIT: "1"})
    container = pod["spec"]["containers"][0]
    sidecar = {**container, "name": "sidecar", "restartPolicy": "Always"}
    pod["spec"]["initContainers"] = [{**container, "name": "first"}, sidecar, {**container, "name": "second"}]
    await cluster.create(pod, claim("other", request()))
    await cluster.running("p")
    expected = {**hard, "gpu.deviceclass.resource.k8s.io/devices": "5"}
    await cluster.until(ResourceQuota, "q", lambda found: found is not None and _texts(found) == expected)
    for refused in (asking("q"), asking("q", amounts={IMPLICIT: "1"}), asking("q", amounts={"example.com/other": "1"})):
        is_charged = "example.com/other" not in refused["spec"]["containers"][0]["resources"]["requests"]
        if is_charged:
            with pytest.raises(Forbidden, match="exceeded quota"):
                await cluster.create(refused)
        else:
            await cluster.create(refused)
    await cluster.remove_pod("p")
    await cluster.until(ResourceQuota, "q", lambda found: found is not None and _texts(found)[f"requests.{GPU}"] == "1")
    await cluster.create(asking("r", amounts={GPU: "1"}))
    await cluster.running("r")


def _texts(found: ResourceQuota) -> dict[str, str]:
    return {name: str(amount) for name, amount in found.status.used.items()}


@in_running_cluster
async def test_KEP_5004_amounts_of_zero_need_no_claim_and_tainted_devices_serve_none(cluster: RunningCluster) -> None:
    tainted = resource_slice("tainted", device("gpu-0", taints=[taint("broken")]), pool="node-a", node_name="node-a")
    await cluster.create(device_class(extended=GPU), node("node-a"), tainted)
    await cluster.create(asking("none", amounts={GPU: "0"}), asking("one"))
    assert (await cluster.running("none")).status.extended_resource_claim_status is None
    await cluster.refused("one", "0/1 nodes are available")
    assert await cluster.claims() == ()


@in_running_cluster
async def test_KEP_5004_a_name_moves_to_another_class(cluster: RunningCluster) -> None:
    """Of several classes with one name the newest serves it, and the next one when it goes; a class may change its name."""
    old, new = (device_class(name, where=f'device.attributes["{DRIVER}"].kind == "{name}"') for name in ("old", "new"))
    devices = [device(name, attributes={"kind": name}) for name in ("new", "old")]
    await cluster.create(old, node("node-a"), resource_slice("gpus", *devices, pool="node-a", node_name="node-a"))
    await cluster.create(asking("p"))
    await cluster.refused("p", f"insufficient {GPU}")
    await cluster.client.patch(DeviceClass, "old", {"spec": {"extendedResourceName": GPU}})
    await cluster.running("p")
    assert await cluster.devices_of((await own_claim(cluster, "p")).metadata.name) == ["old"]
    # Of classes of the same second, the first by name serves it: here the newest as well.
    await cluster.create(new)
    await cluster.client.patch(DeviceClass, "new", {"spec": {"extendedResourceName": GPU}})
    await cluster.create(asking("q"))
    await cluster.running("q")
    assert await cluster.devices_of((await own_claim(cluster, "q")).metadata.name) == ["new"]
    await cluster.remove_pod("p")
    await cluster.client.delete(DeviceClass, "new")
    await cluster.create(asking("r"))
    await cluster.running("r")
    assert await cluster.devices_of((await own_claim(cluster, "r")).metadata.name) == ["old"]


@in_running_cluster
async def test_KEP_5004_the_claim_belongs_to_its_pod(cluster: RunningCluster) -> None:
    """A user who deletes it takes nothing from the pod; a NoExecute taint evicts the pod, and the claim goes with it."""
    await cluster.create(device_class(extended=GPU), node("node-a"), gpus("node-a"), asking("p"))
    running = await cluster.running("p")
    made = await own_claim(cluster, "p")
    assert made.metadata.annotations == {"resource.kubernetes.io/extended-resource-claim": "true"}
    (owner,) = made.metadata.owner_references
    assert (owner.api_version, owner.kind, owner.uid, owner.controller) == ("v1", "Pod", running.metadata.uid, True)
    assert made.metadata.name.startswith("p-extended-resources-")
    assert [each.uid for each in made.status.reserved_for] == [running.metadata.uid]
    await cluster.client.delete(ResourceClaim, made.metadata.name)
    leaving = await cluster.claim(made.metadata.name)
    assert leaving.metadata.deletion_timestamp is not None
    assert leaving.status.allocation is not None
    await cluster.create(taint_rule("broken", taint("broken", effect="NoExecute"), driver=DRIVER))
    await cluster.until_gone("p")
    await no_claims(cluster, made.metadata.name)


@in_running_cluster
async def test_KEP_5004_the_status_of_a_pod_is_validated(cluster: RunningCluster) -> None:
    await cluster.create(asking("p"))
    right = {"containerName": "main", "resourceName": GPU, "requestName": "container-0-request-0"}
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"resourceClaimName": "c", "requestMappings": []}, "requestMappings"),
        ({"requestMappings": [right]}, "resourceClaimName"),
        ({"resourceClaimName": "c", "requestMappings": [{**right, "containerName": "x"}]}, "containerName"),
        ({"resourceClaimName": "c", "requestMappings": [{**right, "resourceName": "cpu"}]}, "resourceName"),
        ({"resourceClaimName": "c", "requestMappings": [{**right, "requestName": "A_B"}]}, "requestName"),
        ({"resourceClaimName": "c", "requestMappings": [right, right]}, "Duplicate"),
    ]
    for status, field in wrong:
        with pytest.raises(Invalid, match=field):
            await cluster.client.patch(
                Pod, "p", {"status": {"extendedResourceClaimStatus": status}}, subresource="status"
            )
    for stored in ({"resourceClaimName": "c", "requestMappings": [right]}, None):
        patch = {"status": {"extendedResourceClaimStatus": stored}}
        changed = await cluster.client.patch(Pod, "p", patch, subresource="status")
        assert (changed.status.extended_resource_claim_status is None) == (stored is None), "it may be cleared"
