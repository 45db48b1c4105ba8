"""Groups of pods and their claims over HTTP. docs/quality/parity.md says what the ids in the test names are."""

from __future__ import annotations

from typing import Any

import pytest

from dralloc.kube.pod_claims import group_reference, pod_reference
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import ResourceClaim
from dralloc.kube.scheduling_v1beta1 import PodGroup
from dralloc.primitives.errors import ApiError
from dralloc.testing.builders import DRIVER, claim, device, device_class, request, resource_slice, taint, taint_rule
from tests.support.cluster import DEADLINE_S
from tests.support.running_cluster import RunningCluster, in_running_cluster_with
from tests.support.running_groups import GROUPS, SHARED, create_node, group_where, member, shared_claim
from tests.support.scheduled_cluster import node
from tests.support.workloads import claim_template, existing, pod_group, template

pytestmark = pytest.mark.slow


@in_running_cluster_with(GROUPS)
async def test_G1_one_entry_of_a_claim_stands_for_300_pods_of_a_group(cluster: RunningCluster) -> None:
    """More pods than a claim can list; a claim of the pod's own lists the pod."""
    await create_node(cluster)
    await cluster.create(pod_group("g", SHARED))
    await cluster.create(member("own", {**SHARED, "mine": template("t")}))
    await cluster.create(*(member(f"p{n}") for n in range(299)))
    await cluster.running("own")
    for n in range(299):
        await cluster.running(f"p{n}")
    made, group = await shared_claim(cluster), await cluster.client.get(PodGroup, "g")
    assert made.status.reserved_for == (group_reference(group),)
    own = await cluster.claim_of("own", "mine")
    assert own.status.reserved_for == (pod_reference(await cluster.pod("own")),)


@in_running_cluster_with(GROUPS)
async def test_G2_the_reservation_outlives_the_pods_and_ends_with_the_group(cluster: RunningCluster) -> None:
    await create_node(cluster)
    await cluster.create(claim("c", request()), pod_group("g", {"shared": existing("c")}))
    for name in ("p0", "p1"):
        await cluster.create(member(name, {"shared": existing("c")}))
        await cluster.running(name)
    await cluster.client.delete(PodGroup, "g")
    await group_where(cluster, lambda group: group.metadata.deletion_timestamp is not None)
    await cluster.remove_pod("p0")
    assert len((await cluster.claim("c")).status.reserved_for) == 1
    await cluster.remove_pod("p1")
    await cluster.until_gone("g", PodGroup)
    await cluster.claim_where("c", lambda claim: not claim.status.reserved_for and claim.status.allocation is None)


@in_running_cluster_with(GROUPS)
async def test_G3_claims_from_templates_go_with_their_group(cluster: RunningCluster) -> None:
    await create_node(cluster)
    await cluster.create(pod_group("g", SHARED))
    made = await shared_claim(cluster)
    await cluster.client.delete(PodGroup, "g")
    await cluster.until_gone(made.metadata.name, ResourceClaim)


@in_running_cluster_with(GROUPS)
async def test_G4_members_wait_for_their_group(cluster: RunningCluster) -> None:
    await create_node(cluster)
    await cluster.create(member("p"))
    await cluster.refused("p")
    await cluster.create(pod_group("g", SHARED))
    await cluster.running("p")


@in_running_cluster_with(GROUPS)
async def test_G5_a_taint_evicts_the_members_and_leaves_the_reservation(cluster: RunningCluster) -> None:
    await create_node(cluster, devices=1)
    for name in ("p0", "p1"):
        document = member(name)
        # So that the pod can be looked at when it has ended.
        await cluster.create({**document, "metadata": {**document["metadata"], "finalizers": ["example.com/keep"]}})
    await cluster.create(pod_group("g", SHARED), member("beside", {}))
    for name in ("p0", "p1", "beside"):
        await cluster.running(name)
    made = await shared_claim(cluster)
    await cluster.create(taint_rule("out", taint("broken", effect="NoExecute"), driver=DRIVER))
    for name in ("p0", "p1"):
        pod = await cluster.until(Pod, name, lambda pod: pod is not None and pod.is_terminating)
        assert pod is not None
        (told,) = [each for each in pod.status.conditions if each.type == "DisruptionTarget"]
        assert (told.status, told.reason) == ("True", "DeletionByDeviceTaintManager")
        assert told.message == "Device Taint manager: deleting due to NoExecute taint"
        await cluster.client.patch(Pod, name, {"metadata": {"finalizers": None}})
    assert not (await cluster.pod("beside")).is_terminating
    assert (await cluster.claim(made.metadata.name)).status.reserved_for == made.status.reserved_for


def fault_at(path: str, kind: str) -> str:
    return f"{path}.*{kind}"


INVALID: dict[str, tuple[dict[str, Any], str]] = {
    "no policy": ({"schedulingPolicy": {}}, "spec.schedulingPolicy"),
    "two policies": ({"schedulingPolicy": {"basic": {}, "gang": {"minCount": 1}}}, "spec.schedulingPolicy"),
    "minCount 0": (
        {"schedulingPolicy": {"gang": {"minCount": 0}}},
        fault_at("spec.schedulingPolicy.gang.minCount", "Required"),
    ),
    "minCount below 0": ({"schedulingPolicy": {"gang": {"minCount": -1}}}, "spec.schedulingPolicy.gang.minCount"),
    "five claims": (
        {"resourceClaims": [{"name": f"c{n}", "resourceClaimName": "c"} for n in range(5)]},
        fault_at("spec.resourceClaims", "Too many"),
    ),
    "a name twice": (
        {"resourceClaims": [{"name": "c", "resourceClaimName": each} for each in ("a", "b")]},
        fault_at(r"spec.resourceClaims\[1\]", "Duplicate"),
    ),
    "no reference": ({"resourceClaims": [{"name": "c"}]}, r"spec.resourceClaims\[0\]"),
    "a workload without a template": ({"workloadRef": {"workloadName": "w"}}, "spec.workloadRef.templateName"),
}


