"""Typical pods as manifests: what scores read of them, and how often each occurs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from dralloc.primitives.whole_numbers import whole_number
from dralloc.scheduler.decide.typical_pods import CountedPod
from dralloc.scheduler.state.pod_resources import PODS

# How often a typical pod occurs; once without it.
COUNT_ANNOTATION: Final = "scheduler.dralloc.io/count"
_NAMESPACE: Final = "typical"


def typical_manifests(pods: Iterable[CountedPod]) -> Iterator[dict[str, Any]]:
    """A pod with the sum of its resources, and its claims, for each typical pod."""
    for number, each in enumerate(pods):
        name = f"typical-{number}"
        claims = [f"{name}-{index}" for index in range(len(each.claims))]
        for claim_name, claim in zip(claims, each.claims, strict=True):
            yield {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceClaim",
                "metadata": {"name": claim_name, "namespace": _NAMESPACE},
                "spec": {"devices": claim.spec.devices},
            }
        amounts = each.requirements.node.resources.amounts
        requests = {name: f"{nanos}n" for name, nanos in amounts.items() if name != PODS}
        yield {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": _NAMESPACE,
                "annotations": {COUNT_ANNOTATION: str(each.number)},
            },
            "spec": {
                "containers": [{"name": "all", "resources": {"requests": requests}}],
                "resourceClaims": [{"name": claim, "resourceClaimName": claim} for claim in claims],
            },
        }


def occurrences(annotations: dict[str, str]) -> int:
    return max(whole_number(annotations.get(COUNT_ANNOTATION, "")) or 1, 1)
