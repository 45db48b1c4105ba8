"""Removes the protection finalizer of a deleted PodGroup when none of its pods can run any more."""

from __future__ import annotations

from typing import ClassVar, Final

from dralloc.client.known_resources import resource_for
from dralloc.client.typed_resource import ObjectKey, key_of, version_of
from dralloc.controllers.controller_context import ControllerContext
from dralloc.controllers.controller_loop import Controller
from dralloc.controllers.planned_actions import PlannedActions
from dralloc.controllers.shared_informers import POD_GROUPS
from dralloc.kube.pod_claims import group_name
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.scheduling_v1beta1 import PROTECTION_FINALIZER, PodGroup
from dralloc.primitives.errors import NotFound

FIELD_MANAGER: Final = "podgroup-protection-controller"
PODS: Final = resource_for(Pod)

CHECK_S: Final = 60.0


class PodGroupProtectionController(Controller[ObjectKey, PodGroup]):
    """Keys are PodGroups; the action is to remove the finalizer of one."""

    queue_name: ClassVar[str] = "podgroup_protection"
    workers: ClassVar[int] = 1

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self._calls = context.calls(FIELD_MANAGER)
        self._groups = context.informers.informer_for(POD_GROUPS)
        self._pods = context.informers.informer_for(PODS)
        self._groups.subscribe(self._on_group)
        self._pods.subscribe(self._on_pod)

    def _on_group(self, before: PodGroup | None, after: PodGroup | None) -> None:  # noqa: ARG002
        if after is not None and after.metadata.deletion_timestamp is not None:
            self.queue.add(key_of(after))

    def _on_pod(self, before: Pod | None, after: Pod | None) -> None:
        """A pod that ended, was deleted, or was replaced by one of another group."""
        if before is None or not (name := group_name(before)):
            return
        if after is None or after.is_finished or group_name(after) != name:
            self.queue.add(ObjectKey(before.metadata.namespace, name))

    async def plan(self, key: ObjectKey) -> PlannedActions[PodGroup]:
        group = self._groups.get(key.name, key.namespace)
        if group is None or group.metadata.deletion_timestamp is None:
            return PlannedActions()
        if PROTECTION_FINALIZER not in group.metadata.finalizers:
            return PlannedActions()
        is_used = any(not pod.is_finished for pod in self._pods.by("group", (key.namespace, key.name)))
        return PlannedActions(() if is_used else (group,), None if is_used else CHECK_S)

    async def apply(self, action: PodGroup) -> None:
        """The pods are read again: the informer may lack one that was created meanwhile."""
        metadata = action.metadata
        pods, _ = await self._calls.list_all(PODS, namespace=metadata.namespace)
        if any(group_name(pod) == metadata.name and not pod.is_finished for pod in pods):
            # The informer may show the pod later, and queue the group when the pod has ended. If it never does, the group is
            # checked again.
            return
        kept = [finalizer for finalizer in metadata.finalizers if finalizer != PROTECTION_FINALIZER]
        # The revision makes the write fail if the group has changed; the change queues it again.
        patch = {"metadata": {"finalizers": kept, **version_of(action)}}
        try:
            await self._calls.patch(POD_GROUPS, key_of(action), patch)
        except NotFound:
            return
