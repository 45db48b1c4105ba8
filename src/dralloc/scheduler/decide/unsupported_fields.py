"""Pods that ask for what this scheduler does not do. They are refused with a message, never misplaced.

Wishes that a scheduler may leave unfulfilled (preferences) are no reason to refuse.
"""

from __future__ import annotations

from collections.abc import Iterator

from dralloc.api.pod_v1 import Affinity, PodSpec


def unsupported(spec: PodSpec) -> tuple[str, ...]:
    """What the pod asks for that is not supported."""
    return tuple(_unsupported(spec))


def _unsupported(spec: PodSpec) -> Iterator[str]:
    affinity = spec.affinity or Affinity()
    for name, wanted in (("pod affinity", affinity.pod_affinity), ("pod anti-affinity", affinity.pod_anti_affinity)):
        if wanted is not None and wanted.required_during_scheduling_ignored_during_execution:
            yield f"required {name}"
    if any(spread.when_unsatisfiable != "ScheduleAnyway" for spread in spec.topology_spread_constraints):
        yield "topology spread constraints that must hold"
    for volume in spec.volumes:
        if volume.persistent_volume_claim is not None or volume.ephemeral is not None:
            yield f"volume {volume.name} with a persistent volume claim"
    if spec.scheduling_group is not None:
        yield "scheduling groups"
