"""Which pods no node will ever end, or are too many to keep."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dralloc.api.core_v1 import Node
from dralloc.api.node_taints import OUT_OF_SERVICE
from dralloc.api.pod_v1 import Pod


@dataclass(frozen=True, slots=True)
class DeleteGarbage:
    """Delete these pods at once. `why` is the label of the metric."""

    pods: tuple[Pod, ...]
    why: str


@dataclass(frozen=True, slots=True)
class DeleteOrphans:
    """Delete the pods of this node, if the server does not have the node either."""

    node: str


def missing_nodes(
    bound: Iterable[str], nodes: Mapping[str, Node], since_s: Mapping[str, float], now_s: float
) -> dict[str, float]:
    """The nodes that pods are bound to and that do not exist, and since when they are missing."""
    return {name: since_s.get(name, now_s) for name in bound if name not in nodes}


def stuck_reason(pod: Pod, node: Node | None) -> str:
    """Why a pod that is being deleted has no node that ends it; empty if it has, or if its node is not known."""
    if not pod.spec.node_name:
        return "unscheduled"
    if node is None or _is_ready(node):
        return ""
    return "out-of-service" if any(taint.key == OUT_OF_SERVICE for taint in node.spec.taints) else ""


def surplus(finished: Iterable[Pod], most: int) -> tuple[Pod, ...]:
    """The finished pods beyond this number: evicted pods first, then the oldest."""
    pods = list(finished)
    if len(pods) <= most:
        return ()
    pods.sort(
        key=lambda pod: (pod.status.reason != "Evicted", pod.metadata.creation_timestamp or "", pod.metadata.name)
    )
    return tuple(pods[: len(pods) - most])


def _is_ready(node: Node) -> bool:
    return any(each.type == "Ready" and each.status == "True" for each in node.status.conditions)
