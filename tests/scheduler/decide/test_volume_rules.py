"""The rules of volumes, node by node: what Kubernetes' four volume plugins decide."""

from __future__ import annotations

from typing import Any

import pytest

from dralloc.kube.volume_claims import SELECTED_NODE, VolumeClaimKey
from dralloc.scheduler.contract import Placement, Rejection
from tests.scheduler.volume_cluster import decide, place, pod_of, reasons, view_of
from tests.support.scheduled_cluster import node, our_pod
from tests.support.volumes import (
    HOSTNAME,
    attachment,
    csi,
    csi_driver,
    csi_node,
    storage_capacity,
    storage_class,
    using,
    volume,
    volume_claim,
)
from tests.support.workloads import Document

DATA = VolumeClaimKey("default", "data")
ZONE = "topology.kubernetes.io/zone"
OLD_ZONE = "failure-domain.beta.kubernetes.io/zone"
NOWHERE = "didn't find available persistent volumes to bind (claim default/data)"
NO_SPACE = "did not have enough free storage (claim default/data)"
TOO_MANY = "exceed max volume count (driver d.io, limit 1)"
IN_USE = (
    "unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
    " (claim default/data)"
)
NODES = [node("a", labels={ZONE: "z1"}), node("b", labels={ZONE: "z2"})]
REMOTE = storage_class("remote", "d.io")


def on(name: str, document: Document) -> Document:
    """The pod with a node."""
    return {**document, "spec": {**document["spec"], "nodeName": name}}


def with_volumes(document: Document, *volumes: Document) -> Document:
    document["spec"]["volumes"] = [{"name": f"v{number}", **each} for number, each in enumerate(volumes)]
    return document


def wrong_place(name: str) -> str:
    return f"didn't match PersistentVolume's node affinity (volume {name})"


def wrong_zone(name: str) -> str:
    return f"had no available volume zone (volume {name})"


