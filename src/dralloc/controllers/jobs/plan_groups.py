"""The Workload and the PodGroup of a job (gate WorkloadWithJob), which its pods belong to.

A root job gets both. A job that another object controls gets a PodGroup from a template of that object's Workload, if an annotation
names the template. A job that has started already, or whose pod template names a group itself, gets none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from dralloc.kube.batch_v1 import GROUP, Job, JobSchedulingConfiguration
from dralloc.kube.meta_v1 import ApiObject, ObjectMeta, OwnerReference
from dralloc.kube.pod_claims import controller_of
from dralloc.kube.scheduling_v1beta1 import (
    API_VERSION,
    BasicSchedulingPolicy,
    GangSchedulingPolicy,
    PodGroup,
    PodGroupSchedulingPolicy,
    PodGroupSpec,
    PodGroupTemplate,
    TypedLocalObjectReference,
    Workload,
    WorkloadReference,
    WorkloadSpec,
)
from dralloc.primitives.names import LENGTH_MAX, SUFFIX_LENGTH, suffix

# On a job that another object controls: the template of its PodGroup in the Workload of that object.
GROUP_TEMPLATE: Final = "scheduling.k8s.io/group-template-name"
NAME_LENGTH_MAX: Final = 253


@dataclass(frozen=True, slots=True)
class CreateWorkload:
    workload: Workload


@dataclass(frozen=True, slots=True)
class CreatePodGroup:
    group: PodGroup


@dataclass(frozen=True, slots=True)
class ResizeGang:
    """Write the number of pods to the objects that have another one."""

    workload: Workload
    group: PodGroup
    min_count: int


GroupAction = CreateWorkload | CreatePodGroup | ResizeGang


@dataclass(frozen=True, slots=True)
class JobGroup:
    """The group of the job's pods, and what is missing of it."""

    name: str = ""
    actions: tuple[GroupAction, ...] = ()
    # Why the job has no group although it should.
    problem: str = ""
    # False if pods must wait for the group.
    is_ready: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFacts:
    """The objects that the plan depends on."""

    # Those that the job controls.
    workloads: Sequence[Workload] = ()
    groups: Sequence[PodGroup] = ()
    # The Workloads of the object that controls the job.
    workloads_of: Callable[[OwnerReference], Sequence[Workload]] = field(default=lambda _: ())
    has_pods: bool = False


def plan_group(job: Job, facts: GroupFacts) -> JobGroup:
    if job.spec.template.spec.scheduling_group is not None or job.metadata.deletion_timestamp is not None:
        return JobGroup()
    if len(facts.workloads) > 1 or len(facts.groups) > 1:
        return JobGroup(problem="the job controls several Workloads or PodGroups, so its pods are scheduled one by one")
    owner = controller_of(job.metadata)
    if owner is None:
        return _plan_both(job, facts)
    if GROUP_TEMPLATE in job.metadata.annotations:
        return _plan_from_parent(job, owner, facts)
    return JobGroup()


def _plan_both(job: Job, facts: GroupFacts) -> JobGroup:
    wanted = _template_of(job)
    if not facts.workloads:
        return _creation(CreateWorkload(_workload_of(job, wanted))) if _is_new(job, facts) else JobGroup()
    (workload,) = facts.workloads
    if len(workload.spec.pod_group_templates or ()) != 1:
        problem = f"Workload {workload.metadata.name} must have exactly one template"
        return JobGroup(problem=problem, is_ready=False)
    if not facts.groups:
        group = _group_of(job, workload, wanted, is_owned=True)
        return _creation(CreatePodGroup(group)) if _is_new(job, facts) else JobGroup()
    (group,) = facts.groups
    return JobGroup(group.metadata.name, _resize(workload, group, wanted.scheduling_policy.gang))


def _plan_from_parent(job: Job, owner: OwnerReference, facts: GroupFacts) -> JobGroup:
    """The size of the gang is that of the template, too: the parent decides it."""
    name, group = job.metadata.annotations[GROUP_TEMPLATE], facts.groups[0] if facts.groups else None
    for workload in facts.workloads_of(owner):
        for template in workload.spec.pod_group_templates or ():
            if template.name != name:
                continue
            if group is not None:
                return JobGroup(group.metadata.name, _resize(workload, group, template.scheduling_policy.gang))
            creation = CreatePodGroup(_group_of(job, workload, template, is_owned=False))
            return _creation(creation) if _is_new(job, facts) else JobGroup()
    if group is not None or not _is_new(job, facts):
        return JobGroup(group.metadata.name if group is not None else "")
    problem = f"no Workload of {owner.kind} {owner.name} has the template {name}"
    return JobGroup(problem=problem, is_ready=False)


