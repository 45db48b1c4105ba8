"""Pod fields that this scheduler does not support. Such pods are rejected with a message, never placed wrongly."""

from __future__ import annotations

from collections.abc import Iterator

from dralloc.api.pod_v1 import PodSpec


def unsupported(spec: PodSpec) -> tuple[str, ...]:
    """The unsupported features that the pod uses."""
    return tuple(_unsupported(spec))


def _unsupported(spec: PodSpec) -> Iterator[str]:
    if spec.scheduling_group is not None:
        yield "scheduling groups"
