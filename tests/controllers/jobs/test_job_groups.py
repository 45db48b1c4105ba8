"""Jobs whose pods are a group: their Workload and PodGroup, against a real server in virtual time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from msgspec import to_builtins

from dralloc.client.api_calls import PatchType
from dralloc.controllers.jobs.plan_groups import GROUP_TEMPLATE
from dralloc.kube.batch_v1 import Job
from dralloc.kube.core_v1 import Event
from dralloc.kube.pod_claims import group_name
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.scheduling_v1beta1 import PodGroup, Workload
from dralloc.primitives.features import FeatureGates
from dralloc.testing.builders import request
from dralloc.testing.virtual_time import run_virtual
from tests.support.controlled_cluster import ControlledCluster, controlled_cluster
from tests.support.workloads import claim_template, job, pod_group, quota, template

Scenario = Callable[[ControlledCluster], Awaitable[None]]

GATES = "GenericWorkload=true,DRAWorkloadResourceClaims=true,WorkloadWithJob=true"
ONLY = ("jobs", "claim-templates", "claim-lifecycle", "pod-group-protection")
GANG: dict[str, Any] = {"schedulingPolicy": {"gang": {}}}


def play(scenario: Scenario, gates: str = GATES) -> None:
    async def main() -> None:
        async with controlled_cluster(only=ONLY, gates=FeatureGates.parse(gates)) as cluster:
            await scenario(cluster)

    run_virtual(main())


async def groups_of_pods(cluster: ControlledCluster) -> set[str]:
    return {group_name(pod) for pod in await cluster.client.list(Pod)}


async def events_of(cluster: ControlledCluster, name: str) -> set[str]:
    return {event.reason for event in await cluster.client.list(Event) if event.involved_object.name == name}


def test_a_job_gets_a_workload_and_a_group_that_its_pods_belong_to() -> None:
    async def scenario(cluster: ControlledCluster) -> None:
        shared = {"name": "shared", **template("t")}
        await cluster.create(claim_template("t", request()))
        scheduling = {**GANG, "disruptionMode": {"all": {}}, "resourceClaims": [shared]}
        await cluster.create(job("train", {"shared": template("t")}, parallelism=3, scheduling=scheduling))
        await cluster.settle()
        made = await cluster.client.get(Job, "train")
        (workload,) = await cluster.client.list(Workload)
        (group,) = await cluster.client.list(PodGroup)
        assert workload.metadata.name.startswith("train-")
        assert to_builtins(workload.spec.controller_ref) == {"apiGroup": "batch", "kind": "Job", "name": "train"}
        (entry,) = workload.spec.pod_group_templates or ()
        assert entry.name == "train-pgt-0"
        assert group.spec.workload_ref is not None
        assert (group.spec.workload_ref.workload_name, group.spec.workload_ref.template_name) == (
            workload.metadata.name,
            entry.name,
        )
        assert group.min_count == 3
        assert group.spec.disruption_mode is not None
        assert group.spec.disruption_mode.all is not None
        assert [(owner.kind, owner.uid, owner.controller) for owner in group.metadata.owner_references] == [
            ("Job", made.metadata.uid, True),
            ("Workload", workload.metadata.uid, None),
        ]
        assert await groups_of_pods(cluster) == {group.metadata.name}
        assert len(await cluster.client.list(Pod)) == 3
        assert [claim.metadata.owner_references[0].kind for claim in await cluster.claims()] == ["PodGroup"]
        assert await events_of(cluster, "train") == {"WorkloadCreated", "PodGroupCreated"}

    play(scenario)


def test_the_size_of_a_gang_follows_the_job() -> None:
    async def scenario(cluster: ControlledCluster) -> None:
        await cluster.create(job("train", parallelism=4, scheduling=GANG))
        await cluster.settle()
        await cluster.client.patch(Job, "train", {"spec": {"parallelism": 2}})
        await cluster.settle()
        (workload,) = await cluster.client.list(Workload)
        (group,) = await cluster.client.list(PodGroup)
        assert group.min_count == 2
        (entry,) = workload.spec.pod_group_templates or ()
        assert entry.scheduling_policy.gang is not None
        assert entry.scheduling_policy.gang.min_count == 2

    play(scenario)


def test_a_job_without_scheduling_has_a_group_of_single_pods() -> None:
    async def scenario(cluster: ControlledCluster) -> None:
        await cluster.create(job("plain", parallelism=2))
        await cluster.settle()
        (group,) = await cluster.client.list(PodGroup)
        assert group.spec.scheduling_policy.basic is not None
        assert await groups_of_pods(cluster) == {group.metadata.name}

    play(scenario)


def test_a_finished_job_takes_its_group_along() -> None:
    async def scenario(cluster: ControlledCluster) -> None:
        await cluster.create(job("train", parallelism=2, completions=2, scheduling=GANG, ttlSecondsAfterFinished=60))
        await cluster.settle()
        for pod in await cluster.client.list(Pod):
            await cluster.end_pod(pod.metadata.name)
        await cluster.settle(30)
        assert (await cluster.client.get(Job, "train")).is_finished
        await cluster.settle(120)
        for kind in (Job, Workload, PodGroup, Pod):
            assert await cluster.client.list(kind) == ()

    play(scenario)


def own_group(cluster: ControlledCluster) -> Awaitable[Any]:
    document = job("own", parallelism=1)
    document["spec"]["template"]["spec"]["schedulingGroup"] = {"podGroupName": "mine"}
    return cluster.create(pod_group("mine"), document)


async def started(cluster: ControlledCluster) -> None:
    await cluster.kill()
    await cluster.create(job("old", parallelism=1))
    status = {"status": {"startTime": "2026-01-01T00:00:00Z"}}
    await cluster.client.patch(Job, "old", status, subresource="status")
    cluster.start()


@pytest.mark.parametrize(("begin", "want"), [(own_group, {"mine"}), (started, {""})])
def test_jobs_that_get_no_group(begin: Callable[[ControlledCluster], Awaitable[Any]], want: set[str]) -> None:
    async def scenario(cluster: ControlledCluster) -> None:
        await begin(cluster)
        await cluster.settle()
        assert await groups_of_pods(cluster) == want
        assert await cluster.client.list(Workload) == ()

    play(scenario)


def test_without_the_gate_a_job_gets_no_group() -> None:
    async def scenario(cluster: ControlledCluster) -> None:
        await cluster.create(job("plain", parallelism=1))
        await cluster.settle()
        assert await groups_of_pods(cluster) == {""}
        assert await cluster.client.list(PodGroup) == ()

    play(scenario, "GenericWorkload=true")


def test_a_job_of_another_object_waits_for_the_workload_of_that_object() -> None:
    async def scenario(cluster: ControlledCluster) -> None:
        owner = {"apiVersion": "example.com/v1", "kind": "Trainer", "name": "big", "uid": "uid-of-big"}
        document = job("part", parallelism=2, annotations={GROUP_TEMPLATE: "workers"})
        document["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
        await cluster.create(document)
        await cluster.settle()
        assert await cluster.client.list(Pod) == ()
        assert await events_of(cluster, "part") == {"FailedWorkloadCompilation"}
        workload = {
            "apiVersion": "scheduling.k8s.io/v1beta1",
            "kind": "Workload",
            "metadata": {"name": "big", "namespace": "default"},
            "spec": {
                "controllerRef": {"apiGroup": "example.com", "kind": "Trainer", "name": "big"},
                "podGroupTemplates": [{"name": "workers", "schedulingPolicy": {"gang": {"minCount": 2}}}],
            },
        }
        await cluster.create(workload)
        await cluster.settle(20)
        (group,) = await cluster.client.list(PodGroup)
        assert [reference.kind for reference in group.metadata.owner_references] == ["Job"]
        assert group.min_count == 2
        assert await groups_of_pods(cluster) == {group.metadata.name}
        path = [{"op": "replace", "path": "/spec/podGroupTemplates/0/schedulingPolicy/gang/minCount", "value": 1}]
        await cluster.client.patch(Workload, "big", path, type=PatchType.JSON)
        await cluster.client.patch(Job, "part", {"metadata": {"labels": {"a": "b"}}})
        await cluster.settle(20)
        (group,) = await cluster.client.list(PodGroup)
        assert group.min_count == 1

    play(scenario)


def test_a_refused_workload_is_reported_and_no_pod_starts() -> None:
    async def scenario(cluster: ControlledCluster) -> None:
        await cluster.create(quota("none", {"count/workloads.scheduling.k8s.io": "0"}))
        await cluster.create(job("train", parallelism=1, scheduling=GANG))
        await cluster.settle(120)
        assert await cluster.client.list(Pod) == ()
        assert await events_of(cluster, "train") == {"FailedWorkloadCreate"}

    play(scenario)