CASES: list[tuple[str, list[Document], dict[str, str]]] = [
    (
        "a bound volume is reachable from some nodes",
        [volume("v", hosts=["a"]), volume_claim("data", bound_to="v")],
        {"a": "", "b": wrong_place("v")},
    ),
    (
        "a volume's affinity cannot name a node by a field",
        [
            volume(
                "v",
                nodeAffinity={
                    "required": {
                        "nodeSelectorTerms": [
                            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}
                        ]
                    }
                },
            ),
            volume_claim("data", bound_to="v"),
        ],
        {"a": wrong_place("v"), "b": wrong_place("v")},
    ),
    (
        "a volume of a zone",
        [volume("v", labels={ZONE: "z2"}), volume_claim("data", bound_to="v")],
        {"a": wrong_zone("v"), "b": ""},
    ),
    (
        "a volume of several zones, with the old label",
        [volume("v", labels={OLD_ZONE: "z3__z1"}), volume_claim("data", bound_to="v")],
        {"a": "", "b": wrong_zone("v")},
    ),
    (
        "a zone label that cannot be read is ignored",
        [volume("v", labels={ZONE: "z3__"}), volume_claim("data", bound_to="v")],
        {"a": "", "b": ""},
    ),
    (
        "a free volume on one node",
        [storage_class(), volume("v", hosts=["b"]), volume_claim("data")],
        {"a": NOWHERE, "b": ""},
    ),
    (
        "free volumes that do not match",
        [
            storage_class(),
            volume("small", "1Gi"),
            volume("other-class", storage_class="other"),
            volume("other-mode", modes=["ReadOnlyMany"]),
            volume("block", volumeMode="Block"),
            volume("released", phase="Released"),
            volume("taken", claimRef={"namespace": "default", "name": "other"}),
            volume("attributes", volumeAttributesClassName="fast"),
            volume_claim("data"),
        ],
        {"a": NOWHERE, "b": NOWHERE},
    ),
    (
        "a selector",
        [
            storage_class(),
            volume("v1", hosts=["a"], labels={"tier": "slow"}),
            volume("v2", hosts=["b"], labels={"tier": "fast"}),
            volume_claim("data", selector={"matchLabels": {"tier": "fast"}}),
        ],
        {"a": NOWHERE, "b": ""},
    ),
    (
        "a volume that a user keeps for the claim is the only one that it gets",
        [
            storage_class(),
            volume("mine", hosts=["b"], claimRef={"namespace": "default", "name": "data"}, phase="Pending"),
            volume("free", hosts=["a"]),
            volume_claim("data"),
        ],
        {"a": NOWHERE, "b": ""},
    ),
    (
        "a volume that is kept for another claim of the same name",
        [
            storage_class(),
            volume("old", claimRef={"namespace": "default", "name": "data", "uid": "gone"}),
            volume_claim("data"),
        ],
        {"a": NOWHERE, "b": NOWHERE},
    ),
    ("a new volume", [REMOTE, volume_claim("data", storage_class="remote")], {"a": "", "b": ""}),
    (
        "a new volume where the class allows it",
        [
            storage_class(
                "remote",
                "d.io",
                allowedTopologies=[
                    {"matchLabelExpressions": [{"key": ZONE, "values": ["z2", "z3"]}]},
                    {"matchLabelExpressions": []},
                ],
            ),
            volume_claim("data", storage_class="remote"),
        ],
        {"a": NOWHERE, "b": ""},
    ),
    (
        "a new volume for the node that was selected before",
        [REMOTE, volume_claim("data", storage_class="remote", annotations={SELECTED_NODE: "a"})],
        {"a": "", "b": NOWHERE},
    ),
    (
        "a new volume where there is space",
        [
            REMOTE,
            csi_driver("d.io", storageCapacity=True),
            storage_capacity("in-z1", "remote", "4Gi", {ZONE: "z1"}),
            storage_capacity("in-z2", "remote", "5Gi", {ZONE: "z2"}),
            storage_capacity("of-another-class", "other", "50Gi", {ZONE: "z1"}),
            volume_claim("data", storage_class="remote"),
        ],
        {"a": NO_SPACE, "b": ""},
    ),
    (
        "the largest volume counts more than the space",
        [
            REMOTE,
            csi_driver("d.io", storageCapacity=True),
            storage_capacity("in-z1", "remote", "50Gi", {ZONE: "z1"}, maximumVolumeSize="4Gi"),
            volume_claim("data", storage_class="remote"),
        ],
        {"a": NO_SPACE, "b": NO_SPACE},
    ),
    (
        "the space of drivers that do not report it is not looked at",
        [
            REMOTE,
            csi_driver("d.io", storageCapacity=False),
            storage_capacity("in-z1", "remote", "4Gi", {ZONE: "z1"}),
            volume_claim("data", storage_class="remote"),
        ],
        {"a": "", "b": ""},
    ),
    (
        "a claim for one pod that a pod has",
        [
            volume("v"),
            volume_claim("data", bound_to="v", modes=["ReadWriteOncePod"]),
            on("a", using(our_pod("first"), "data")),
        ],
        {"a": IN_USE, "b": IN_USE},
    ),
    (
        "a claim that several pods may use",
        [volume("v"), volume_claim("data", bound_to="v"), on("a", using(our_pod("first"), "data"))],
        {"a": "", "b": ""},
    ),
    (
        "the limit of a driver, reached by other pods",
        [
            csi_node("a", d_io=1),
            csi_node("b", d_io=None),
            volume("v", csi=csi("d.io", "1")),
            volume("w", csi=csi("d.io", "2")),
            volume_claim("data", bound_to="v"),
            volume_claim("other", bound_to="w"),
            on("a", using(our_pod("first"), "other")),
            on("b", using(our_pod("second"), "other")),
        ],
        {"a": TOO_MANY, "b": ""},
    ),
    (
        "a volume that is on the node already counts once",
        [
            csi_node("a", d_io=1),
            volume("v", csi=csi("d.io", "1")),
            volume_claim("data", bound_to="v"),
            on("a", using(our_pod("first"), "data")),
        ],
        {"a": "", "b": ""},
    ),
    (
        "the limit of a driver, reached by volumes that are still attached",
        [
            csi_node("a", d_io=1),
            volume("v", csi=csi("d.io", "1")),
            volume("w", csi=csi("d.io", "2")),
            volume_claim("data", bound_to="v"),
            attachment("old", "a", "d.io", "w"),
        ],
        {"a": TOO_MANY, "b": ""},
    ),
    (
        "volumes that will be made count",
        [
            REMOTE,
            csi_node("a", d_io=1),
            volume_claim("data", storage_class="remote"),
            volume_claim("other", storage_class="remote"),
            on("a", using(our_pod("first"), "other")),
        ],
        {"a": TOO_MANY, "b": ""},
    ),
    (
        "volumes of a plugin that a driver has replaced count for the driver",
        [
            csi_node("a", ebs_csi_aws_com=1),
            csi_node("b", ebs_csi_aws_com=2),
            volume("v", awsElasticBlockStore={"volumeID": "1"}),
            volume_claim("data", bound_to="v"),
            *(
                on(name, with_volumes(our_pod(f"on-{name}"), {"awsElasticBlockStore": {"volumeID": "2"}}))
                for name in ("a", "b")
            ),
        ],
        {"a": "exceed max volume count (driver ebs.csi.aws.com, limit 1)", "b": ""},
    ),
    (
        "a new volume of a replaced plugin, and a node without drivers",
        [
            storage_class("remote", "kubernetes.io/cinder"),
            csi_driver("cinder.csi.openstack.org", preventPodSchedulingIfMissing=True),
            csi_node("a", d_io=None),
            volume_claim("data", storage_class="remote"),
        ],
        {"a": "cinder.csi.openstack.org CSI driver is not installed on the node", "b": ""},
    ),
    (
        "a driver that must be on the node",
        [
            csi_driver("d.io", preventPodSchedulingIfMissing=True),
            csi_node("a", d_io=None),
            volume("v", csi=csi("d.io", "1")),
            volume_claim("data", bound_to="v"),
        ],
        {"a": "", "b": "d.io CSI driver is not installed on the node"},
    ),
]


