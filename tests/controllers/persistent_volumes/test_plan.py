"""What volumes and claims need to be bound."""

from __future__ import annotations

from typing import Any

import pytest

from dralloc.controllers.persistent_volumes import (
    STORAGE_PROVISIONER,
    VolumeAction,
    WriteVolume,
    plan_claim,
    plan_volume,
)
from dralloc.kube.codec import decode, encode
from dralloc.kube.volume_claims import BIND_COMPLETED, BOUND_BY_CONTROLLER, SELECTED_NODE
from dralloc.kube.volumes_v1 import PersistentVolume, PersistentVolumeClaim, StorageClass
from tests.support.volumes import storage_class, volume, volume_claim
from tests.support.workloads import Document

MINE: Document = {"namespace": "default", "name": "data", "uid": "uid-data"}
KEPT: Document = {"namespace": "default", "name": "data"}
OTHER: Document = {"namespace": "default", "name": "other", "uid": "uid-other"}
IMMEDIATE = storage_class(mode="Immediate")


def read(document: Document, kind: Any) -> Any:
    metadata = {"uid": f"uid-{document['metadata']['name']}", "resourceVersion": "7", **document["metadata"]}
    return decode(encode({**document, "metadata": metadata}), kind)


def told(action: VolumeAction) -> str:
    """What is written, in short."""
    name = (action.volume if isinstance(action, WriteVolume) else action.claim).metadata.name
    if action.is_status:
        return f"{name} is {action.patch['status']['phase']}"
    assert action.patch["metadata"]["resourceVersion"] == "7", "not if it has changed"
    if "spec" not in action.patch:
        return f"{name} is for {action.patch['metadata']['annotations'][STORAGE_PROVISIONER]}"
    marks = sorted(action.patch["metadata"].get("annotations", {}).values(), key=str)
    if isinstance(action, WriteVolume):
        reference = action.patch["spec"]["claimRef"]
        return f"{name} names {reference['name'] if reference else 'nothing'} {marks}"
    return f"{name} has {action.patch['spec']['volumeName']} {marks}"


@pytest.mark.parametrize(
    ("claim", "volumes", "made", "want"),
    [
        (
            volume_claim("data"),
            [volume("large", "50Gi"), volume("fits"), volume("small", "1Gi"), volume("other", storage_class="other")],
            IMMEDIATE,
            ["fits names data ['yes']", "fits is Bound", "data has fits ['yes', 'yes']", "data is Bound"],
        ),
        (volume_claim("data"), [volume("taken", claimRef=OTHER)], IMMEDIATE, []),
        # The scheduler chooses; what it has chosen is bound.
        (volume_claim("data"), [volume("v")], storage_class(), []),
        (
            volume_claim("data"),
            [volume("v", claimRef=MINE)],
            storage_class(),
            ["v is Bound", "data has v ['yes', 'yes']", "data is Bound"],
        ),
        # A user has chosen the volume for the claim, or the claim for the volume.
        (
            volume_claim("data"),
            [volume("a"), volume("v", claimRef=KEPT)],
            IMMEDIATE,
            ["v names data []", "v is Bound", "data has v ['yes', 'yes']", "data is Bound"],
        ),
        (
            volume_claim("data", volumeName="v"),
            [volume("v")],
            IMMEDIATE,
            ["v names data ['yes']", "v is Bound", "data has v ['yes']", "data is Bound"],
        ),
        (volume_claim("data", volumeName="v"), [volume("v", claimRef=OTHER)], IMMEDIATE, []),
        (volume_claim("data", volumeName="v"), [], IMMEDIATE, []),
        (volume_claim("data", bound_to="v"), [], IMMEDIATE, ["data is Lost"]),
        (volume_claim("data", bound_to="v"), [volume("v", claimRef=MINE, phase="Bound")], IMMEDIATE, []),
        (volume_claim("data", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}), [volume("v")], IMMEDIATE, []),
        # A new volume, at once or for the node that the scheduler has selected.
        (volume_claim("data"), [], storage_class(provisioner="d.io", mode="Immediate"), ["data is for d.io"]),
        (volume_claim("data"), [], storage_class(provisioner="d.io"), []),
        (
            volume_claim("data", annotations={SELECTED_NODE: "a"}),
            [],
            storage_class(provisioner="d.io"),
            ["data is for d.io"],
        ),
        (
            volume_claim("data", annotations={STORAGE_PROVISIONER: "d.io"}),
            [],
            storage_class(provisioner="d.io", mode="Immediate"),
            [],
        ),
        # Without a class: volumes that have none either.
        (
            volume_claim("data", storage_class=None),
            [volume("v", storage_class="")],
            None,
            ["v names data ['yes']", "v is Bound", "data has v ['yes', 'yes']", "data is Bound"],
        ),
    ],
)
def test_claims(claim: Document, volumes: list[Document], made: Document | None, want: list[str]) -> None:
    known = [read(each, PersistentVolume) for each in volumes]
    of_claim = read(made, StorageClass) if made is not None else None
    assert list(map(told, plan_claim(read(claim, PersistentVolumeClaim), known, of_claim))) == want


@pytest.mark.parametrize(
    ("made", "claim", "want"),
    [
        (volume("v", phase=""), None, ["v is Available"]),
        (volume("v"), None, []),
        (volume("v", claimRef=KEPT, phase="Pending"), None, ["v is Available"]),
        (volume("v", claimRef=MINE, phase="Bound"), None, ["v is Released"]),
        (
            volume("v", claimRef=MINE, phase="Bound"),
            volume_claim("data", metadata={"uid": "another"}),
            ["v is Released"],
        ),
        (volume("v", claimRef=MINE), volume_claim("data", bound_to="v"), ["v is Bound"]),
        # The scheduler has chosen it; the claim is next.
        (volume("v", claimRef=MINE), volume_claim("data"), []),
    ],
)
def test_volumes(made: Document, claim: Document | None, want: list[str]) -> None:
    of_volume = read(claim, PersistentVolumeClaim) if claim is not None else None
    assert list(map(told, plan_volume(read(made, PersistentVolume), of_volume))) == want


def test_a_volume_that_its_claim_does_not_want_is_free_again() -> None:
    made = volume("v", claimRef=MINE, phase="Bound")
    made["metadata"]["annotations"] = {BOUND_BY_CONTROLLER: "yes"}
    claim = read(volume_claim("data", bound_to="w"), PersistentVolumeClaim)
    assert list(map(told, plan_volume(read(made, PersistentVolume), claim))) == [
        "v names nothing [None]",
        "v is Available",
    ]
    assert BIND_COMPLETED in claim.metadata.annotations
