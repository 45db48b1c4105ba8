"""Pods with persistent volumes on a running cluster. The test plays the controller of persistent volumes."""

from __future__ import annotations

from typing import Any

from dralloc.client.known_resources import resource_read_as
from dralloc.client.typed_resource import ObjectKey
from dralloc.kube.core_v1 import Node
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.storage_v1 import CSINode
from dralloc.kube.volume_claims import BIND_COMPLETED, BOUND_BY_CONTROLLER, SELECTED_NODE
from dralloc.kube.volumes_v1 import PersistentVolume, PersistentVolumeClaim
from dralloc.scheduler.bind.volume_writer import TIMEOUT_S
from tests.support.scheduled_cluster import ScheduledCluster, in_cluster, node, our_pod
from tests.support.volumes import csi, csi_node, storage_class, using, volume, volume_claim
from tests.support.workloads import Document

VOLUMES = resource_read_as(PersistentVolume)
CLAIMS = resource_read_as(PersistentVolumeClaim)
REMOTE = storage_class("remote", "d.io")


async def add(cluster: ScheduledCluster, *documents: Document) -> None:
    """Creates the objects; their status is written as a controller does it."""
    await cluster.create(*documents)
    calls = cluster.calls()
    for document in documents:
        resource = {"PersistentVolume": VOLUMES, "PersistentVolumeClaim": CLAIMS}.get(document["kind"])
        if resource is not None:
            status = {"status": document["status"]}
            await calls.patch(resource, key_of(document), status, subresource="status")


def key_of(document: Document) -> ObjectKey:
    return ObjectKey(document["metadata"].get("namespace", ""), document["metadata"]["name"])


async def patch_claim(cluster: ScheduledCluster, name: str, patch: Document) -> None:
    await cluster.calls().patch(CLAIMS, ObjectKey("default", name), patch)


async def bind(cluster: ScheduledCluster, claim: str, volume: str) -> None:
    annotations = {BIND_COMPLETED: "yes"}
    await patch_claim(cluster, claim, {"metadata": {"annotations": annotations}, "spec": {"volumeName": volume}})


async def claim_of(cluster: ScheduledCluster, name: str) -> PersistentVolumeClaim:
    return await cluster.calls().get(CLAIMS, ObjectKey("default", name))


async def volume_of(cluster: ScheduledCluster, name: str) -> PersistentVolume:
    return await cluster.calls().get(VOLUMES, ObjectKey("", name))


@in_cluster()
async def test_a_pod_goes_where_its_volume_is(cluster: ScheduledCluster) -> None:
    await add(cluster, node("a"), node("b"), volume("v", hosts=["b"]), volume_claim("data", bound_to="v"))
    await cluster.create(using(our_pod("p"), "data"))
    await cluster.settle()
    assert await cluster.node_of("p") == "b"


@in_cluster()
async def test_a_chosen_volume_is_written_and_the_pod_waits_until_the_claim_is_bound(cluster: ScheduledCluster) -> None:
    await add(cluster, node("a"), storage_class(), volume("v"), volume_claim("data"), using(our_pod("p"), "data"))
    await cluster.settle()
    assert await cluster.node_of("p") == ""
    written = await volume_of(cluster, "v")
    reference, claim = written.spec.claim_ref, await claim_of(cluster, "data")
    assert reference is not None
    assert (reference.kind, reference.api_version, reference.namespace) == ("PersistentVolumeClaim", "v1", "default")
    assert (reference.name, reference.uid) == ("data", claim.metadata.uid)
    assert written.metadata.annotations == {BOUND_BY_CONTROLLER: "yes"}
    assert claim.metadata.annotations.get(SELECTED_NODE) is None
    await bind(cluster, "data", "v")
    await cluster.settle()
    assert await cluster.node_of("p") == "a"


