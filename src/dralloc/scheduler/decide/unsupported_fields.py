"""Pod fields that this scheduler does not support. Such pods are rejected with a message, never placed wrongly."""

from __future__ import annotations

from collections.abc import Iterator

from dralloc.api.pod_v1 import PodSpec


def unsupported(spec: PodSpec) -> tuple[str, ...]:
    """The unsupported features that the pod uses."""
    return tuple(_unsupported(spec))


def _unsupported(spec: PodSpec) -> Iterator[str]:
    for volume in spec.volumes:
        if volume.persistent_volume_claim is not None or volume.ephemeral is not None:
            yield f"volume {volume.name} with a persistent volume claim"
    if spec.scheduling_group is not None:
        yield "scheduling groups"
