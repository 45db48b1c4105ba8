"""Which objects a pod refers to."""

from __future__ import annotations

from typing import Any

import pytest

from dralloc.kube.pod_references import UnknownVolume, first_referred_kind, referred_objects, token_audiences


def objects(spec: dict[str, Any], **status: Any) -> set[tuple[str, str]]:
    return set(referred_objects({"metadata": {"name": "p"}, "spec": spec, "status": status}))


def test_every_reference_of_a_pod_is_found() -> None:
    environment = {
        "env": [
            {"name": "A", "value": "x"},
            {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s-env", "key": "k"}}},
            {"name": "C", "valueFrom": {"configMapKeyRef": {"name": "m-env", "key": "k"}}},
        ],
        "envFrom": [{"secretRef": {"name": "s-from"}}, {"configMapRef": {"name": "m-from"}}],
    }
    sources = [{"secret": {"name": "s-projected"}}, {"configMap": {"name": "m-projected"}}, {"downwardAPI": {}}]
    volumes = [
        {"name": "a", "secret": {"secretName": "s-volume"}},
        {"name": "b", "configMap": {"name": "m-volume"}},
        {"name": "c", "projected": {"sources": sources}},
        {"name": "d", "csi": {"driver": "x", "nodePublishSecretRef": {"name": "s-csi"}}},
        {"name": "e", "azureFile": {"secretName": "s-azure"}},
        {"name": "f", "rbd": {"secretRef": {"name": "s-rbd"}}},
        {"name": "g", "persistentVolumeClaim": {"claimName": "v"}},
        {"name": "h", "ephemeral": {"volumeClaimTemplate": {}}},
        {"name": "i", "emptyDir": {}},
    ]
    spec = {
        "serviceAccountName": "a",
        "imagePullSecrets": [{"name": "s-pull"}, {"name": ""}],
        "containers": [{"name": "c"}],
        "initContainers": [{"name": "i", **environment}],
        "ephemeralContainers": [{"name": "e", "envFrom": [{"secretRef": {"name": "s-debug"}}]}],
        "volumes": volumes,
        "resourceClaims": [
            {"name": "x", "resourceClaimName": "named"},
            {"name": "y", "resourceClaimTemplateName": "t"},
            {"name": "z", "resourceClaimTemplateName": "t"},
            {"name": "w", "resourceClaimTemplateName": "t"},
        ],
    }
    made = [{"name": "y", "resourceClaimName": "made"}, {"name": "z"}, {"name": "other", "resourceClaimName": "stolen"}]
    found = objects(spec, resourceClaimStatuses=made, extendedResourceClaimStatus={"resourceClaimName": "extended"})
    secrets = ("env", "from", "projected", "volume", "csi", "azure", "rbd", "pull", "debug")
    assert found == {
        ("serviceaccounts", "a"),
        *(("secrets", f"s-{name}") for name in secrets),
        *(("configmaps", f"m-{name}") for name in ("env", "from", "projected", "volume")),
        *(("persistentvolumeclaims", name) for name in ("v", "p-h")),
        *(("resourceclaims", name) for name in ("named", "made", "extended")),
    }


def test_values_of_other_types_are_no_references() -> None:
    odd = {
        "serviceAccountName": 1,
        "volumes": [None, "x", {"secret": "s"}, {"secret": {"secretName": ["s"]}}],
        "containers": {},
    }
    assert (
        objects({**odd, "imagePullSecrets": "s", "resourceClaims": [[], {"name": "x", "resourceClaimName": {}}]})
        == set()
    )
    assert objects({}, resourceClaimStatuses=3, extendedResourceClaimStatus="x") == set()


@pytest.mark.parametrize(
    ("spec", "kind"),
    [
        ({}, ""),
        ({"serviceAccountName": "a"}, "serviceaccounts"),
        ({"imagePullSecrets": [{"name": "s"}]}, "secrets"),
        ({"volumes": [{"name": "v", "configMap": {"name": "m"}}]}, "configmaps"),
        ({"resourceClaims": [{"name": "x"}]}, "resourceclaims"),
        ({"volumes": [{"name": "v", "emptyDir": {}}, {"name": "w", "hostPath": {}}]}, ""),
        ({"volumes": [{"name": "v", "csi": {"driver": "d"}}]}, "csidrivers (via CSI volumes)"),
        ({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}, "persistentvolumeclaims"),
        (
            {"volumes": [{"name": "v", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}]},
            "serviceaccounts (via projected volumes)",
        ),
        ({"volumes": [{"name": "v", "projected": {"sources": [{"downwardAPI": {}}]}}]}, ""),
    ],
)
def test_the_first_kind_that_a_pod_refers_to(spec: dict[str, Any], kind: str) -> None:
    assert first_referred_kind(spec) == kind


@pytest.mark.parametrize(
    "volume", [{"name": "v"}, {"name": "v", "new": {}}, {"name": "v", "projected": {"sources": [{"new": {}}]}}]
)
def test_a_volume_of_an_unknown_kind_may_refer_to_anything(volume: dict[str, Any]) -> None:
    with pytest.raises(UnknownVolume):
        first_referred_kind({"volumes": [volume]})


def test_the_audiences_of_mounted_tokens() -> None:
    tokens = [{"serviceAccountToken": {"path": "t", "audience": "vault"}}, {"serviceAccountToken": {"path": "u"}}]
    assert list(token_audiences({"volumes": [{"name": "v", "projected": {"sources": tokens}}]})) == ["vault", ""]
