"""What-if answers for pods with persistent volumes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from dralloc.answers.cluster_objects import ClusterObjects
from dralloc.answers.engine import Engine
from dralloc.answers.fit import fit
from dralloc.answers.missing_kinds import missing_kinds
from dralloc.answers.placements import PodPlacement, UnplacedPod
from dralloc.answers.pod_explanation import explain_pod
from dralloc.answers.reduced_objects import reduced
from dralloc.kube.codec import decode, encode
from dralloc.kube.core_v1 import Node
from dralloc.kube.meta_v1 import ApiObject
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.storage_v1 import CSINode
from dralloc.kube.volumes_v1 import PersistentVolume, PersistentVolumeClaim, StorageClass
from dralloc.primitives.features import FeatureGates
from tests.support.scheduled_cluster import node, our_pod
from tests.support.volumes import csi, csi_node, storage_class, using, volume, volume_claim
from tests.support.workloads import Document

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TYPES: dict[str, type[ApiObject]] = {
    each.__name__: each for each in (Node, Pod, PersistentVolume, PersistentVolumeClaim, StorageClass, CSINode)
}


def objects_of(*documents: Document) -> ClusterObjects:
    """The objects as a server and a dump give them."""
    objects = ClusterObjects(FeatureGates.defaults())
    for document in documents:
        metadata = {"uid": f"uid-{document['metadata']['name']}", **document["metadata"]}
        objects.add(reduced(decode(encode({**document, "metadata": metadata}), TYPES[document["kind"]])))
    return objects


def waiting(*claims: str, **spec: Any) -> Document:
    made = using(our_pod("p"), *claims)
    made["spec"] |= spec
    return made


SCRATCH: Document = {
    "volumes": [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": volume_claim("any")["spec"]}}}]
}
NODES = (node("a"), node("b"))


def explained(*documents: Document) -> list[str]:
    objects = objects_of(*NODES, *documents)
    return list(explain_pod(Engine(objects, NOW), objects.find(Pod, "pod", "p")).lines())


def test_an_explanation_names_the_volume_of_each_node() -> None:
    told = "\n".join(
        explained(
            waiting("data"),
            volume("v", hosts=["c"], csi=csi("d.io", "1")),
            volume_claim("data", bound_to="v"),
            csi_node("b", d_io=0),
        )
    )
    assert "didn't match PersistentVolume's node affinity (volume v)" in told
    assert "exceed max volume count (driver d.io, limit 0)" in told


def test_an_explanation_says_what_is_missing() -> None:
    assert explained(waiting("data")) == [
        'pod default/p cannot be scheduled: 0/2 nodes are available: persistentvolumeclaim "data" not found'
    ]


def test_a_pod_that_fits_has_its_node() -> None:
    told = "\n".join(explained(waiting("data"), storage_class(), volume("v", hosts=["b"]), volume_claim("data")))
    assert "fits" in told
    assert "didn't find available persistent volumes to bind (claim default/data)" in told


def test_pods_are_placed_one_after_the_other_with_the_volumes_that_are_left() -> None:
    pods = [using(our_pod(f"p{number}"), f"c{number}") for number in range(3)]
    claims = [volume_claim(f"c{number}") for number in range(3)]
    volumes = [volume("v0", hosts=["a"]), volume("v1", hosts=["b"])]
    objects = objects_of(*NODES, storage_class(), *volumes, *claims, *pods)
    engine = Engine(objects, NOW)
    placed = [engine.place(pod) for pod in objects.all(Pod).values()]
    assert sorted(each.node for each in placed if isinstance(each, PodPlacement)) == ["a", "b"]
    (left,) = [each for each in placed if isinstance(each, UnplacedPod)]
    assert "didn't find available persistent volumes to bind" in left.message


def test_claims_of_ephemeral_volumes_are_assumed() -> None:
    volumes = [volume("v0", hosts=["a"]), volume("v1", hosts=["a"]), volume("v2", hosts=["b"])]
    objects = objects_of(*NODES, storage_class(), *volumes)
    made = decode(encode(waiting(**SCRATCH)), Pod)
    assert fit(Engine(objects, NOW), made, 10).by_node == {"a": 2, "b": 1}


def test_an_input_without_volumes_is_noted_only_for_pods_that_have_some() -> None:
    kinds: set[type[ApiObject]] = {PersistentVolume, PersistentVolumeClaim, StorageClass}
    assert list(missing_kinds(objects_of(*NODES, our_pod("p")), kinds)) == []
    (told,) = missing_kinds(objects_of(*NODES, waiting("data")), kinds)
    assert "no PersistentVolumes, PersistentVolumeClaims and no StorageClasses in the files" in told
