"""The persistent volumes of a pod before any node is judged: the claims to them exist, and those that bind at once are bound.

The checks that Kubernetes makes once for a pod, with its messages.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dralloc.kube.pod_v1 import Pod, Volume
from dralloc.kube.volume_claims import (
    WAIT_FOR_FIRST_CONSUMER,
    VolumeClaimUse,
    class_of_claim,
    is_bound,
    is_claim_of,
    volume_claims_of,
)
from dralloc.kube.volumes_v1 import PersistentVolume, PersistentVolumeClaim
from dralloc.scheduler.state.cluster_events import VOLUMES_CHANGED, ClusterEvent, volume_claim_changed
from dralloc.scheduler.state.volume_state import VolumeState, is_disk

BINDING: Final = "VolumeBinding"
RESTRICTIONS: Final = "VolumeRestrictions"
ZONE: Final = "VolumeZone"
LOST: Final = "Lost"


@dataclass(frozen=True, slots=True)
class VolumeObstacle:
    """Why no node need be judged. `is_early`: the missing claim is probably about to be created."""

    plugin: str
    message: str
    is_early: bool = False


@dataclass(frozen=True, slots=True)
class PodVolumes:
    """The claims of a pod in the order of its volumes: those with a volume, and those that get one together with a node."""

    uses: tuple[VolumeClaimUse, ...]
    bound: tuple[PersistentVolumeClaim, ...]
    unbound: tuple[PersistentVolumeClaim, ...]
    # The claims that the pod names itself, in contrast to those that are made for it.
    named: tuple[PersistentVolumeClaim, ...]
    # The volumes of these, as far as they have one.
    named_volumes: tuple[PersistentVolume, ...]
    disks: tuple[Volume, ...]

    @property
    def claims(self) -> tuple[PersistentVolumeClaim, ...]:
        return (*self.bound, *self.unbound)


def volume_events(pod: Pod) -> frozenset[ClusterEvent]:
    """The events that may help a pod with volumes."""
    return frozenset({VOLUMES_CHANGED, *(volume_claim_changed(use.key) for use in volume_claims_of(pod))})


def volumes_of(pod: Pod, volumes: VolumeState) -> PodVolumes | VolumeObstacle:
    uses = tuple(volume_claims_of(pod))
    claims: dict[VolumeClaimUse, PersistentVolumeClaim] = {}
    # Kubernetes looks for the claims that the pod names before it looks at any claim.
    for use in sorted(uses, key=lambda use: use.is_ephemeral):
        claim = volumes.find_claim(use.key)
        if claim is None:
            return _missing(use)
        claims[use] = claim
    for use in uses:
        if fault := _fault(pod, use, claims[use]):
            return VolumeObstacle(BINDING, fault)
    bound = [claims[use] for use in uses if is_bound(claims[use])]
    unbound = [claims[use] for use in uses if not is_bound(claims[use])]
    if not all(_waits_for_pod(claim, volumes) for claim in unbound):
        return VolumeObstacle(BINDING, "pod has unbound immediate PersistentVolumeClaims")
    named = tuple(claims[use] for use in uses if not use.is_ephemeral)
    found: list[PersistentVolume] = []
    for claim in named:
        volume = volumes.find_volume(claim.spec.volume_name)
        if volume is not None:
            found.append(volume)
        elif claim.spec.volume_name:
            return VolumeObstacle(ZONE, f'persistentvolume "{claim.spec.volume_name}" not found')
    disks = tuple(filter(is_disk, pod.spec.volumes))
    return PodVolumes(uses, tuple(bound), tuple(unbound), named, tuple(found), disks)


def _missing(use: VolumeClaimUse) -> VolumeObstacle:
    if not use.is_ephemeral:
        return VolumeObstacle(RESTRICTIONS, f'persistentvolumeclaim "{use.key.name}" not found')
    creating = f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{use.key.name}"'
    return VolumeObstacle(BINDING, creating, is_early=True)


def _fault(pod: Pod, use: VolumeClaimUse, claim: PersistentVolumeClaim) -> str | None:
    name = use.key.name
    if claim.status.phase == LOST:
        volume = claim.spec.volume_name
        return f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume "{volume}"'
    if claim.metadata.deletion_timestamp is not None:
        return f'persistentvolumeclaim "{name}" is being deleted'
    if use.is_ephemeral and not is_claim_of(claim, pod):
        return f"PVC {use.key} was not created for pod {use.key.namespace}/{pod.metadata.name} (pod is not owner)"
    return None


def _waits_for_pod(claim: PersistentVolumeClaim, volumes: VolumeState) -> bool:
    """True if the claim is bound once a pod uses it. One whose volume a user chose is bound at once."""
    storage_class = volumes.classes.get(class_of_claim(claim))
    return (
        not claim.spec.volume_name
        and storage_class is not None
        and storage_class.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER
    )
