"""Names of resources: plurals, short names, kinds, and groups."""

from __future__ import annotations

import pytest

from dralloc.client.discovery import Discovery, ServedResource, UnknownKind


def resource(plural: str, kind: str, group: str = "", version: str = "v1", *short_names: str) -> ServedResource:
    return ServedResource(
        group=group,
        version=version,
        plural=plural,
        kind=kind,
        namespaced=True,
        singular=kind.lower(),
        short_names=short_names,
    )


CLAIMS = resource("resourceclaims", "ResourceClaim", "resource.k8s.io")
OLD_CLAIMS = resource("resourceclaims", "ResourceClaim", "resource.k8s.io", "v1beta1")
PODS = resource("pods", "Pod", "", "v1", "po")
OTHER_PODS = resource("pods", "PodMetrics", "metrics.k8s.io", "v1beta1")
SERVED = Discovery((PODS, CLAIMS, OLD_CLAIMS, OTHER_PODS))


@pytest.mark.parametrize(
    ("word", "want"),
    [
        ("pods", PODS),
        ("pod", PODS),
        ("Pod", PODS),
        ("po", PODS),
        ("pods.metrics.k8s.io", OTHER_PODS),
        ("podmetrics", OTHER_PODS),
        ("ResourceClaims", CLAIMS),
        ("resourceclaims.resource.k8s.io", CLAIMS),
        ("resourceclaims.v1beta1.resource.k8s.io", OLD_CLAIMS),
    ],
)
def test_names_of_a_resource(word: str, want: ServedResource) -> None:
    assert SERVED.find(word) == want


def test_a_typo_gets_a_suggestion() -> None:
    with pytest.raises(UnknownKind, match="did you mean resourceclaims"):
        SERVED.find("resourceclaimx")


def test_a_kind_in_another_version_is_suggested() -> None:
    assert SERVED.of_kind("resource.k8s.io/v1beta1", "ResourceClaim") == OLD_CLAIMS
    with pytest.raises(UnknownKind, match=r"it has ResourceClaim in resource.k8s.io/v1, resource.k8s.io/v1beta1"):
        SERVED.of_kind("resource.k8s.io/v1alpha3", "ResourceClaim")