@pytest.mark.parametrize(("objects", "want"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_what_nodes_say(objects: list[Document], want: dict[str, str]) -> None:
    assert reasons(view_of([*NODES, *objects]), using(our_pod("p"), "data")) == want


@pytest.mark.parametrize(
    ("mine", "other", "conflicts"),
    [
        (
            {"awsElasticBlockStore": {"volumeID": "1", "readOnly": True}},
            {"awsElasticBlockStore": {"volumeID": "1"}},
            True,
        ),
        ({"awsElasticBlockStore": {"volumeID": "1"}}, {"awsElasticBlockStore": {"volumeID": "2"}}, False),
        ({"gcePersistentDisk": {"pdName": "1"}}, {"gcePersistentDisk": {"pdName": "1", "readOnly": True}}, True),
        (
            {"gcePersistentDisk": {"pdName": "1", "readOnly": True}},
            {"gcePersistentDisk": {"pdName": "1", "readOnly": True}},
            False,
        ),
        ({"iscsi": {"iqn": "x"}}, {"iscsi": {"iqn": "x"}}, True),
        (
            {"rbd": {"monitors": ["m", "n"], "image": "i"}},
            {"rbd": {"monitors": ["n"], "image": "i", "pool": "rbd"}},
            True,
        ),
        ({"rbd": {"monitors": ["m"], "image": "i"}}, {"rbd": {"monitors": ["n"], "image": "i"}}, False),
        ({"rbd": {"monitors": ["m"], "image": "i"}}, {"rbd": {"monitors": ["m"], "image": "j"}}, False),
    ],
)
def test_disks_that_pods_of_a_node_cannot_share(mine: Document, other: Document, conflicts: bool) -> None:
    state = view_of([*NODES, on("a", with_volumes(our_pod("first"), other))])
    told = "had no available disk" if conflicts else ""
    assert reasons(state, with_volumes(our_pod("p"), mine)) == {"a": told, "b": ""}


EPHEMERAL: Document = {"ephemeral": {"volumeClaimTemplate": {}}}
OWNED = {"ownerReferences": [{"kind": "Pod", "name": "p", "uid": "uid-p", "controller": True, "apiVersion": "v1"}]}


@pytest.mark.parametrize(
    ("objects", "mounts", "want"),
    [
        ([], ["data"], 'persistentvolumeclaim "data" not found'),
        (
            [volume_claim("data", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}, bound_to="v")],
            ["data"],
            'persistentvolumeclaim "data" is being deleted',
        ),
        (
            [{**volume_claim("data", bound_to="v"), "status": {"phase": "Lost"}}],
            ["data"],
            'persistentvolumeclaim "data" bound to non-existent persistentvolume "v"',
        ),
        ([volume_claim("data", bound_to="v")], ["data"], 'persistentvolume "v" not found'),
        ([volume_claim("data")], ["data"], "pod has unbound immediate PersistentVolumeClaims"),
        (
            [storage_class(mode="Immediate"), volume("v"), volume_claim("data")],
            ["data"],
            "pod has unbound immediate PersistentVolumeClaims",
        ),
        (
            [storage_class(), volume("v"), volume_claim("data", volumeName="v")],
            ["data"],
            "pod has unbound immediate PersistentVolumeClaims",
        ),
        (
            [],
            [EPHEMERAL],
            'waiting for ephemeral volume controller to create the persistentvolumeclaim "p-v0"',
        ),
        # A missing claim that the pod names comes first.
        ([], [EPHEMERAL, "data"], 'persistentvolumeclaim "data" not found'),
        (
            [volume_claim("p-v0", bound_to="v")],
            [EPHEMERAL],
            "PVC default/p-v0 was not created for pod default/p (pod is not owner)",
        ),
    ],
)
def test_pods_that_no_node_is_judged_for(objects: list[Document], mounts: list[Any], want: str) -> None:
    sources = [{"persistentVolumeClaim": {"claimName": each}} if isinstance(each, str) else each for each in mounts]
    decision = decide(view_of([*NODES, *objects]), with_volumes(our_pod("p"), *sources))
    assert isinstance(decision, Rejection)
    assert decision.message == f"0/2 nodes are available: {want}"
    assert decision.is_early == ("ephemeral volume controller" in want)


def test_the_claim_of_an_ephemeral_volume_whose_volume_is_gone() -> None:
    state = view_of(
        [*NODES, volume_claim("p-v0", bound_to="v", metadata={**OWNED, "namespace": "default", "name": "p-v0"})]
    )
    told = "unavailable due to one or more pvc(s) bound to non-existent pv(s)"
    assert reasons(state, with_volumes(our_pod("p"), EPHEMERAL)) == {"a": told, "b": told}


def test_the_smallest_volumes_that_are_large_enough_are_chosen() -> None:
    sizes = {"v100": "100Gi", "v20": "20Gi", "v6": "6Gi", "v1": "1Gi"}
    volumes = [volume(name, size, hosts=["a"]) for name, size in sizes.items()]
    claims = [volume_claim("large", "7Gi"), volume_claim("data", "5Gi")]
    state = view_of([*NODES, storage_class(), *volumes, *claims])
    decision = place(state, using(our_pod("p"), "large", "data"))
    assert decision.node == "a"
    assert decision.volumes is not None
    assert decision.volumes.chosen == {DATA: "v6", VolumeClaimKey("default", "large"): "v20"}
    assert decision.volumes.provisioned == ()


def test_a_chosen_volume_is_taken_before_it_is_written_and_free_again_after_a_failure() -> None:
    first, second = using(our_pod("first"), "data"), using(our_pod("second"), "other")
    claims = [volume_claim("data"), volume_claim("other")]
    state = view_of([*NODES, storage_class(), volume("v"), *claims])
    place(state, first)
    assert set(reasons(state, second).values()) == {NOWHERE.replace("data", "other")}
    state.forget(pod_of(first), ())
    assert isinstance(decide(state, second), Placement)


def test_pods_that_share_an_unbound_claim_go_where_it_goes() -> None:
    state = view_of([*NODES, REMOTE, volume_claim("data", storage_class="remote")])
    node_of_first = place(state, using(our_pod("first"), "data")).node
    told = reasons(state, using(our_pod("second"), "data"))
    assert [name for name, reason in told.items() if not reason] == [node_of_first]


def test_nodes_with_more_storage_left_are_better() -> None:
    volumes = [volume("v1", "6Gi", hosts=["a"]), volume("v2", "60Gi", hosts=["b"])]
    state = view_of([*NODES, storage_class(), *volumes, volume_claim("data")])
    assert place(state, using(our_pod("p"), "data")).node == "b"


def test_nodes_are_looked_up_by_label() -> None:
    """The hostname label decides, not the name of the node."""
    state = view_of(
        [node("a", labels={HOSTNAME: "x"}), storage_class(), volume("v", hosts=["x"]), volume_claim("data")]
    )
    assert reasons(state, using(our_pod("p"), "data")) == {"a": ""}
