"""Jobs whose pods are a group (gate WorkloadWithJob), over HTTP. docs/quality/parity.md says what their ids are."""

from __future__ import annotations

from typing import Any

import pytest

from dralloc.controllers.jobs.plan_groups import GROUP_TEMPLATE
from dralloc.kube.batch_v1 import Job
from dralloc.kube.pod_claims import group_name, group_reference
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.scheduling_v1beta1 import PodGroup, Workload
from dralloc.primitives.errors import Invalid
from dralloc.scheduler.settings import NAME
from dralloc.scheduler.state.group_members import MIN_COUNT_ANNOTATION
from dralloc.testing.builders import device, resource_slice
from tests.support.cluster import DEADLINE_S
from tests.support.running_cluster import RunningCluster, in_running_cluster_with
from tests.support.running_groups import GROUPS, JOBS, SHARED, create_node, group_where
from tests.support.scheduled_cluster import node
from tests.support.workloads import Document, job, pod_group, template

pytestmark = pytest.mark.slow

GANG: Document = {"schedulingPolicy": {"gang": {}}}


def ours(document: Document) -> Document:
    document["spec"]["template"]["spec"]["schedulerName"] = NAME
    return document


async def pods_of(cluster: RunningCluster, name: str, count: int) -> list[Pod]:
    """The pods of the job, as soon as it has so many."""
    for _ in range(int(DEADLINE_S * 4)):
        found = [each for each in await cluster.client.list(Pod) if each.metadata.name.startswith(f"{name}-")]
        if len(found) == count:
            return found
        await cluster.settle(0.25)
    raise AssertionError(f"job {name} has {len(found)} pods, not {count}")


@in_running_cluster_with(JOBS)
async def test_G6_a_job_is_a_gang_with_one_claim(cluster: RunningCluster) -> None:
    await create_node(cluster)
    scheduling = {
        "schedulingPolicy": {"gang": {}},
        "resourceClaims": [{"name": "shared", "resourceClaimTemplateName": "t"}],
    }
    await cluster.create(ours(job("train", SHARED, parallelism=3, completions=3, scheduling=scheduling)))
    pods = await pods_of(cluster, "train", 3)
    for each in pods:
        await cluster.running(each.metadata.name)
    (group,) = await cluster.client.list(PodGroup)
    assert {group_name(each) for each in pods} == {group.metadata.name}
    (made,) = await cluster.claims()
    assert made.status.reserved_for == (group_reference(group),)


@in_running_cluster_with(JOBS)
async def test_G22_the_group_of_a_job_by_what_the_job_says(cluster: RunningCluster) -> None:
    """Single pods without `scheduling`; none if the template names a group; the size of a gang follows the job."""
    await create_node(cluster)
    own = ours(job("own", parallelism=1))
    own["spec"]["template"]["spec"]["schedulingGroup"] = {"podGroupName": "mine"}
    await cluster.create(pod_group("mine"), own, ours(job("plain", parallelism=2)))
    assert {group_name(each) for each in await pods_of(cluster, "own", 1)} == {"mine"}
    (name,) = {group_name(each) for each in await pods_of(cluster, "plain", 2)}
    made, plain = await cluster.client.get(PodGroup, name), await cluster.client.get(Job, "plain")
    assert made.spec.scheduling_policy.basic is not None
    (workload,) = await cluster.client.list(Workload)
    assert [(each.kind, each.uid, each.controller) for each in made.metadata.owner_references] == [
        ("Job", plain.metadata.uid, True),
        ("Workload", workload.metadata.uid, None),
    ]
    assert made.spec.workload_ref is not None
    assert (made.spec.workload_ref.template_name, workload.metadata.name[:6]) == ("plain-pgt-0", "plain-")
    assert {each.reason for each in await cluster.events_of("plain")} >= {"WorkloadCreated", "PodGroupCreated"}
    await cluster.create(ours(job("train", parallelism=2, scheduling=GANG)))
    (name,) = {group_name(each) for each in await pods_of(cluster, "train", 2)}
    assert (await cluster.client.get(PodGroup, name)).min_count == 2
    await cluster.client.patch(Job, "train", {"spec": {"parallelism": 1}})
    group = await group_where(cluster, lambda group: group.min_count == 1, name)
    assert group.spec.workload_ref is not None
    workload = await cluster.client.get(Workload, group.spec.workload_ref.workload_name)
    (entry,) = workload.spec.pod_group_templates or ()
    assert entry.scheduling_policy.gang is not None
    assert entry.scheduling_policy.gang.min_count == 1
    too_large: dict[str, Any] = {"schedulingPolicy": {"gang": {"minCount": 3}}}
    with pytest.raises(Invalid, match=r"spec.scheduling.schedulingPolicy.gang.minCount"):
        await cluster.create(job("wrong", parallelism=2, scheduling=too_large))


