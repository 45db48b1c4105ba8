"""What a job of the files would have made for it: its pods, and the claims that it holds for them.

A job that is not created yet can so be asked about. Of a cluster, the pods themselves are read.
"""

from __future__ import annotations

from msgspec.structs import replace

from dralloc.allocator.explanation.reasons import counted
from dralloc.api.batch_v1 import Job
from dralloc.api.core_v1 import Pod
from dralloc.api.meta_v1 import ObjectMeta, OwnerReference
from dralloc.api.pod_claims import controller_of
from dralloc.api.resource_v1 import ResourceClaim, ResourceClaimTemplate
from dralloc.cli.output import fail, say
from dralloc.cli.world import World
from dralloc.controllers.jobs.plan_claims import ReportProblem, stated_claims


def add_what_jobs_make(world: World) -> None:
    """Jobs that have pods already, or want none, are left as they are."""
    busy = {
        (pod.metadata.namespace, owner.name)
        for pod in world.all(Pod).values()
        if (owner := controller_of(pod.metadata)) is not None and owner.kind == "Job"
    }
    for key, job in world.all(Job).items():
        if key not in busy and not job.is_finished and not job.spec.suspend:
            _add_claims(world, job)
            _add_pods(world, job)


def _add_claims(world: World, job: Job) -> None:
    namespace, subject = job.metadata.namespace, _subject(job)
    for stated in stated_claims(job.metadata):
        if isinstance(stated, ReportProblem):
            fail(f"{subject}: {stated.message}")
        name, template_name = stated
        template = world.all(ResourceClaimTemplate).get((namespace, template_name))
        if template is None:
            fail(f"{subject}: the template {template_name} of its claim {name} is not in {world.place}")
        if (namespace, name) not in world.all(ResourceClaim):
            world.add(
                ResourceClaim(
                    api_version="resource.k8s.io/v1",
                    kind="ResourceClaim",
                    metadata=ObjectMeta(name=name, namespace=namespace, owner_references=(_owner(job),)),
                    spec=template.spec.spec,
                )
            )


def _add_pods(world: World, job: Job) -> None:
    template, spec = job.spec.template, job.spec
    parallelism = 1 if spec.parallelism is None else spec.parallelism
    count = parallelism if spec.completions is None else min(parallelism, spec.completions)
    for number in range(count):
        metadata = replace(
            template.metadata,
            name=f"{job.metadata.name}-{number}",
            namespace=job.metadata.namespace,
            owner_references=(_owner(job),),
        )
        world.add(Pod(api_version="v1", kind="Pod", metadata=metadata, spec=template.spec))
    say(
        f"{_subject(job)}: taken as the {counted(count, 'pod')} that it would have at a time", err=True, prefix="note: "
    )


def _subject(job: Job) -> str:
    return f"job {job.metadata.namespace}/{job.metadata.name}"


def _owner(job: Job) -> OwnerReference:
    return OwnerReference(
        api_version="batch/v1", kind="Job", name=job.metadata.name, uid=job.metadata.uid, controller=True
    )