@in_running_cluster_with(GROUPS)
async def test_G7_what_is_wrong_with_a_group_is_said_with_its_path(cluster: RunningCluster) -> None:
    for spec, says in INVALID.values():
        with pytest.raises(ApiError, match=says):
            await cluster.create(pod_group("g", **spec))
    await cluster.create(pod_group("g", min_count=2))
    # Only the number of pods can be changed.
    patches: tuple[dict[str, Any], ...] = (
        {"schedulingPolicy": {"gang": None, "basic": {}}},
        {"disruptionMode": {"single": None, "all": {}}},
    )
    for patch in patches:
        with pytest.raises(ApiError, match=r"spec\."):
            await cluster.client.patch(PodGroup, "g", {"spec": patch})
    await cluster.client.patch(PodGroup, "g", {"spec": {"schedulingPolicy": {"gang": {"minCount": 3}}}})
    assert (await cluster.client.get(PodGroup, "g")).min_count == 3
    status = {"status": {"resourceClaimStatuses": [{"name": "unknown", "resourceClaimName": "c"}]}}
    with pytest.raises(ApiError, match=r"status.resourceClaimStatuses\[0\].name"):
        await cluster.client.patch(PodGroup, "g", status, subresource="status")


@in_running_cluster_with(GROUPS)
async def test_G8_defaults_finalizer_and_priority_of_a_group(cluster: RunningCluster) -> None:
    kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
    await cluster.create({**kind, "metadata": {"name": "high"}, "value": 7}, pod_group("g", priorityClassName="high"))
    made = await cluster.client.get(PodGroup, "g")
    assert made.spec.disruption_mode is not None
    assert made.spec.disruption_mode.single is not None
    assert made.metadata.finalizers == ("scheduling.k8s.io/podgroup-protection",)
    assert made.spec.priority == 7
    with pytest.raises(ApiError, match="priority"):
        await cluster.create(pod_group("other", priorityClassName="high", priority=8))
    # A member cannot leave its group.
    await cluster.create(member("p", {}))
    with pytest.raises(ApiError, match="spec"):
        await cluster.client.patch(Pod, "p", {"spec": {"schedulingGroup": {"podGroupName": "other"}}})


@in_running_cluster_with(GROUPS)
async def test_G9_a_gang_is_placed_together_or_holds_nothing(cluster: RunningCluster) -> None:
    await create_node(cluster, devices=2)
    own = {"own": template("t")}
    await cluster.create(pod_group("g", min_count=3), *(member(f"p{n}", own) for n in range(3)))
    said = await cluster.refused("p0", "minCount (3) cannot be satisfied: 0 scheduled, 3 remaining")
    assert said.message.startswith("pod group is unschedulable")
    await group_where(cluster, lambda group: [each.reason for each in group.status.conditions] == ["Unschedulable"])
    assert not any(each.status.allocation for each in await cluster.claims())
    more = resource_slice("more", device("gpu-9"), pool="node-b", node_name="node-b")
    await cluster.create(node("node-b"), more)
    for n in range(3):
        await cluster.running(f"p{n}")
    await group_where(cluster, lambda group: [each.reason for each in group.status.conditions] == ["Scheduled"])


@in_running_cluster_with(GROUPS)
async def test_G10_200_pods_of_a_gang_share_one_claim(cluster: RunningCluster) -> None:
    """They are bound together, and no member loses a race for the claim."""
    fabric = resource_slice("fabric", device("tpu"), pool="fabric", all_nodes=True)
    nodes = [node(f"node-{n}", cpu="1000", pods="50") for n in range(5)]
    await cluster.create(device_class(), claim_template("t", request()), fabric, *nodes)
    await cluster.create(pod_group("g", SHARED, min_count=200))
    await cluster.create(*(member(f"p{n}") for n in range(200)))
    for _ in range(int(DEADLINE_S * 4)):
        if all(each.spec.node_name for each in await cluster.client.list(Pod)):
            break
        await cluster.settle(0.25)
    assert all(each.spec.node_name for each in await cluster.client.list(Pod))
    group = await group_where(cluster, lambda group: group.status.conditions)
    assert [each.reason for each in group.status.conditions] == ["Scheduled"]
    assert (await shared_claim(cluster)).status.reserved_for == (group_reference(group),)


@in_running_cluster_with(f"{GROUPS},TopologyAwareWorkloadScheduling=true")
async def test_G11_members_are_on_nodes_with_one_label(cluster: RunningCluster) -> None:
    zones = {"node-a": "east", "node-b": "west", "node-c": "west"}
    await cluster.create(device_class(), claim_template("t", request()))
    for name, zone in zones.items():
        gpu = resource_slice(name, device("gpu-0"), pool=name, node_name=name)
        await cluster.create(node(name, labels={"zone": zone}), gpu)
    constraints = {"topology": [{"key": "zone"}]}
    await cluster.create(pod_group("g", min_count=2, schedulingConstraints=constraints))
    await cluster.create(*(member(f"p{n}", {"own": template("t")}) for n in range(2)))
    assert {(await cluster.running(f"p{n}")).spec.node_name for n in range(2)} == {"node-b", "node-c"}