@in_running_cluster_with(JOBS)
async def test_G23_a_job_of_another_object_gets_its_group_from_the_workload_of_that_object(
    cluster: RunningCluster,
) -> None:
    await create_node(cluster)
    owner = {"apiVersion": "example.com/v1", "kind": "Trainer", "name": "big", "uid": "uid-of-big", "controller": True}
    kind = {"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "Workload", "metadata": {"name": "big"}}
    spec = {
        "controllerRef": {"apiGroup": "example.com", "kind": "Trainer", "name": "big"},
        "podGroupTemplates": [{"name": "workers", "schedulingPolicy": {"gang": {"minCount": 2}}}],
    }
    await cluster.create({**kind, "spec": spec})
    part = ours(job("part", parallelism=2, annotations={GROUP_TEMPLATE: "workers"}))
    alone = ours(job("alone", parallelism=1))
    for document in (part, alone):
        # Collected otherwise: there is no such owner.
        document["metadata"]["ownerReferences"] = [owner]
    await cluster.create(part, alone)
    (name,) = {group_name(each) for each in await pods_of(cluster, "part", 2)}
    group = await cluster.client.get(PodGroup, name)
    assert ([each.kind for each in group.metadata.owner_references], group.min_count) == (["Job"], 2)
    assert {group_name(each) for each in await pods_of(cluster, "alone", 1)} == {""}


@in_running_cluster_with(JOBS)
async def test_KEP_5729_upgrade_jobs_keep_their_groups_while_the_gate_is_off(cluster: RunningCluster) -> None:
    await create_node(cluster)
    await cluster.create(ours(job("train", parallelism=1, scheduling=GANG)))
    (pod,) = await pods_of(cluster, "train", 1)
    await cluster.running(pod.metadata.name)
    for restart in (cluster.serve, cluster.control, cluster.schedule):
        await restart(GROUPS)
    await cluster.create(ours(job("plain", parallelism=1)))
    (plain,) = await pods_of(cluster, "plain", 1)
    await cluster.running(plain.metadata.name)
    assert group_name(plain) == ""
    assert (await cluster.client.get(Job, "train")).spec.scheduling is not None
    for restart in (cluster.serve, cluster.control, cluster.schedule):
        await restart(JOBS)
    # A job that ran without a group goes on without one; the other still has its own.
    await cluster.client.patch(Job, "plain", {"spec": {"parallelism": 2}})
    assert {group_name(each) for each in await pods_of(cluster, "plain", 2)} == {""}
    assert [each.spec.workload_ref is not None for each in await cluster.client.list(PodGroup)] == [True]


@in_running_cluster_with("")
async def test_G26_a_job_is_a_gang_by_an_annotation_without_any_gate(cluster: RunningCluster) -> None:
    """Its pods are placed together, or hold nothing; there is no PodGroup."""
    await create_node(cluster, devices=2)
    document = ours(job("train", {"own": template("t")}, parallelism=3, completions=3))
    document["spec"]["template"]["metadata"] = {"annotations": {MIN_COUNT_ANNOTATION: "3"}}
    await cluster.create(document)
    pods = await pods_of(cluster, "train", 3)
    # The last member that was tried has its own reason; the others have that of the gang.
    refusals = [await cluster.refused(each.metadata.name, "1 node: all 2 devices are in use") for each in pods]
    missing = "minCount (3) cannot be satisfied: 0 scheduled, 3 remaining"
    assert sorted(missing in refusal.message for refusal in refusals) == [False, True, True]
    assert not any(each.status.allocation for each in await cluster.claims())
    await cluster.create(node("node-b"), resource_slice("more", device("gpu-9"), pool="node-b", node_name="node-b"))
    for each in pods:
        await cluster.running(each.metadata.name)
