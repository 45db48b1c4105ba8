"""Binds claims to existing persistent volumes, and keeps the phases of both up to date."""

from __future__ import annotations

from typing import ClassVar, Final

from dralloc.api.storage_v1 import GROUP as STORAGE
from dralloc.api.volume_claims import class_of_claim
from dralloc.api.volumes_v1 import PersistentVolume, PersistentVolumeClaim, StorageClass
from dralloc.client.known_resources import resource_read_as
from dralloc.client.typed_resource import ObjectKey, key_of
from dralloc.controllers.controller_context import ControllerContext
from dralloc.controllers.controller_loop import Controller
from dralloc.controllers.mutation_cache import MutationCache
from dralloc.controllers.persistent_volumes.plan import VolumeAction, WriteVolume, plan_claim, plan_volume
from dralloc.controllers.planned_actions import PlannedActions

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
