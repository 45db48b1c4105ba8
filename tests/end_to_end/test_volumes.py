"""Persistent volumes over HTTP, with scheduler and controllers."""

from __future__ import annotations

import pytest

from dralloc.client.known_resources import resource_read_as
from dralloc.client.typed_resource import ObjectKey
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.volumes_v1 import PersistentVolume, PersistentVolumeClaim
from tests.support.running_cluster import RunningCluster, in_running_cluster
from tests.support.scheduled_cluster import node, our_pod
from tests.support.volumes import storage_class, using, volume, volume_claim

pytestmark = pytest.mark.slow

VOLUMES, CLAIMS = resource_read_as(PersistentVolume), resource_read_as(PersistentVolumeClaim)


async def phases(cluster: RunningCluster, claim: str, volume: str) -> tuple[str, str]:
    calls = cluster.calls()
    found = await calls.get(CLAIMS, ObjectKey("default", claim)), await calls.get(VOLUMES, ObjectKey("", volume))
    return found[0].status.phase, found[1].status.phase


@in_running_cluster
async def test_a_pod_with_a_claim_that_waits_for_it(cluster: RunningCluster) -> None:
    volumes = [volume("near", hosts=["b"], phase=""), volume("large", "80Gi", hosts=["a"], phase="")]
    await cluster.create(node("a", labels={"disk": "no"}), node("b"), storage_class(), *volumes, volume_claim("data"))
    picky = using(our_pod("p"), "data")
    picky["spec"]["affinity"] = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "disk", "operator": "DoesNotExist"}]}]
            }
        }
    }
    await cluster.create(picky)
    await cluster.running("p")
    assert await cluster.node_of("p") == "b"
    assert await phases(cluster, "data", "near") == ("Bound", "Bound")


@in_running_cluster
async def test_a_claim_that_is_bound_at_once_and_an_ephemeral_volume(cluster: RunningCluster) -> None:
    volumes = [volume("plain", hosts=["b"], storage_class="", phase=""), volume("scratch", hosts=["a", "b"], phase="")]
    await cluster.create(node("a"), node("b"), storage_class(), *volumes, volume_claim("data", storage_class=""))
    made = using(our_pod("p"), "data")
    template = {"spec": volume_claim("unused")["spec"]}
    made["spec"]["volumes"].append({"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}})
    await cluster.create(made)
    await cluster.running("p")
    assert await cluster.node_of("p") == "b"
    assert await phases(cluster, "data", "plain") == ("Bound", "Bound")
    assert await phases(cluster, "p-scratch", "scratch") == ("Bound", "Bound")
    claim = await cluster.calls().get(CLAIMS, ObjectKey("default", "p-scratch"))
    assert [owner.uid for owner in claim.metadata.owner_references] == [(await cluster.pod("p")).metadata.uid]


@in_running_cluster
async def test_the_condition_says_what_is_missing(cluster: RunningCluster) -> None:
    await cluster.create(node("a"), using(our_pod("p"), "data"))
    await cluster.refused("p", 'persistentvolumeclaim "data" not found')
    await cluster.create(volume_claim("data"))
    await cluster.refused("p", "pod has unbound immediate PersistentVolumeClaims")
    await cluster.create(storage_class())
    await cluster.refused("p", "didn't find available persistent volumes to bind")
    await cluster.create(volume("v", phase=""))
    assert (await cluster.running("p")).spec.node_name == "a"
    await cluster.client.delete(Pod, "p")
