"""What jobs and deployments of the files would have made for them: pods, and the claims that a job holds for its pods.

Those that are not created yet can so be asked about. Of a cluster, the pods themselves are read.
"""

from __future__ import annotations

from msgspec.structs import replace

from dralloc.allocator.diagnosis.reasons import counted
from dralloc.api.apps_v1 import DaemonSet, Deployment
from dralloc.api.batch_v1 import Job
from dralloc.api.meta_v1 import ObjectMeta, OwnerReference
from dralloc.api.pod_claims import controller_of
from dralloc.api.pod_v1 import Pod
from dralloc.api.resource_v1 import ResourceClaim, ResourceClaimTemplate
from dralloc.cli.output import fail, say
from dralloc.cli.world import World
from dralloc.controllers.claim_creation import ReportProblem
from dralloc.controllers.jobs.plan_claims import stated_claims

Workload = Job | Deployment


def add_what_workloads_make(world: World) -> None:
    """Those that have pods already, or want none, are left as they are."""
    owned = [
        (pod.metadata.namespace, owner) for pod in world.all(Pod).values() if (owner := controller_of(pod.metadata))
    ]
    jobs = {(namespace, owner.name) for namespace, owner in owned if owner.kind == "Job"}
    # Between a deployment and its pods are sets of replicas, which are called after it.
    deployments = {
        (namespace, owner.name.rpartition("-")[0]) for namespace, owner in owned if owner.kind == "ReplicaSet"
    }
    for key, job in world.all(Job).items():
        if key not in jobs and not job.is_finished and not job.spec.suspend:
            _add_claims(world, job)
            _add_pods(world, job, _pods_at_a_time(job))
    for key, deployment in world.all(Deployment).items():
        if key not in deployments:
            _add_pods(world, deployment, 1 if deployment.spec.replicas is None else deployment.spec.replicas)
    for daemons in world.all(DaemonSet).values():
        if daemons.spec.template.spec.resource_claims:
            say(f"{_subject(daemons)}: its pods, one for each node, are not looked at", err=True, prefix="note: ")


def _pods_at_a_time(job: Job) -> int:
    parallelism = 1 if job.spec.parallelism is None else job.spec.parallelism
    return parallelism if job.spec.completions is None else min(parallelism, job.spec.completions)


def _add_claims(world: World, job: Job) -> None:
    namespace, subject = job.metadata.namespace, _subject(job)
    for stated in stated_claims(job):
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


def _add_pods(world: World, workload: Workload, count: int) -> None:
    template = workload.spec.template
    for number in range(count):
        metadata = replace(
            template.metadata,
            name=f"{workload.metadata.name}-{number}",
            namespace=workload.metadata.namespace,
            owner_references=(_owner(workload),),
        )
        world.add(Pod(api_version="v1", kind="Pod", metadata=metadata, spec=template.spec))
    if template.spec.resource_claims:
        taken = f"taken as the {counted(count, 'pod')} that it would have at a time"
        say(f"{_subject(workload)}: {taken}", err=True, prefix="note: ")


def _subject(workload: Workload | DaemonSet) -> str:
    return f"{workload.kind.lower()} {workload.metadata.namespace}/{workload.metadata.name}"


def _owner(workload: Workload) -> OwnerReference:
    return OwnerReference(
        api_version=workload.api_version,
        kind=workload.kind,
        name=workload.metadata.name,
        uid=workload.metadata.uid,
        controller=True,
    )
