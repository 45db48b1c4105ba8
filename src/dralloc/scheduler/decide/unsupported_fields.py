"""Pod fields that this scheduler does not support. Such pods are rejected with a message, never placed wrongly.

Preferences are ignored: a scheduler need not satisfy them.
"""

from __future__ import annotations

from collections.abc import Iterator

from dralloc.api.pod_v1 import Affinity, PodSpec


def unsupported(spec: PodSpec) -> tuple[str, ...]:
    """The unsupported features that the pod uses."""
    return tuple(_unsupported(spec))


def _unsupported(spec: PodSpec) -> Iterator[str]:
    affinity = spec.affinity or Affinity()
    for name, wanted in (("pod affinity", affinity.pod_affinity), ("pod anti-affinity", affinity.pod_anti_affinity)):
        if wanted is not None and wanted.required_during_scheduling_ignored_during_execution:
            yield f"required {name}"
    if any(spread.when_unsatisfiable != "ScheduleAnyway" for spread in spec.topology_spread_constraints):
        yield "required topology spread constraints"
    for volume in spec.volumes:
        if volume.persistent_volume_claim is not None or volume.ephemeral is not None:
            yield f"volume {volume.name} with a persistent volume claim"
    if spec.scheduling_group is not None:
        yield "scheduling groups"