@in_cluster()
async def test_a_volume_that_a_user_kept_for_the_claim_is_not_marked(cluster: ScheduledCluster) -> None:
    kept = volume("v", claimRef={"namespace": "default", "name": "data"})
    await add(cluster, node("a"), storage_class(), kept, volume_claim("data"), using(our_pod("p"), "data"))
    await cluster.settle()
    written = await volume_of(cluster, "v")
    assert written.metadata.annotations == {}
    assert written.spec.claim_ref is not None
    assert written.spec.claim_ref.uid == (await claim_of(cluster, "data")).metadata.uid


@in_cluster()
async def test_a_new_volume_is_made_for_the_node_of_the_pod(cluster: ScheduledCluster) -> None:
    await add(cluster, node("a"), REMOTE, volume_claim("data", storage_class="remote"), using(our_pod("p"), "data"))
    await cluster.settle()
    assert (await claim_of(cluster, "data")).metadata.annotations == {SELECTED_NODE: "a"}
    await add(cluster, volume("made", storage_class="remote", hosts=["a"], csi=csi("d.io", "1")))
    await bind(cluster, "data", "made")
    await cluster.settle()
    assert await cluster.node_of("p") == "a"


@in_cluster()
async def test_a_provisioner_that_fails_sends_the_pod_to_another_attempt(cluster: ScheduledCluster) -> None:
    await add(cluster, node("a"), REMOTE, volume_claim("data", storage_class="remote"), using(our_pod("p"), "data"))
    await cluster.settle()
    await patch_claim(cluster, "data", {"metadata": {"annotations": {SELECTED_NODE: None}}})
    await cluster.settle(0.5)
    told = await cluster.condition("p")
    assert (told.reason, told.message) == ("SchedulerError", 'binding volumes: provisioning failed for PVC "data"')
    await cluster.settle(20)
    # The next attempt selects a node again.
    assert (await claim_of(cluster, "data")).metadata.annotations == {SELECTED_NODE: "a"}


@in_cluster()
async def test_the_wait_for_a_binding_ends(cluster: ScheduledCluster) -> None:
    await add(cluster, node("a"), REMOTE, volume_claim("data", storage_class="remote"), using(our_pod("p"), "data"))
    await cluster.settle(TIMEOUT_S - 10)
    assert not any(each.type == "PodScheduled" for each in (await cluster.client.get(Pod, "p")).status.conditions)
    await cluster.settle(15)
    assert (await cluster.condition("p")).message == "binding volumes: not bound within 600 s"


@in_cluster()
async def test_the_wait_ends_with_the_pod(cluster: ScheduledCluster) -> None:
    small = using(our_pod("p", requests={"cpu": "3"}), "data")
    await add(cluster, node("a"), REMOTE, volume_claim("data", storage_class="remote"), small)
    await cluster.settle()
    await cluster.create(our_pod("q", requests={"cpu": "3"}))
    await cluster.settle()
    assert await cluster.node_of("q") == ""
    await cluster.client.delete(Pod, "p")
    await cluster.settle()
    assert await cluster.node_of("q") == "a"


@in_cluster()
async def test_two_pods_do_not_get_the_same_volume(cluster: ScheduledCluster) -> None:
    volumes = [volume("v1", hosts=["a"]), volume("v2", hosts=["b"])]
    claims = [volume_claim("one"), volume_claim("two")]
    await add(cluster, node("a"), node("b"), storage_class(), *volumes, *claims)
    await cluster.create(using(our_pod("p"), "one"), using(our_pod("q"), "two"))
    await cluster.settle()
    references = [(await volume_of(cluster, name)).spec.claim_ref for name in ("v1", "v2")]
    assert sorted(each.name for each in references if each is not None) == ["one", "two"]