def _creation(action: GroupAction) -> JobGroup:
    return JobGroup(actions=(action,), is_ready=False)


def _is_new(job: Job, facts: GroupFacts) -> bool:
    """True if the job has never started. A job that ran without a group keeps running without one."""
    status = job.status
    was_suspended = any(condition.type == "Suspended" for condition in status.conditions)
    return not (facts.has_pods or status.start_time or status.succeeded or status.failed or was_suspended)


def _resize(workload: Workload, group: PodGroup, gang: GangSchedulingPolicy | None) -> tuple[ResizeGang, ...]:
    if gang is None:
        return ()
    templates = workload.spec.pod_group_templates or ()
    ours = [each.scheduling_policy.gang for each in templates if each.name == template_name(group)]
    stored = (*ours, group.spec.scheduling_policy.gang)
    if all(each is None or each == gang for each in stored):
        return ()
    return (ResizeGang(workload, group, gang.min_count),)


def template_name(group: PodGroup) -> str:
    return group.spec.workload_ref.template_name if group.spec.workload_ref is not None else ""


# --- Objects ----------------------------------------------------------------------------------------------------


def _template_of(job: Job) -> PodGroupTemplate:
    """The one template of the job's Workload. Pods are scheduled one by one unless the job says otherwise."""
    scheduling = job.spec.scheduling or JobSchedulingConfiguration()
    wanted, parallelism = scheduling.scheduling_policy, job.spec.parallelism
    policy = PodGroupSchedulingPolicy(basic=BasicSchedulingPolicy())
    if wanted is not None and wanted.gang is not None:
        count = wanted.gang.min_count or max(1 if parallelism is None else parallelism, 1)
        policy = PodGroupSchedulingPolicy(gang=GangSchedulingPolicy(min_count=count))
    return PodGroupTemplate(
        # A label, which the name of a job need not be.
        name=f"{job.metadata.name[: LENGTH_MAX - len('-pgt-0')].replace('.', '-').rstrip('-')}-pgt-0",
        scheduling_policy=policy,
        scheduling_constraints=scheduling.scheduling_constraints,
        resource_claims=scheduling.resource_claims,
        disruption_mode=scheduling.disruption_mode,
        priority_class_name=job.spec.template.spec.priority_class_name,
    )


def _workload_of(job: Job, template: PodGroupTemplate) -> Workload:
    reference = TypedLocalObjectReference(api_group=GROUP, kind="Job", name=job.metadata.name)
    name = f"{job.metadata.name[: NAME_LENGTH_MAX - SUFFIX_LENGTH - 1]}-{suffix(job.metadata.uid)}"
    return Workload(
        api_version=API_VERSION,
        kind="Workload",
        metadata=ObjectMeta(name=name, namespace=job.metadata.namespace, owner_references=(_controller(job),)),
        spec=WorkloadSpec(controller_ref=reference, pod_group_templates=(template,)),
    )


def _group_of(job: Job, workload: Workload, template: PodGroupTemplate, *, is_owned: bool) -> PodGroup:
    """`is_owned`: the group belongs to the Workload, too."""
    room = NAME_LENGTH_MAX - SUFFIX_LENGTH - 2 - len(template.name)
    seed = f"{job.metadata.uid}/{template.name}"
    name = f"{workload.metadata.name[:room].rstrip('.-')}-{template.name}-{suffix(seed)}"
    owners = [_controller(job)]
    if is_owned:
        owners.append(_reference(workload, API_VERSION, "Workload"))
    return PodGroup(
        api_version=API_VERSION,
        kind="PodGroup",
        metadata=ObjectMeta(name=name, namespace=job.metadata.namespace, owner_references=tuple(owners)),
        spec=PodGroupSpec(
            workload_ref=WorkloadReference(workload_name=workload.metadata.name, template_name=template.name),
            scheduling_policy=template.scheduling_policy,
            scheduling_constraints=template.scheduling_constraints,
            resource_claims=template.resource_claims,
            disruption_mode=template.disruption_mode,
            priority_class_name=template.priority_class_name,
            priority=template.priority,
            preemption_policy=template.preemption_policy,
        ),
    )


def _controller(job: Job) -> OwnerReference:
    return _reference(job, f"{GROUP}/v1", "Job", controller=True)


def _reference(owner: ApiObject, api_version: str, kind: str, *, controller: bool | None = None) -> OwnerReference:
    return OwnerReference(
        api_version=api_version,
        kind=kind,
        name=owner.metadata.name,
        uid=owner.metadata.uid,
        controller=controller,
        block_owner_deletion=controller,
    )
