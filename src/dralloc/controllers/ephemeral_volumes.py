"""Creates the claims of pods' ephemeral volumes. They belong to the pod and are deleted with it."""

from __future__ import annotations

from typing import Any, ClassVar, Final

from dralloc.client.known_resources import resource_for, resource_read_as
from dralloc.client.typed_resource import ObjectKey, key_of
from dralloc.controllers.controller_context import ControllerContext
from dralloc.controllers.controller_loop import Controller
from dralloc.controllers.mutation_cache import LOOK_AGAIN_S, UnconfirmedOwners, is_gone
from dralloc.controllers.planned_actions import PlannedActions
from dralloc.kube.pod_claims import controller_of
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.volume_claims import volume_claims_of
from dralloc.kube.volumes_v1 import PersistentVolumeClaim, PersistentVolumeClaimTemplate

FIELD_MANAGER: Final = "ephemeral-volume-controller"
PODS: Final = resource_for(Pod)
CLAIMS: Final = resource_read_as(PersistentVolumeClaim)

Document = dict[str, Any]


def plan_claims(pod: Pod) -> tuple[Document, ...]:
    """The claims of the pod's ephemeral volumes."""
    if pod.is_terminating or pod.is_finished:
        return ()
    templates = [volume.ephemeral.volume_claim_template for volume in pod.spec.volumes if volume.ephemeral is not None]
    uses = [use for use in volume_claims_of(pod) if use.is_ephemeral]
    made = zip(uses, templates, strict=True)
    return tuple(_document(pod, use.key.name, template) for use, template in made if template is not None)


def _document(pod: Pod, name: str, template: PersistentVolumeClaimTemplate) -> Document:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod.metadata.name, "uid": pod.metadata.uid}
    metadata = {
        "namespace": pod.metadata.namespace,
        "name": name,
        "labels": template.metadata.labels,
        "annotations": template.metadata.annotations,
        "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}],
    }
    return {"apiVersion": "v1", "kind": CLAIMS.kind, "metadata": metadata, "spec": template.spec}


class EphemeralVolumesController(Controller[ObjectKey, Document]):
    """Keys are pods."""

    queue_name: ClassVar[str] = "ephemeral_volumes"
    workers: ClassVar[int] = 4

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self._calls = context.calls(FIELD_MANAGER)
        self._pods = context.informers.informer_for(PODS)
        self._claims = context.informers.informer_for(CLAIMS)
        self._unconfirmed = UnconfirmedOwners(self._is_gone)
        self._pods.subscribe(self._on_pod)
        self._claims.subscribe(self._on_claim)

    def _on_pod(self, before: Pod | None, after: Pod | None) -> None:
        if after is None and before is not None:
            self._unconfirmed.remove(key_of(before))
        if after is not None and any(volume.ephemeral is not None for volume in after.spec.volumes):
            self.queue.add(key_of(after))

    def _on_claim(self, before: PersistentVolumeClaim | None, after: PersistentVolumeClaim | None) -> None:
        """A claim that was deleted while its pod is needed is made again."""
        owner = controller_of(before.metadata) if after is None and before is not None else None
        if before is not None and owner is not None and owner.kind == "Pod":
            key = ObjectKey(before.metadata.namespace, owner.name)
            if self._pods.get(key.name, key.namespace) is not None:
                self._unconfirmed.add(key)
            self.queue.add(key)

    async def plan(self, key: ObjectKey) -> PlannedActions[Document]:
        pod = self._pods.get(key.name, key.namespace)
        wanted = plan_claims(pod) if pod is not None else ()
        # One that belongs to another pod is left alone; the scheduler tells so.
        missing = [each for each in wanted if self._claims.get(each["metadata"]["name"], key.namespace) is None]
        if missing and not await self._unconfirmed.may_create(key):
            return PlannedActions(look_again_s=LOOK_AGAIN_S)
        return PlannedActions(missing)

    async def _is_gone(self, key: ObjectKey) -> bool:
        """True if the server does not have the pod that the informer shows."""
        shown = self._pods.get(key.name, key.namespace)
        return shown is None or await is_gone(self._calls, PODS, key, shown.metadata.uid)

    async def apply(self, action: Document) -> None:
        await self._calls.create(CLAIMS, action)