@in_cluster()
async def test_what_wakes_a_pod(cluster: ScheduledCluster) -> None:
    """Each missing part is added in turn; the pod's condition follows."""
    await cluster.create(node("a", labels={"zone": "z"}), using(our_pod("p"), "data"))
    steps: list[tuple[str, Any]] = [
        ('persistentvolumeclaim "data" not found', volume_claim("data")),
        ("pod has unbound immediate PersistentVolumeClaims", storage_class()),
        (
            "1 node: didn't find available persistent volumes to bind (claim default/data)",
            volume("v", hosts=["a"]),
        ),
    ]
    for told, missing in steps:
        await cluster.settle(12)
        assert (await cluster.condition("p")).message == f"0/1 nodes are available: {told}"
        await add(cluster, missing)
    await cluster.settle(12)
    await bind(cluster, "data", "v")
    await cluster.settle()
    assert await cluster.node_of("p") == "a"


@in_cluster()
async def test_a_claim_for_one_pod_is_free_when_the_pod_ends(cluster: ScheduledCluster) -> None:
    once = volume_claim("data", bound_to="v", modes=["ReadWriteOncePod"])
    await add(cluster, node("a"), volume("v"), once, using(our_pod("p"), "data"))
    await cluster.settle()
    await cluster.create(using(our_pod("q"), "data"))
    await cluster.settle()
    assert (await cluster.node_of("p"), await cluster.node_of("q")) == ("a", "")
    assert "ReadWriteOncePod access mode already in-use" in (await cluster.condition("q")).message
    await cluster.client.patch(Pod, "p", {"status": {"phase": "Succeeded"}}, subresource="status")
    await cluster.settle()
    assert await cluster.node_of("q") == "a"


@in_cluster()
async def test_a_driver_that_gets_a_higher_limit_wakes_a_pod(cluster: ScheduledCluster) -> None:
    await add(cluster, node("a"), csi_node("a", d_io=0), volume("v", csi=csi("d.io", "1")))
    await add(cluster, volume_claim("data", bound_to="v"), using(our_pod("p"), "data"))
    await cluster.settle()
    told = "0/1 nodes are available: 1 node: exceed max volume count (driver d.io, limit 0)"
    assert (await cluster.condition("p")).message == told
    await cluster.client.patch(CSINode, "a", {"spec": csi_node("a", d_io=1)["spec"]})
    await cluster.settle()
    assert await cluster.node_of("p") == "a"


@in_cluster()
async def test_a_scheduler_that_starts_again_goes_on_with_the_same_volume(cluster: ScheduledCluster) -> None:
    volumes = [volume("v1", "6Gi"), volume("v2", "60Gi")]
    await add(cluster, node("a"), storage_class(), *volumes, volume_claim("data"), using(our_pod("p"), "data"))
    await cluster.settle()
    await cluster.restart()
    await cluster.settle()
    assert (await volume_of(cluster, "v2")).spec.claim_ref is None
    await bind(cluster, "data", "v1")
    await cluster.settle()
    assert await cluster.node_of("p") == "a"


@in_cluster()
async def test_the_wait_ends_with_the_node(cluster: ScheduledCluster) -> None:
    await add(cluster, node("a"), REMOTE, volume_claim("data", storage_class="remote"), using(our_pod("p"), "data"))
    await cluster.settle()
    await cluster.client.delete(Node, "a")
    await cluster.settle(0.5)
    assert (await cluster.condition("p")).message == 'binding volumes: failed to get node "a"'


@in_cluster(schedulers=2)
async def test_two_schedulers_do_not_give_a_volume_twice(cluster: ScheduledCluster) -> None:
    claims = [volume_claim(f"c{number}") for number in range(4)]
    volumes = [volume("v0"), volume("v1")]
    await add(cluster, node("a"), storage_class(), *volumes, *claims)
    await cluster.create(*(using(our_pod(f"p{number}"), f"c{number}") for number in range(4)))
    await cluster.settle(30)
    named = [(await volume_of(cluster, name)).spec.claim_ref for name in ("v0", "v1")]
    names = [each.name for each in named if each is not None]
    assert len(set(names)) == 2
    for name, claim in zip(("v0", "v1"), names, strict=True):
        await bind(cluster, claim, name)
    await cluster.settle(30)
    placed = {f"c{number}" for number in range(4) if await cluster.node_of(f"p{number}")}
    assert placed == set(names)
