"""Taints and admin access over HTTP. docs/quality/parity.md says what the ids in the test names are."""

from __future__ import annotations

from typing import Any

import pytest

from dralloc.kube.core_v1 import Namespace
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import DeviceTaint, DeviceTaintRule, DeviceToleration, ResourceClaim, ResourceSlice
from dralloc.primitives.errors import ApiError
from dralloc.testing.builders import (
    DRIVER,
    claim,
    device,
    device_class,
    request,
    resource_slice,
    taint,
    taint_rule,
    toleration,
)
from tests.support.running_cluster import RunningCluster, in_running_cluster
from tests.support.scheduled_cluster import node, our_pod
from tests.support.workloads import claim_template, pod, template

pytestmark = pytest.mark.slow


def gpu(*taints: DeviceTaint) -> ResourceSlice:
    return resource_slice("gpus", device("gpu-0", taints=taints), node_name="node-a", pool="node-a")


async def create_user(cluster: RunningCluster, name: str, *tolerations: DeviceToleration) -> None:
    await cluster.create(claim(name, request(tolerations=tolerations)), our_pod(name, name))


@in_running_cluster
async def test_X1_a_pod_waits_if_all_devices_are_tainted(cluster: RunningCluster) -> None:
    await cluster.create(device_class(), node("node-a"), gpu(taint("sick", effect="NoSchedule")))
    await create_user(cluster, "p")
    assert (await cluster.refused("p")).reason == "Unschedulable"
    await cluster.client.patch(ResourceSlice, "gpus", {"spec": {"devices": [{"name": "gpu-0"}]}})
    await cluster.running("p")


@in_running_cluster
async def test_X2_a_toleration_of_an_effect_without_a_key_is_enough(cluster: RunningCluster) -> None:
    await cluster.create(device_class(), node("node-a"), gpu(taint("sick", effect="NoSchedule")))
    await create_user(cluster, "p", toleration(effect="NoSchedule"))
    await cluster.running("p")


@in_running_cluster
async def test_X3_a_taint_rule_for_a_driver_evicts_the_pods_that_use_its_devices(cluster: RunningCluster) -> None:
    await cluster.create(device_class(), node("node-a"), gpu())
    await create_user(cluster, "p")
    await cluster.running("p")
    await cluster.create(taint_rule("drain", taint("drain", effect="NoExecute"), driver=DRIVER))
    assert (await cluster.client.get(DeviceTaintRule, "drain")).spec.taint.time_added
    disrupted: list[Any] = []

    def is_gone(seen: Pod | None) -> bool:
        if seen is not None:
            disrupted.extend(one for one in seen.status.conditions if one.type == "DisruptionTarget")
        return seen is None

    await cluster.until(Pod, "p", is_gone)
    assert disrupted[0].reason == "DeletionByDeviceTaintManager"
    await cluster.claim_where("p", lambda stored: stored.status.allocation is None)


@in_running_cluster
async def test_X4_a_NoExecute_taint_also_rejects_new_pods(cluster: RunningCluster) -> None:
    await cluster.create(device_class(), node("node-a"), gpu(taint("sick", effect="NoExecute")))
    await create_user(cluster, "p")
    assert (await cluster.refused("p")).reason == "Unschedulable"


@in_running_cluster
async def test_X5_a_pod_that_tolerates_eviction_keeps_running(cluster: RunningCluster) -> None:
    await cluster.create(device_class(), node("node-a"), gpu(taint("sick", effect="NoExecute")))
    await create_user(cluster, "p", toleration(effect="NoExecute"))
    await cluster.running("p")
    # Once the controllers have handled a later rule, they have handled the taint.
    await cluster.create(taint_rule("later", taint("later", effect="NoExecute"), driver="other.example.com"))
    await cluster.until(DeviceTaintRule, "later", lambda rule: rule is not None and bool(rule.status.conditions))
    assert not (await cluster.client.get(Pod, "p")).is_terminating


@in_running_cluster
async def test_A1_admin_access_needs_a_labelled_namespace(cluster: RunningCluster) -> None:
    asked = request(admin=True)
    for item in (claim("c", asked), claim_template("t", asked)):
        with pytest.raises(ApiError, match="admin"):
            await cluster.create(item)
    label = {"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}}
    await cluster.client.patch(Namespace, "default", label)
    await cluster.create(claim("c", asked), claim_template("t", asked))


@in_running_cluster
async def test_A2_a_pod_with_admin_access_runs_beside_the_pod_that_holds_the_device(cluster: RunningCluster) -> None:
    label = {"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}}
    await cluster.client.patch(Namespace, "default", label)
    await cluster.create(device_class(), node("node-a"), gpu())
    await create_user(cluster, "user")
    await cluster.running("user")
    await cluster.create(claim_template("t", request(admin=True)))
    await cluster.create(pod("admin", {"gpu": template("t")}, scheduler="dralloc"))
    await cluster.running("admin")
    seen = (await cluster.claim_of("admin", "gpu")).status.allocation
    assert seen is not None
    assert [(result.device, result.admin_access) for result in seen.devices.results] == [("gpu-0", True)]


@in_running_cluster
async def test_A3_a_device_with_admin_access_can_still_be_allocated(cluster: RunningCluster) -> None:
    label = {"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}}
    await cluster.client.patch(Namespace, "default", label)
    await cluster.create(device_class(), node("node-a"), gpu())
    await cluster.create(claim("admin", request(admin=True)), our_pod("admin", "admin"))
    await cluster.running("admin")
    await create_user(cluster, "user")
    await cluster.running("user")
    held = await cluster.client.list(ResourceClaim)
    assert all(item.status.allocation is not None for item in held)
