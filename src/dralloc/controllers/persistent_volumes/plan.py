"""What a persistent volume or a claim to one needs: static binding and phases, as Kubernetes' binder does it.

Volumes are neither made nor deleted here. A claim that needs a new volume is marked for the provisioner of its storage class.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from dralloc.api.volume_claims import (
    AVAILABLE,
    BIND_COMPLETED,
    BOUND_BY_CONTROLLER,
    NO_PROVISIONER,
    SELECTED_NODE,
    WAIT_FOR_FIRST_CONSUMER,
    capacity_of,
    claim_reference,
    is_bound,
    is_bound_to,
    is_possible_for,
    may_be_chosen_for,
)
from dralloc.api.volumes_v1 import PersistentVolume, PersistentVolumeClaim, StorageClass

# On a claim: the program that is to make its volume.
STORAGE_PROVISIONER: Final = "volume.kubernetes.io/storage-provisioner"
BETA_STORAGE_PROVISIONER: Final = "volume.beta.kubernetes.io/storage-provisioner"
BOUND: Final = "Bound"
RELEASED: Final = "Released"
PENDING: Final = "Pending"
LOST: Final = "Lost"


@dataclass(frozen=True, slots=True)
class WriteVolume:
    volume: PersistentVolume
    patch: dict[str, Any]
    is_status: bool = False


@dataclass(frozen=True, slots=True)
class WriteClaim:
    claim: PersistentVolumeClaim
    patch: dict[str, Any]
    is_status: bool = False


VolumeAction = WriteVolume | WriteClaim


def plan_volume(volume: PersistentVolume, claim: PersistentVolumeClaim | None) -> tuple[VolumeAction, ...]:
    """`claim` is the claim that the volume names, if it exists."""
    reference = volume.spec.claim_ref
    if reference is None or not reference.uid:
        return _phase(volume, AVAILABLE)
    if claim is None or claim.metadata.uid != reference.uid:
        return _phase(volume, RELEASED)
    if claim.spec.volume_name == volume.metadata.name:
        return _phase(volume, BOUND)
    if claim.spec.volume_name and BOUND_BY_CONTROLLER in volume.metadata.annotations:
        # The claim got another volume, and no user chose this one for it.
        unbound = {"metadata": {"annotations": {BOUND_BY_CONTROLLER: None}}, "spec": {"claimRef": None}}
        return WriteVolume(volume, _unchanged(volume, unbound)), *_phase(volume, AVAILABLE)
    return () if volume.status.phase else _phase(volume, AVAILABLE)


def plan_claim(
    claim: PersistentVolumeClaim, volumes: Iterable[PersistentVolume], storage_class: StorageClass | None
) -> tuple[VolumeAction, ...]:
    """`volumes` are all volumes, `storage_class` is the claim's, if it exists."""
    if claim.metadata.deletion_timestamp is not None:
        return ()
    by_name = {volume.metadata.name: volume for volume in volumes}
    if claim.spec.volume_name:
        volume = by_name.get(claim.spec.volume_name)
        if volume is None:
            return _claim_phase(claim, LOST if is_bound(claim) else PENDING)
        is_free = volume.spec.claim_ref is None
        return _bound(volume, claim) if is_free or is_bound_to(volume, claim) else _claim_phase(claim, PENDING)
    waits = storage_class is not None and storage_class.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER
    chosen = _choose(claim, by_name.values(), only_named=waits)
    if chosen is not None:
        return _bound(chosen, claim)
    is_due = storage_class is not None and (not waits or SELECTED_NODE in claim.metadata.annotations)
    provisioner = storage_class.provisioner if storage_class is not None and is_due else ""
    return *_claim_phase(claim, PENDING), *_provisioned(claim, provisioner)


def _provisioned(claim: PersistentVolumeClaim, provisioner: str) -> tuple[WriteClaim, ...]:
    """The mark that makes the provisioner create a volume for the claim."""
    is_marked = claim.metadata.annotations.get(STORAGE_PROVISIONER) == provisioner
    if provisioner in ("", NO_PROVISIONER) or is_marked:
        return ()
    annotations = {STORAGE_PROVISIONER: provisioner, BETA_STORAGE_PROVISIONER: provisioner}
    return (WriteClaim(claim, _unchanged(claim, {"metadata": {"annotations": annotations}})),)


def _choose(
    claim: PersistentVolumeClaim, volumes: Iterable[PersistentVolume], *, only_named: bool
) -> PersistentVolume | None:
    """The volume that names the claim, else the smallest free one. The scheduler chooses for claims that wait for a pod."""
    named = [volume for volume in volumes if is_bound_to(volume, claim) and is_possible_for(volume, claim)]
    free = [] if only_named else [volume for volume in volumes if may_be_chosen_for(volume, claim)]
    return named[0] if named else min(free, key=lambda each: (capacity_of(each), each.metadata.name), default=None)


def _bound(volume: PersistentVolume, claim: PersistentVolumeClaim) -> tuple[VolumeAction, ...]:
    """The writes that bind the two, volume first: it decides who of two claims gets it."""
    actions: list[VolumeAction] = []
    if volume.spec.claim_ref is None or volume.spec.claim_ref.uid != claim.metadata.uid:
        patch: dict[str, Any] = {"spec": {"claimRef": claim_reference(claim)}}
        if not is_bound_to(volume, claim):
            patch["metadata"] = {"annotations": {BOUND_BY_CONTROLLER: "yes"}}
        actions.append(WriteVolume(volume, _unchanged(volume, patch)))
    actions += _phase(volume, BOUND)
    if not is_bound(claim):
        annotations = {BIND_COMPLETED: "yes", **({} if claim.spec.volume_name else {BOUND_BY_CONTROLLER: "yes"})}
        patch = {"metadata": {"annotations": annotations}, "spec": {"volumeName": volume.metadata.name}}
        actions.append(WriteClaim(claim, _unchanged(claim, patch)))
    if claim.status.phase != BOUND:
        spec = volume.spec
        status = {"phase": BOUND, "accessModes": list(spec.access_modes), "capacity": dict(spec.capacity)}
        actions.append(WriteClaim(claim, {"status": status}, is_status=True))
    return tuple(actions)


def _phase(volume: PersistentVolume, phase: str) -> tuple[WriteVolume, ...]:
    patch = {"status": {"phase": phase}}
    return () if volume.status.phase == phase else (WriteVolume(volume, patch, is_status=True),)


def _claim_phase(claim: PersistentVolumeClaim, phase: str) -> tuple[WriteClaim, ...]:
    patch = {"status": {"phase": phase}}
    return () if claim.status.phase == phase else (WriteClaim(claim, patch, is_status=True),)


def _unchanged(item: PersistentVolume | PersistentVolumeClaim, patch: dict[str, Any]) -> dict[str, Any]:
    """The patch, to be refused if the object has changed since it was read."""
    metadata = {**patch.get("metadata", {}), "resourceVersion": item.metadata.resource_version}
    return {**patch, "metadata": metadata}
