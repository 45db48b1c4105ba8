"""Claims of groups of pods, over HTTP. docs/quality/parity.md says what the ids in the test names are."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import pytest

from dralloc.kube.pod_claims import POD_CLAIM_NAME, group_reference
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import ResourceClaim
from dralloc.kube.scheduling_v1beta1 import PodGroup
from dralloc.rpc.plugin_services import NODE_PREPARE_RESOURCES, NODE_UNPREPARE_RESOURCES
from dralloc.testing.builders import claim, device, device_class, request, resource_slice
from tests.support.driver_cluster import NODE, DriverCluster, driver_cluster
from tests.support.running_cluster import RunningCluster, in_running_cluster_with
from tests.support.running_groups import GROUPS, SHARED, create_node, group_where, member, shared_claim
from tests.support.scripted_driver import ScriptedDriver
from tests.support.workloads import claim_template, existing, pod_group, template

pytestmark = pytest.mark.slow

LONG = "a-very-long-name-of-a-group-of-pods-that-train-a-model-together"


def names(group: PodGroup) -> dict[str, str | None]:
    return {each.name: each.resource_claim_name for each in group.status.resource_claim_statuses}


@in_running_cluster_with(GROUPS)
async def test_G18_the_claims_of_a_group_exist_before_its_pods(cluster: RunningCluster) -> None:
    """A missing template is told; a deleted claim is replaced, and the other one stays recorded; members have the same."""
    claims = {"one": template("t"), "two": template("t")}
    await cluster.create(pod_group("g", claims), pod_group(LONG, SHARED))

    async def told() -> list[tuple[str, str]]:
        return [(each.reason, each.message) for each in await cluster.events_of("g")]

    while not (events := await told()):
        await cluster.settle(0.1)
    missing = 'PodGroupResourceClaim one: resource claim template "t" not found'
    assert ("FailedResourceClaimCreation", missing) in events
    await create_node(cluster)
    before = names(await group_where(cluster, lambda group: len(names(group)) == 2))
    made = await cluster.claim(before["one"] or "")
    (owner,) = made.metadata.owner_references
    assert (owner.api_version, owner.kind, owner.name) == ("scheduling.k8s.io/v1beta1", "PodGroup", "g")
    assert (owner.controller, made.metadata.annotations) == (True, {POD_CLAIM_NAME: "one"})
    assert made.metadata.generate_name == "g-one-"
    assert len((await shared_claim(cluster, LONG)).metadata.name) <= 63
    await cluster.client.delete(ResourceClaim, before["one"] or "")
    after = names(await group_where(cluster, lambda group: names(group).get("one") not in (None, before["one"])))
    assert after["two"] == before["two"]
    await cluster.create(*(member(f"p{n}", claims) for n in range(2)))
    for n in range(2):
        pod = await cluster.running(f"p{n}")
        assert {each.name: each.resource_claim_name for each in pod.status.resource_claim_statuses} == after


@in_running_cluster_with(GROUPS)
async def test_G19_a_new_group_of_the_same_name_takes_over(cluster: RunningCluster) -> None:
    """The entry of the group that is gone is removed; a pod that has a node makes the claim reserved for the new group."""
    await create_node(cluster)
    shared = {"shared": existing("c")}
    await cluster.create(claim("c", request()), pod_group("g", shared), member("p0", shared))
    await cluster.running("p0")
    old = group_reference(await cluster.client.get(PodGroup, "g"))
    await cluster.client.delete(PodGroup, "g")
    await cluster.client.patch(PodGroup, "g", {"metadata": {"finalizers": None}})
    await cluster.create(pod_group("g", shared))
    new = group_reference(await cluster.client.get(PodGroup, "g"))
    assert new.uid != old.uid
    kept = await cluster.claim_where("c", lambda claim: claim.status.reserved_for == (new,))
    assert kept.status.allocation is not None


@in_running_cluster_with(GROUPS)
async def test_G20_an_entry_that_differs_from_the_groups_is_the_pods_own(cluster: RunningCluster) -> None:
    """Name and source must be the same. A pod that was bound by hand makes a claim reserved for its group."""
    await create_node(cluster, devices=4)
    await cluster.create(claim_template("other", request()), pod_group("g", SHARED))
    await cluster.create(member("p0", {**SHARED, "else": template("t")}), member("p1", {"shared": template("other")}))
    for name, entry in (("p0", "else"), ("p1", "shared")):
        await cluster.running(name)
        assert (await cluster.claim_of(name, entry)).metadata.owner_references[0].kind == "Pod"
    group = group_reference(await cluster.client.get(PodGroup, "g"))
    made = await shared_claim(cluster)
    assert made.status.reserved_for == (group,)
    by_hand = member("p2")
    await cluster.create({**by_hand, "spec": {**by_hand["spec"], "nodeName": "node-a"}})
    await cluster.running("p2")
    assert (await cluster.claim(made.metadata.name)).status.reserved_for == (group,)


def test_G21_a_node_prepares_the_claim_of_a_group_once_and_refuses_other_pods() -> None:
    """A kubelet knows groups only by the names that pods and claims have."""

    async def scenario(cluster: DriverCluster) -> None:
        async with ScriptedDriver(cluster.directory) as driver:
            await driver.until(lambda: (True, "") in driver.registrations)
            gpus = resource_slice("gpus", device("gpu-0"), driver="gpu.example.com", pool="pool-a", node_name=NODE)
            await cluster.create(gpus, device_class(), claim("c", request()))
            shared = {"shared": existing("c")}
            await cluster.create(pod_group("g", shared), *(member(f"p{n}", shared) for n in range(3)))
            for n in range(3):
                await cluster.pod_in(f"p{n}", "Running")
            assert len(driver.calls_of(NODE_PREPARE_RESOURCES)) == 1
            stranger = member("stranger", shared, group="other")
            await cluster.create({**stranger, "spec": {**stranger["spec"], "nodeName": NODE}})
            uid, of_claim = (await cluster.pod("stranger")).metadata.uid, (await cluster.claim("c")).metadata.uid
            says = f"pod stranger ({uid}) is not allowed to use ResourceClaim c ({of_claim})"
            while not any(says in each.message for each in await cluster.events_of("stranger")):
                await cluster.settle(0.1)
            for n in range(3):
                assert not driver.calls_of(NODE_UNPREPARE_RESOURCES)
                await cluster.client.delete(Pod, f"p{n}")
                await cluster.until_gone(f"p{n}")
            assert len(driver.calls_of(NODE_UNPREPARE_RESOURCES)) == 1

    async def run(directory: Path) -> None:
        async with driver_cluster(directory, runs_processes=False, gates=GROUPS) as cluster:
            await scenario(cluster)

    # Short, because the path of a socket is limited in length.
    with tempfile.TemporaryDirectory(prefix="d-") as path:
        asyncio.run(run(Path(path)))
