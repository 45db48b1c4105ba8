"""Groups of pods and their claims over HTTP. docs/parity.md lists the behaviours by the ids in the test names."""

from __future__ import annotations

from typing import Any

import pytest

from dralloc.api.group_claims import group_reference
from dralloc.api.pod_claims import group_name, pod_reference
from dralloc.api.pod_v1 import Pod
from dralloc.api.resource_v1 import ResourceClaim
from dralloc.api.scheduling_v1beta1 import PodGroup
from dralloc.scheduler.settings import NAME
from dralloc.testing.builders import DRIVER, claim, device, device_class, request, resource_slice, taint, taint_rule
from tests.support.cluster import DEADLINE_S
from tests.support.running_cluster import RunningCluster, in_running_cluster_with
from tests.support.scheduled_cluster import node
from tests.support.workloads import claim_template, existing, job, pod, pod_group, template

pytestmark = pytest.mark.slow

GROUPS = "GenericWorkload=true,DRAWorkloadResourceClaims=true"
JOBS = f"{GROUPS},WorkloadWithJob=true"
SHARED = {"shared": template("t")}


async def create_node(cluster: RunningCluster, devices: int = 2) -> None:
    gpus = resource_slice("gpus", *(device(f"gpu-{n}") for n in range(devices)), pool="node-a", node_name="node-a")
    await cluster.create(device_class(), node("node-a", cpu="1000", pods="1000"), gpus)
    await cluster.create(claim_template("t", request()))


def member(name: str, claims: dict[str, Any] | None = None, group: str = "g") -> dict[str, Any]:
    return pod(name, SHARED if claims is None else claims, group=group, scheduler=NAME)


async def group_where(cluster: RunningCluster, matches: Any, name: str = "g") -> PodGroup:
    found = await cluster.until(PodGroup, name, lambda group: group is not None and matches(group))
    assert found is not None
    return found


async def shared_claim(cluster: RunningCluster, name: str = "g") -> ResourceClaim:
    group = await group_where(cluster, lambda group: group.status.resource_claim_statuses, name)
    made = group.status.resource_claim_statuses[0].resource_claim_name
    assert made is not None
    return await cluster.claim(made)


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
    await cluster.create(pod_group("g", SHARED), member("p0"), member("p1"))
    for name in ("p0", "p1"):
        await cluster.running(name)
    made = await shared_claim(cluster)
    await cluster.create(taint_rule("out", taint("broken", effect="NoExecute"), driver=DRIVER))
    for name in ("p0", "p1"):
        await cluster.until(Pod, name, lambda pod: pod is None or pod.is_terminating)
    assert (await cluster.claim(made.metadata.name)).status.reserved_for == made.status.reserved_for


@in_running_cluster_with(JOBS)
async def test_G6_a_job_is_a_gang_with_one_claim(cluster: RunningCluster) -> None:
    await create_node(cluster)
    scheduling = {
        "schedulingPolicy": {"gang": {}},
        "resourceClaims": [{"name": "shared", "resourceClaimTemplateName": "t"}],
    }
    document = job("train", SHARED, parallelism=3, completions=3, scheduling=scheduling)
    document["spec"]["template"]["spec"]["schedulerName"] = NAME
    await cluster.create(document)

    async def pods() -> list[Pod]:
        return list(await cluster.client.list(Pod))

    for _ in range(int(DEADLINE_S * 4)):
        if len(await pods()) == 3:
            break
        await cluster.settle(0.25)
    for each in await pods():
        await cluster.running(each.metadata.name)
    (group,) = await cluster.client.list(PodGroup)
    assert {group_name(each) for each in await pods()} == {group.metadata.name}
    (made,) = await cluster.claims()
    assert made.status.reserved_for == (group_reference(group),)


@in_running_cluster_with(GROUPS)
async def test_KEP_5729_upgrade_gates_off_and_on_again_keep_groups_and_reservations(cluster: RunningCluster) -> None:
    await create_node(cluster)
    await cluster.create(pod_group("g", SHARED), member("p0"))
    await cluster.running("p0")
    made = await shared_claim(cluster)
    # Everything without the gates: the running pod, its claim and the reservation stay.
    await cluster.serve("")
    await cluster.schedule("")
    await cluster.control("")
    await cluster.create(pod("plain", {"own": template("t")}, scheduler=NAME))
    await cluster.running("plain")
    assert (await cluster.claim(made.metadata.name)).status.reserved_for == made.status.reserved_for
    assert (await cluster.pod("p0")).status.phase == "Running"
    # And with them again: members join, and the group is released at its end.
    await cluster.serve(GROUPS)
    await cluster.schedule(GROUPS)
    await cluster.control(GROUPS)
    await cluster.create(member("p1"))
    await cluster.running("p1")
    assert (await cluster.claim(made.metadata.name)).status.reserved_for == made.status.reserved_for
    for name in ("p0", "p1"):
        await cluster.remove_pod(name)
    await cluster.client.delete(PodGroup, "g")
    await cluster.until_gone(made.metadata.name, ResourceClaim)
