"""Binds claims to existing persistent volumes, and keeps the phases of both up to date."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from dralloc.client.known_resources import resource_read_as
from dralloc.client.typed_resource import ObjectKey, key_of
from dralloc.controllers.controller_context import ControllerContext
from dralloc.controllers.controller_loop import Controller
from dralloc.controllers.mutation_cache import MutationCache
from dralloc.controllers.planned_actions import PlannedActions
from dralloc.kube.storage_v1 import GROUP as STORAGE
from dralloc.kube.volume_claims import (
    AVAILABLE,
    BIND_COMPLETED,
    BOUND_BY_CONTROLLER,
    NO_PROVISIONER,
    SELECTED_NODE,
    WAIT_FOR_FIRST_CONSUMER,
    capacity_of,
    claim_reference,
    class_of_claim,
    is_bound,
    is_bound_to,
    is_possible_for,
    may_be_chosen_for,
)
from dralloc.kube.volumes_v1 import PersistentVolume, PersistentVolumeClaim, StorageClass

# --- Plan -----------------------------------------------------------------------------------------------------------
# What a persistent volume or a claim to one needs: static binding and phases, as Kubernetes' binder does it.
#
# Volumes are neither made nor deleted here. A claim that needs a new volume is marked for the provisioner of its
# storage class.


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


FIELD_MANAGER: Final = "persistentvolume-binder"
VOLUMES: Final = resource_read_as(PersistentVolume)
CLAIMS: Final = resource_read_as(PersistentVolumeClaim)
CLASSES: Final = resource_read_as(StorageClass, STORAGE)


class PersistentVolumesController(Controller[ObjectKey, VolumeAction]):
    """Keys are claims, and volumes, which have no namespace."""

    queue_name: ClassVar[str] = "persistent_volumes"
    # Two claims must not be given the same volume.
    workers: ClassVar[int] = 1

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self._calls = context.calls(FIELD_MANAGER)
        self._volume_informer = context.informers.informer_for(VOLUMES)
        self._claim_informer = context.informers.informer_for(CLAIMS)
        self._classes = context.informers.informer_for(CLASSES)
        self._volumes, self._claims = MutationCache(self._volume_informer), MutationCache(self._claim_informer)
        self._volume_informer.subscribe(self._on_volume)
        self._claim_informer.subscribe(self._on_claim)
        self._classes.subscribe(lambda _before, _after: self._queue_waiting())

    def _on_volume(self, before: PersistentVolume | None, after: PersistentVolume | None) -> None:
        if after is not None:
            self.queue.add(key_of(after))
        self._queue_waiting()
        if after is None and before is not None and (reference := before.spec.claim_ref) is not None:
            self.queue.add(ObjectKey(reference.namespace, reference.name))

    def _on_claim(self, before: PersistentVolumeClaim | None, after: PersistentVolumeClaim | None) -> None:
        claim = after or before
        assert claim is not None, "a change has an object"
        if after is not None:
            self.queue.add(key_of(after))
        for volume in self._volume_informer.all():
            reference = volume.spec.claim_ref
            if reference is not None and ObjectKey(reference.namespace, reference.name) == key_of(claim):
                self.queue.add(key_of(volume))

    def _queue_waiting(self) -> None:
        """A change of a volume may help any claim that has none."""
        for claim in self._claim_informer.all():
            if claim.status.phase != "Bound":
                self.queue.add(key_of(claim))

    async def plan(self, key: ObjectKey) -> PlannedActions[VolumeAction]:
        if not key.namespace:
            volume = self._volumes.get(key.name)
            return PlannedActions(plan_volume(volume, self._named_claim(volume)) if volume is not None else ())
        claim = self._claims.get(key.name, key.namespace)
        if claim is None:
            return PlannedActions()
        found = (self._volumes.get(each.metadata.name) for each in self._volume_informer.all())
        volumes = [volume for volume in found if volume is not None]
        return PlannedActions(plan_claim(claim, volumes, self._classes.get(class_of_claim(claim))))

    def _named_claim(self, volume: PersistentVolume) -> PersistentVolumeClaim | None:
        reference = volume.spec.claim_ref
        return self._claims.get(reference.name, reference.namespace) if reference is not None else None

    async def apply(self, action: VolumeAction) -> None:
        subresource = "status" if action.is_status else None
        if isinstance(action, WriteVolume):
            key = key_of(action.volume)
            self._volumes.keep(await self._calls.patch(VOLUMES, key, action.patch, subresource=subresource))
        else:
            key = key_of(action.claim)
            self._claims.keep(await self._calls.patch(CLAIMS, key, action.patch, subresource=subresource))
