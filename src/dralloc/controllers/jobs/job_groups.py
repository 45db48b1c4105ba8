"""Follows and writes the Workloads and PodGroups of jobs (gate WorkloadWithJob).

The plan waits until the informers show what it created, so that no cache of our own writes is needed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, assert_never

from dralloc.client.api_calls import ApiCalls, PatchType
from dralloc.client.informer import Informer
from dralloc.client.typed_resource import TypedResource, key_of, version_of
from dralloc.controllers.controller_context import ControllerContext
from dralloc.controllers.jobs.plan_groups import (
    CreatePodGroup,
    CreateWorkload,
    GroupAction,
    GroupFacts,
    JobGroup,
    ResizeGang,
    plan_group,
    template_name,
)
from dralloc.controllers.shared_informers import POD_GROUPS, WORKLOADS
from dralloc.kube.batch_v1 import Job
from dralloc.kube.meta_v1 import ApiObject, OwnerReference
from dralloc.kube.pod_claims import controller_of
from dralloc.kube.scheduling_v1beta1 import PodGroup, Workload
from dralloc.primitives.errors import AlreadyExists


class JobGroups:
    """`on_dependent` is called with every change of an object that a job may control."""

    def __init__(
        self,
        context: ControllerContext,
        calls: ApiCalls,
        on_dependent: Callable[[ApiObject | None, ApiObject | None], None],
    ) -> None:
        self._calls = calls
        self._workloads = context.informers.informer_for(WORKLOADS)
        self._groups = context.informers.informer_for(POD_GROUPS)
        self._workloads.subscribe(on_dependent)
        self._groups.subscribe(on_dependent)

    def plan(self, job: Job, *, has_pods: bool) -> JobGroup:
        namespace, uid = job.metadata.namespace, job.metadata.uid

        def workloads_of(owner: OwnerReference) -> tuple[Workload, ...]:
            reference = (namespace, owner.api_version.rpartition("/")[0], owner.kind, owner.name)
            return tuple(self._workloads.by("controllerRef", reference))

        facts = GroupFacts(
            workloads=tuple(self._workloads.by("controller", (namespace, uid))),
            groups=tuple(self._groups.by("controller", (namespace, uid))),
            workloads_of=workloads_of,
            has_pods=has_pods,
        )
        return plan_group(job, facts)

    async def apply(self, action: GroupAction) -> str:
        """Returns the name of the object that was created, if one was."""
        match action:
            case CreateWorkload(workload):
                return await self._create(WORKLOADS, workload, self._workloads)
            case CreatePodGroup(group):
                return await self._create(POD_GROUPS, group, self._groups)
            case ResizeGang(workload, group, count):
                await self._resize(workload, group, count)
                return ""
            case _:
                assert_never(action)

    async def _create(self, resource: TypedResource[Any], made: Workload | PodGroup, known: Informer[Any]) -> str:
        try:
            await self._calls.create(resource, made)
        except AlreadyExists:
            stored = known.get(made.metadata.name, made.metadata.namespace)
            # Our own, whose answer was lost, is shown soon.
            if stored is not None and controller_of(stored.metadata) != controller_of(made.metadata):
                raise
            return ""
        return made.metadata.name

    async def _resize(self, workload: Workload, group: PodGroup, count: int) -> None:
        for index, template in enumerate(workload.spec.pod_group_templates or ()):
            gang = template.scheduling_policy.gang
            if template.name == template_name(group) and gang is not None and gang.min_count != count:
                path = f"/spec/podGroupTemplates/{index}"
                known = version_of(workload)
                patch = [
                    *({"op": "test", "path": f"/metadata/{name}", "value": value} for name, value in known.items()),
                    {"op": "test", "path": f"{path}/name", "value": template.name},
                    {"op": "replace", "path": f"{path}/schedulingPolicy/gang/minCount", "value": count},
                ]
                await self._calls.patch(WORKLOADS, key_of(workload), patch, type=PatchType.JSON)
        if group.min_count != count:
            policy = {"schedulingPolicy": {"gang": {"minCount": count}}}
            await self._calls.patch(POD_GROUPS, key_of(group), {"metadata": version_of(group), "spec": policy})
