"""Plain claims over HTTP. docs/quality/parity.md says what the ids in the test names are."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import DeviceClass, ResourceClaim, ResourceSlice
from dralloc.primitives.errors import Forbidden
from dralloc.testing.builders import CLASS, DRIVER, claim, device, device_class, request, resource_slice
from tests.support.running_cluster import RunningCluster, in_running_cluster
from tests.support.scheduled_cluster import gpus, node, our_pod
from tests.support.workloads import claim_template, pod, template

pytestmark = pytest.mark.slow


async def create_nodes(cluster: RunningCluster, *names: str, gpus_each: int = 1) -> None:
    await cluster.create(device_class())
    for name in names:
        await cluster.create(node(name), gpus(name, gpus_each))


def templated_pod(name: str, entry: str = "gpu", **more: Any) -> dict[str, Any]:
    return pod(name, {entry: template("gpu-template")}, scheduler="dralloc", **more)


def is_free(item: ResourceClaim) -> bool:
    return item.status.allocation is None and not item.status.reserved_for


# --- Allocation -----------------------------------------------------------------------------------------------------


@in_running_cluster
async def test_P4_a_pod_bound_by_hand_waits_until_its_claim_is_allocated(cluster: RunningCluster) -> None:
    await create_nodes(cluster, "node-a")
    by_hand = our_pod("by-hand", "c")
    by_hand["spec"]["nodeName"] = "node-a"
    await cluster.create(claim("c", request()), by_hand, our_pod("after"))
    await cluster.running("after")
    assert (await cluster.client.get(Pod, "by-hand")).status.phase == "Pending"
    assert is_free(await cluster.client.get(ResourceClaim, "c"))
    # The pod may use the claim as soon as any other pod gets it allocated.
    await cluster.create(our_pod("helper", "c"))
    await cluster.running("by-hand")


@in_running_cluster
async def test_P15_a_pod_created_before_its_devices_runs_once_they_are_published(cluster: RunningCluster) -> None:
    await cluster.create(device_class(), node("node-a"), claim("c", request()), our_pod("p", "c"))
    assert (await cluster.refused("p", "0/1 nodes are available")).reason == "Unschedulable"
    await cluster.create(gpus("node-a"))
    await cluster.running("p")


@in_running_cluster
async def test_P20_five_pods_share_a_claim_at_the_same_time(cluster: RunningCluster) -> None:
    await create_nodes(cluster, "node-a", "node-b")
    names = [f"p{number}" for number in range(5)]
    await cluster.create(claim("c", request()), *(our_pod(name, "c") for name in names))
    pods = [await cluster.running(name) for name in names]
    assert len({item.spec.node_name for item in pods}) == 1, "they follow the claim's device"
    stored = await cluster.claim("c")
    assert {entry.name for entry in stored.status.reserved_for} == set(names)


@in_running_cluster
async def test_P21_a_pod_waits_for_a_missing_device_class_and_runs_when_it_is_created(cluster: RunningCluster) -> None:
    await cluster.create(node("node-a"), gpus("node-a"), claim("c", request()), our_pod("p", "c"))
    assert (await cluster.refused("p", f"device class {CLASS} does not exist")).reason == "Unschedulable"
    await cluster.create(device_class())
    await cluster.running("p")


@in_running_cluster
async def test_P22_a_pod_waits_for_a_device_class_that_selects_nothing_and_runs_when_it_is_changed(
    cluster: RunningCluster,
) -> None:
    await cluster.create(device_class(where="false"), node("node-a"), gpus("node-a"))
    await cluster.create(claim("c", request()), our_pod("p", "c"))
    assert (await cluster.refused("p")).reason == "Unschedulable"
    await cluster.client.patch(DeviceClass, CLASS, {"spec": {"selectors": [{"cel": {"expression": "true"}}]}})
    await cluster.running("p")


@in_running_cluster
async def test_P23_a_pod_whose_status_needs_no_claim_runs_without_one(cluster: RunningCluster) -> None:
    await create_nodes(cluster, "node-a")
    await cluster.create(templated_pod("p"))
    patch = {"status": {"resourceClaimStatuses": [{"name": "gpu"}]}}
    await cluster.client.patch(Pod, "p", patch, subresource="status")
    await cluster.running("p")
    assert await cluster.client.list(ResourceClaim) == ()


@in_running_cluster
async def test_P24_own_and_shared_claims_in_one_and_several_containers(cluster: RunningCluster) -> None:
    await create_nodes(cluster, "node-a", gpus_each=3)
    await cluster.create(claim_template("gpu-template", request()), claim("shared", request()))
    several = templated_pod("several")
    several["spec"]["containers"].append({**several["spec"]["containers"][0], "name": "second"})
    await cluster.create(templated_pod("one"), several, *(our_pod(f"sharer-{number}", "shared") for number in range(3)))
    for name in ("one", "several", "sharer-0", "sharer-1", "sharer-2"):
        await cluster.running(name)
    own = [await cluster.claim_of(name, "gpu") for name in ("one", "several")]
    results = [item.status.allocation.devices.results[0] for item in own if item.status.allocation is not None]
    assert len({result.device for result in results}) == 2
    assert len((await cluster.claim("shared")).status.reserved_for) == 3


@in_running_cluster
async def test_P28_a_selector_error_on_one_of_two_nodes_rejects_the_pod_on_both(cluster: RunningCluster) -> None:
    await cluster.create(
        device_class(), node("node-a"), node("node-b"), gpus("node-a", attributes={"model": "a"}), gpus("node-b")
    )
    selector = f'device.attributes["{DRIVER}"].model == "a"'
    await cluster.create(claim("c", request(where=selector)), our_pod("p", "c"))
    assert (await cluster.refused("p", "CEL runtime error: no such key: model")).reason == "SchedulerError"


@in_running_cluster
async def test_P29_pods_spread_over_nodes_with_one_device_each(cluster: RunningCluster) -> None:
    names = [f"node-{number}" for number in range(4)]
    await create_nodes(cluster, *names)
    await cluster.create(
        claim_template("gpu-template", request()), *(templated_pod(f"p{number}") for number in range(4))
    )
    pods = [await cluster.running(f"p{number}") for number in range(4)]
    assert sorted(item.spec.node_name for item in pods) == names


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
def test_P31_objects_of_older_api_versions_work_with_alternatives(version: str) -> None:
    asked = {"deviceClassName": CLASS}
    plain = {"name": "plain", **asked} if version == "v1beta1" else {"name": "plain", "exactly": asked}
    listed = {"name": "listed", "firstAvailable": [{"name": "many", **asked, "count": 9}, {"name": "one", **asked}]}
    spec = {"devices": {"requests": [plain, listed]}}
    published = {"name": "gpu-0", "basic": {}} if version == "v1beta1" else {"name": "gpu-0"}
    second = {**published, "name": "gpu-1"}
    pool = {"name": "node-a", "generation": 1, "resourceSliceCount": 1}
    slice_spec = {"driver": DRIVER, "nodeName": "node-a", "pool": pool, "devices": [published, second]}

    @in_running_cluster
    async def test(cluster: RunningCluster) -> None:
        async def create(kind: str, plural: str, name: str, spec: Any, scope: str = "") -> None:
            document = {
                "apiVersion": f"resource.k8s.io/{version}",
                "kind": kind,
                "metadata": {"name": name},
                "spec": spec,
            }
            await cluster.post(f"/apis/resource.k8s.io/{version}{scope}/{plural}", document)

        await cluster.create(node("node-a"))
        await create("DeviceClass", "deviceclasses", CLASS, {})
        await create("ResourceSlice", "resourceslices", "s", slice_spec)
        await create(
            "ResourceClaimTemplate", "resourceclaimtemplates", "gpu-template", {"spec": spec}, "/namespaces/default"
        )
        await cluster.create(templated_pod("p"))
        await cluster.running("p")
        allocation = (await cluster.claim_of("p", "gpu")).status.allocation
        assert allocation is not None
        assert [result.request for result in allocation.devices.results] == ["plain", "listed/one"]

    test()


@in_running_cluster
async def test_P32_the_claim_of_a_pod_with_the_longest_names_gets_a_shortened_name(cluster: RunningCluster) -> None:
    await create_nodes(cluster, "node-a")
    long_pod, long_entry = "p" * 63, "e" * 63
    await cluster.create(claim_template("gpu-template", request()), templated_pod(long_pod, long_entry))
    await cluster.running(long_pod)
    made = await cluster.claim_of(long_pod, long_entry)
    assert len(made.metadata.name) <= 63
    assert made.metadata.name.startswith("ppp")


@in_running_cluster
async def test_P33_a_quota_for_claims_is_enforced_and_released_quota_can_be_used_again(
    cluster: RunningCluster,
) -> None:
    quota = {"hard": {"count/resourceclaims.resource.k8s.io": "1"}}
    await cluster.create({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": quota})
    await cluster.create(claim("first", request()))
    with pytest.raises(Forbidden, match="exceeded quota"):
        await cluster.create(claim("second", request()))
    await cluster.client.delete(ResourceClaim, "first")
    await cluster.create(claim("second", request()))


# --- Deallocation ---------------------------------------------------------------------------------------------------


@in_running_cluster
async def test_P11_a_completed_pod_is_removed_from_reservedFor(cluster: RunningCluster) -> None:
    await create_nodes(cluster, "node-a")
    await cluster.create(claim("c", request()), our_pod("p", "c"))
    await cluster.running("p")
    await cluster.end_pod("p")
    await cluster.claim_where("c", is_free)
    assert (await cluster.client.get(Pod, "p")).status.phase == "Succeeded"


@in_running_cluster
async def test_P12_a_claim_from_a_template_is_deleted_when_its_pod_completes(cluster: RunningCluster) -> None:
    await create_nodes(cluster, "node-a")
    await cluster.create(claim_template("gpu-template", request()), templated_pod("p"))
    await cluster.running("p")
    made = await cluster.claim_of("p", "gpu")
    await cluster.end_pod("p")
    await cluster.until_gone(made.metadata.name, ResourceClaim)


@in_running_cluster
async def test_P13_a_claim_from_a_template_stays_while_containers_restart(cluster: RunningCluster) -> None:
    await create_nodes(cluster, "node-a", gpus_each=2)
    await cluster.create(claim_template("gpu-template", request()), templated_pod("p"))
    await cluster.running("p")
    before = await cluster.claim_of("p", "gpu")
    restarted = {
        "containerStatuses": [{"name": "main", "restartCount": 1, "ready": False, "image": "i", "imageID": ""}]
    }
    await cluster.client.patch(Pod, "p", {"status": restarted}, subresource="status")
    # Once the claim of a later pod is deleted, the controllers have seen the restart.
    await cluster.create(templated_pod("later"))
    await cluster.running("later")
    await cluster.end_pod("later")
    await cluster.until_gone((await cluster.claim_of("later", "gpu")).metadata.name, ResourceClaim)
    after = await cluster.claim_of("p", "gpu")
    assert after == before


@in_running_cluster
async def test_P19_five_pods_use_one_device_one_after_the_other(cluster: RunningCluster) -> None:
    await create_nodes(cluster, "node-a")
    await cluster.create(
        claim_template("gpu-template", request()), *(templated_pod(f"p{number}") for number in range(5))
    )
    waiting = {asyncio.create_task(cluster.running(f"p{number}")) for number in range(5)}
    while waiting:
        done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        assert len(done) == 1, "there is one device"
        await cluster.end_pod(done.pop().result().metadata.name)


@in_running_cluster
async def test_P25_a_claim_is_deallocated_after_its_pod_is_deleted(cluster: RunningCluster) -> None:
    await create_nodes(cluster, "node-a")
    await cluster.create(claim("c", request()), our_pod("p", "c"))
    await cluster.running("p")
    await cluster.delete_pod("p")
    stored = await cluster.claim_where("c", is_free)
    assert stored.metadata.deletion_timestamp is None


# --- Binding conditions ---------------------------------------------------------------------------------------------


async def report(cluster: RunningCluster, name: str, condition: str) -> None:
    """Writes a condition of the claim's device, like its driver."""
    stored = await cluster.claim_where(name, lambda item: item.status.allocation is not None)
    assert stored.status.allocation is not None
    (result,) = stored.status.allocation.devices.results
    conditions = [
        {
            "type": condition,
            "status": "True",
            "reason": "Test",
            "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
    ]
    entry = {"driver": result.driver, "pool": result.pool, "device": result.device, "conditions": conditions}
    await cluster.client.patch(ResourceClaim, name, {"status": {"devices": [entry]}}, subresource="status")


def slow_gpu(node_name: str) -> ResourceSlice:
    attached = device("gpu-0", binding_conditions=["ready"])
    return resource_slice(f"gpus-of-{node_name}", attached, pool=node_name, node_name=node_name)


@in_running_cluster
async def test_B1_a_pod_is_bound_when_its_binding_conditions_are_met(cluster: RunningCluster) -> None:
    await cluster.create(device_class(), node("node-a"), slow_gpu("node-a"), claim("c", request()), our_pod("p", "c"))
    await cluster.claim_where("c", lambda item: item.status.allocation is not None)
    assert (await cluster.client.get(Pod, "p")).spec.node_name == ""
    await report(cluster, "c", "ready")
    await cluster.running("p")


@in_running_cluster
async def test_B1_a_device_whose_binding_fails_is_deallocated_and_another_one_is_tried(
    cluster: RunningCluster,
) -> None:
    await cluster.create(device_class(), node("node-a"), slow_gpu("node-a"), claim("c", request()), our_pod("p", "c"))
    await cluster.claim_where("c", lambda item: item.status.allocation is not None)
    await cluster.create(node("node-b"), gpus("node-b"))
    await report(cluster, "c", "failed")
    assert (await cluster.running("p")).spec.node_name == "node-b"
